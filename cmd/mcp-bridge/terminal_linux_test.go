package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
)

// At a terminal, login says that the address at which the browser ends can be pasted; without one, which command takes it, with the
// flags that say which sign-in is meant.
func TestLoginHint(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, false)
	dir := t.TempDir() + "/a b"
	for device, want := range map[string]string{
		"/dev/ptmx": "or paste here the address at which your browser ends",
		"/dev/null": "  mcp-bridge login --callback - --profile work --client-id mine --auth-dir '" + dir + "' " + server.URL + "\nand paste there the address at which your browser ends",
	} {
		stdin, err := os.Open(device)
		bridgetest.Must(t, err)
		defer stdin.Close()
		flags := []string{"login", "--profile", "work", "--auth-dir", dir, server.URL}
		status, out, _ := m.run(stdin, func(stdout io.Reader) {
			answerOf(t, stdout)
			m.want(exitOK, "was cancelled", append(flags, "--cancel")...)
		}, append(flags, "--client-id", "mine")...)
		if status != exitFail || !strings.Contains(out, want) {
			t.Errorf("%s: status %d, stdout %s; want %q", device, status, out, want)
		}
	}
}

// login --callback - asks for the address at a terminal, and nobody where a program writes it.
func TestCallbackAsksAtTerminal(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, false)
	for _, device := range []string{"/dev/ptmx", "/dev/null"} {
		first, err := os.Open(os.DevNull)
		bridgetest.Must(t, err)
		defer first.Close()
		m.run(first, func(stdout io.Reader) {
			answerOf(t, stdout)
			stdin, err := os.OpenFile(device, os.O_RDWR, 0)
			bridgetest.Must(t, err)
			defer stdin.Close()
			_, _ = stdin.WriteString("nonsense\n") // which is what a terminal's other end reads, as it echoes it
			_, _, errs := m.run(stdin, nil, "login", "--callback", "-", server.URL)
			if asks := strings.Contains(errs, "Paste the address at which your browser has ended"); asks != (device == "/dev/ptmx") {
				t.Errorf("%s: it says %q", device, errs)
			}
			m.want(exitOK, "was cancelled", "login", "--cancel", server.URL)
		}, "login", server.URL)
	}
}

func TestIsTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, want := range map[string]bool{"/dev/null": false, "/dev/ptmx": true, os.Args[0]: false} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if isTerminal(f) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
	if isTerminal(r) {
		t.Error("a pipe is no terminal")
	}
}
