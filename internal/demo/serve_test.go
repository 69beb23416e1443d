package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

const asProcess = "DEMO_TEST_AS_PROCESS"

// TestMain is the demo server itself when a test starts this binary again.
func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		if err := Serve(context.Background(), os.Stdin, os.Stdout, os.Stderr); err != nil {
			os.Exit(99)
		}
		os.Exit(0)
	}
	bridgetest.CheckLeaks(m)
}

const initialize20250326 = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{}}}`

// ST8: printf ... | mcp-bridge demo answers everything. J4: what is no message is answered, too.
// ST5: an array is a batch after 2025-03-26 was agreed on, and an error before.
func TestServeAnswersEverythingBeforeTheEnd(t *testing.T) {
	input := strings.Join([]string{
		`this is no JSON`,
		`{"jsonrpc":"2.0","id":"n","method":5}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
		initialize20250326,
		`[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":"3","method":"ping"}]`,
		"\r",
		callTool(`4`, "slow", `{"steps":1,"seconds":0.01}`) + "\r",
		`{"jsonrpc":"2.0","id":5,"method":"ping"}`, // and no line feed
	}, "\n")
	var out, stderr bytes.Buffer
	bridgetest.Must(t, Serve(t.Context(), strings.NewReader(input), &out, &stderr))
	slow := textOf(`4`, "done: 1 steps in 0.01 seconds") + "\n" // comes when it comes
	if strings.Count(out.String(), slow) != 1 {
		t.Errorf("there is no answer to the call of slow:\n%s", &out)
	}
	got := strings.Split(strings.TrimSuffix(strings.Replace(out.String(), slow, "", 1), "\n"), "\n")
	want := []string{ // the beginning of each line
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,`,
		`{"jsonrpc":"2.0","id":"n","error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-03-26"`,
		`{"jsonrpc":"2.0","id":2,"result":{}}`,
		`{"jsonrpc":"2.0","id":"3","result":{}}`,
		`{"jsonrpc":"2.0","id":5,"result":{}}`,
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("line %d:\n%s\nwant lines that begin\n%s", i+1, out.String(), strings.Join(want, "\n"))
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr: %s", &stderr)
	}
}

// A session over real pipes ends when ctx does, although the client says nothing.
func TestServeEndsWithContext(t *testing.T) {
	r, in, err := os.Pipe()
	bridgetest.Must(t, err)
	out, w, err := os.Pipe()
	bridgetest.Must(t, err)
	for _, f := range []*os.File{in, r, out, w} {
		defer f.Close()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, r, w, io.Discard) }()
	io.WriteString(in, initialize20250326+"\n")
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "mcp-bridge-demo") {
		t.Fatalf("%v: %s", err, line)
	}
	why := errors.New("a signal")
	cancel(why)
	if err := <-done; err != why {
		t.Errorf("Serve: %v, want %v", err, why)
	}
}

// start runs the server as a process that reads input, and waits for its end.
func start(t *testing.T, input string) (stdout, stderr string, status int) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asProcess+"=1")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestCrashEndsTheProcess(t *testing.T) {
	stdout, stderr, status := start(t, initialize20250326+"\n"+callTool(`1`, "crash", `{"status":42,"message":"farewell"}`)+"\n")
	if status != 42 || stderr != "farewell\n" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	if strings.Count(stdout, "\n") != 1 {
		t.Errorf("stdout is %q, want the answer to initialize alone", stdout)
	}
}

func TestProcessEndsWithItsInput(t *testing.T) {
	stdout, stderr, status := start(t, initialize20250326+"\n")
	if status != 0 || stderr != "" || strings.Count(stdout, "\n") != 1 {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// A client that is gone while it still holds our stdin open ends the process: nothing can be answered.
func TestProcessEndsWhenStdoutIsGone(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asProcess+"=1")
	in, err := cmd.StdinPipe()
	bridgetest.Must(t, err)
	out, w, err := os.Pipe()
	bridgetest.Must(t, err)
	cmd.Stdout = w
	bridgetest.Must(t, cmd.Start())
	w.Close()
	out.Close()
	io.WriteString(in, initialize20250326+"\n")
	cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 99 {
		t.Errorf("status %d, want that of an error", status)
	}
}
