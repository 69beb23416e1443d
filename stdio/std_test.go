//go:build unix

package stdio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// stdChild starts a child of the tests whose stdin and stdout are the given files.
func stdChild(t *testing.T, name string, in, out *os.File) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	stderr = new(bytes.Buffer)
	cmd = exec.Command(os.Args[0])
	cmd.Env = childEnviron(name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, stderr
	bridgetest.Must(t, cmd.Start())
	in.Close()
	out.Close()
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, stderr
}

// socketPair returns two connected sockets, as node gives to its children.
func socketPair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	bridgetest.Must(t, err)
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
}

func TestContractStd(t *testing.T) {
	bridgetest.TestConn(t, func(t *testing.T) (a, b bridge.Conn, stop func()) {
		ar, bw := osPipe(t)
		br, aw := osPipe(t)
		// The files that a Std was made of stay open until the process ends.
		// Here it must look like that end.
		std := Std(ar, aw, Options{})
		return &endingStd{std, closeAll(ar, aw)}, NewConn(br, bw, closeAll(br, bw), Options{}), nil
	}, bridgetest.Options{})
}

type endingStd struct {
	*Conn
	exit func() error
}

func (s *endingStd) Close(reason error) error { s.Conn.Close(reason); return s.exit() }

// The client is gone: Send says so, and the process may end in its own way.
func TestStdClientGone(t *testing.T) {
	childIn, in := osPipe(t)
	out, childOut := osPipe(t)
	cmd, stderr := stdChild(t, "std echo", childIn, childOut)
	out.Close()
	defer in.Close()
	if _, err := in.WriteString(ping + "\n"); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 4 || !strings.Contains(stderr.String(), "broken pipe") {
		t.Errorf("ended with %v and stderr %q; want status 4 and an error", cmd.ProcessState, stderr)
	}
}

// A context ends what waits on stdin and stdout, be they pipes or sockets.
func TestStdInterrupted(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (childIn, childOut *os.File, ours []io.Closer, out *os.File){
		"pipes": func(t *testing.T) (childIn, childOut *os.File, ours []io.Closer, out *os.File) {
			childIn, in := osPipe(t)
			out, childOut = osPipe(t)
			return childIn, childOut, []io.Closer{in, out}, out
		},
		"sockets": func(t *testing.T) (childIn, childOut *os.File, ours []io.Closer, out *os.File) {
			in, childIn := socketPair(t)
			out, childOut = socketPair(t)
			return childIn, childOut, []io.Closer{in, out}, out
		},
	} {
		t.Run(name, func(t *testing.T) {
			childIn, childOut, ours, out := open(t)
			defer closeAll(ours...)()
			cmd, stderr := stdChild(t, "std term", childIn, childOut)
			if _, err := out.Read(make([]byte, 1)); err != nil { // it has begun
				t.Fatal(err)
			}
			cmd.Process.Signal(syscall.SIGTERM)
			cmd.Wait()
			if text := stderr.String(); !cmd.ProcessState.Success() || strings.Count(text, "context canceled") != 2 {
				t.Errorf("ended with %v and stderr %q; want both calls ended by the context", cmd.ProcessState, text)
			}
		})
	}
}

// ST2, ST8: files work too; at the end of stdin what was asked is answered.
func TestStdFiles(t *testing.T) {
	dir := t.TempDir()
	inName, outName := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	bridgetest.Must(t, os.WriteFile(inName, []byte(ping+"\n"+note), 0o600))
	for _, c := range []struct{ in, want string }{
		{inName, ping + "\n" + note + "\n"},
		{os.DevNull, ""},
	} {
		in, err := os.Open(c.in)
		bridgetest.Must(t, err)
		out, err := os.Create(outName)
		bridgetest.Must(t, err)
		cmd, stderr := stdChild(t, "std echo", in, out)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, stderr)
		}
		if got, err := os.ReadFile(outName); err != nil || string(got) != c.want {
			t.Errorf("stdin %s: wrote %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// The files that others may share come out as they went in, and open.
func TestStdLeavesFilesAlone(t *testing.T) {
	flags := func(f *os.File) int {
		n, err := withDescriptor(f, func(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0) })
		bridgetest.Must(t, err)
		return n
	}
	pr, pw := osPipe(t)
	sa, sb := socketPair(t)
	defer closeAll(pr, pw, sa, sb)()
	for name, files := range map[string][2]*os.File{"pipe": {pr, pw}, "socket": {sa, sb}} {
		for _, f := range files {
			f.Fd() // makes it blocking, as what a process inherits is
		}
		before := []int{flags(files[0]), flags(files[1])}
		count := bridgetest.FDs()
		c := Std(files[0], files[1], Options{})
		if name == "pipe" && runtime.GOOS == "linux" {
			if during := []int{flags(files[0]), flags(files[1])}; !slices.Equal(during, before) {
				t.Errorf("%s: flags %x in use, %x before", name, during, before)
			}
		}
		if err := c.Send(t.Context(), parse(t, ping)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Close(nil); err != nil {
			t.Errorf("%s: Close = %v", name, err)
		}
		if after := []int{flags(files[0]), flags(files[1])}; !slices.Equal(after, before) {
			t.Errorf("%s: flags %x afterwards, %x before", name, after, before)
		}
		if n := bridgetest.FDs(); n != count {
			t.Errorf("%s: %d files open afterwards, %d before", name, n, count)
		}
	}
	if _, err := pw.WriteString("x"); err != nil {
		t.Errorf("the pipe was closed: %v", err)
	}
}

// Tests of a main function may give it any reader and writer.
func TestStdPlain(t *testing.T) {
	var out output
	c := Std(strings.NewReader(ping+"\n"), &out, Options{})
	if got := all(t, c); !slices.Equal(got, []string{ping}) {
		t.Errorf("received %q", got)
	}
	c.Close(nil)

	stuck := stuckReader{entered: make(chan struct{}), leave: make(chan struct{})}
	defer close(stuck.leave)
	c = Std(stuck, &out, Options{})
	received := make(chan error)
	go func() { _, err := bridgetest.Recv(t.Context(), c); received <- err }()
	<-stuck.entered
	c.Close(nil) // does not wait for a read that nothing ends
	if err := <-received; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Recv = %v, want io.ErrClosedPipe", err)
	}
}

// stuckReader is as a terminal at which nobody types.
type stuckReader struct{ entered, leave chan struct{} }

func (r stuckReader) Read([]byte) (int, error) {
	close(r.entered)
	<-r.leave
	return 0, io.EOF
}
