package listen

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(activatedVar) != "" {
		activated()
		return
	}
	bridgetest.CheckLeaks(m)
}

// mustOpen opens what must open, and closes it with the test.
func mustOpen(t *testing.T, o Options) Listeners {
	t.Helper()
	ls, err := Open(o)
	bridgetest.Must(t, err)
	t.Cleanup(func() { _ = ls.Close() })
	return ls
}

// fails checks that nothing opens, for the reasons that are said.
func fails(t *testing.T, o Options, option bool, says ...string) {
	t.Helper()
	ls, err := Open(o)
	if err == nil {
		_ = ls.Close()
		t.Fatalf("%v: opened", o.Addrs)
	}
	if isOptionError(err) != option {
		t.Errorf("%v: %T: %v", o.Addrs, err, err)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v; want it to say %q", o.Addrs, err, text)
		}
	}
}

// shortDir is a directory for sockets, whose paths cannot be long.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "l")
	bridgetest.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func socketPath(t *testing.T) string { return filepath.Join(shortDir(t), "s") }

// A journal is a log that can be waited on.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newJournal() (*journal, hclog.Logger) {
	j := &journal{more: make(chan struct{}, 1)}
	return j, hclog.New(&hclog.LoggerOptions{Output: j, Level: hclog.Debug})
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Write(p)
	select {
	case j.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// await waits until the log says text, and forgets it up to there.
func (j *journal) await(t *testing.T, text string) {
	t.Helper()
	for {
		j.mu.Lock()
		_, after, found := strings.Cut(j.text.String(), text)
		if found {
			j.text.Reset()
			j.text.WriteString(after)
		}
		j.mu.Unlock()
		if found {
			return
		}
		select {
		case <-j.more:
		case <-t.Context().Done():
			t.Fatalf("the log does not say %q:\n%s", text, j)
		}
	}
}
