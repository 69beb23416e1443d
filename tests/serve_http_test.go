package tests

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestServeBatch: LI8, LI9, LI10. A batch is a thing of 2025-03-26: its
// messages reach the child one by one and in order, and each request is
// answered. Later revisions have none.
func TestServeBatch(t *testing.T) {
	t.Parallel()
	request := func(id string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"echo","params":%s}`, id, tricky)
	}
	note := `{"jsonrpc":"2.0","method":"notifications/x","params":` + tricky + `}`
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			record := filepath.Join(t.TempDir(), "stdin")
			c := serve(t, nil, "-record", record).open(version)
			batch := "[" + request("1") + " ,\n" + note + "," + request(`"1"`) + "]"
			if version > "2025-03-26" {
				if status := c.post(batch); status != http.StatusBadRequest {
					t.Errorf("status %d, want 400", status)
				}
				return
			}
			all := strings.Join(c.call(batch), "\n")
			for _, id := range []string{"1", `"1"`} {
				if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, tricky); strings.Count(all, want) != 1 {
					t.Errorf("the reply\n%s\nhas not exactly one %s", all, want)
				}
			}
			if want := request("1") + "\n" + note + "\n" + request(`"1"`) + "\n"; !strings.HasSuffix(harness.ReadFile(t, record), want) {
				t.Errorf("the child read %q, want at the end %q", harness.ReadFile(t, record), want)
			}
			for _, bad := range []string{"[]", "[" + initialize(version) + "]"} {
				if status := c.post(bad); status != http.StatusBadRequest {
					t.Errorf("%.20s: status %d, want 400", bad, status)
				}
			}
		})
	}
}

// TestServeRefuses: what is no message never reaches the child, and is
// answered with the right status.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "stdin")
	c := serve(t, []string{"--max-message-size", "64KiB"}, "-record", record).open("2025-06-18")
	c.answer(`{"jsonrpc":"2.0","id":"first","method":"ping"}`)
	before := harness.ReadFile(t, record)
	ok := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, r := range []struct {
		name, body string
		header     http.Header
		want       int
	}{
		{"no JSON", `{"jsonrpc":"2.0","id":1,"method":"ping"`, nil, 400},
		{"two keys id", `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, nil, 400},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, nil, 400},
		{"capital key", `{"jsonrpc":"2.0","id":1,"Method":"ping"}`, nil, 400},
		{"bad UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\xffng\"}", nil, 400},
		{"too big", `{"jsonrpc":"2.0","id":1,"method":"echo","params":` + big(70<<10) + `}`, nil, 413},
		{"other media type", ok, http.Header{"Content-Type": {"text/plain"}}, 415},
		{"JSON alone accepted", ok, http.Header{"Accept": {"application/json"}}, 406},
		{"evil origin", ok, http.Header{"Origin": {"http://evil.example"}}, 403},
		{"unknown revision", ok, http.Header{"Mcp-Protocol-Version": {"1999-01-01"}}, 400},
	} {
		t.Run(r.name, func(t *testing.T) {
			h := c.header()
			for k, v := range r.header {
				h[k] = v
			}
			resp := c.do(t.Context(), http.MethodPost, r.body, h)
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != r.want {
				t.Errorf("status %d %.200s, want %d", resp.StatusCode, body, r.want)
			}
		})
	}
	c.answer(`{"jsonrpc":"2.0","id":"last","method":"ping"}`)
	if got, want := strings.TrimPrefix(harness.ReadFile(t, record), before), `{"jsonrpc":"2.0","id":"last","method":"ping"}`+"\n"; got != want {
		t.Errorf("the child read %q, want only %q", got, want)
	}
}

// TestServeTooManySessions: a session too many is 503 with Retry-After, and
// fits in once another has ended.
func TestServeTooManySessions(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"--max-sessions", "2"})
	first := s.open("2025-06-18")
	s.open("2025-06-18")
	resp := s.do(t.Context(), http.MethodPost, initialize("2025-06-18"), nil)
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("status %d with Retry-After %q, want 503 with one", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	first.end()
	harness.WaitUntil(t, "a free place", func() bool {
		_, err := s.tryOpen("2025-06-18")
		return err == nil
	})
}

// TestServeResumeOtherStream: LI17, LI18. A resumption brings the events of
// its own stream alone, and one that never was is 400, not silence.
func TestServeResumeOtherStream(t *testing.T) {
	t.Parallel()
	c := serve(t, nil).open("2025-11-25")
	ctx, cut := context.WithCancel(t.Context())
	resp := c.do(ctx, http.MethodPost, progressCall("1", "count", 30), c.header())
	first := newStream(resp).message(t)
	other := c.background(progressCall("2", "count", 30))
	cut()
	resp.Body.Close()
	s := c.listen(t.Context(), first.id)
	got := []string{first.data}
	for len(got) < 31 {
		got = append(got, s.message(t).data)
	}
	s.body.Close()
	checkProgress(t, got, "1", 30)
	checkProgress(t, recv(t, other), "2", 30)
	h := c.header()
	h.Set("Last-Event-ID", "no-such-event")
	resp = c.do(t.Context(), http.MethodGet, "", h)
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown Last-Event-ID: status %d, want 400", resp.StatusCode)
	}
}

// TestServeStdinClosed: a parent that holds a pipe to us and goes away takes
// the bridge with it.
func TestServeStdinClosed(t *testing.T) {
	t.Parallel()
	s := serve(t, hurry)
	s.open("2025-06-18")
	s.Stdin.Close()
	if code := s.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}
