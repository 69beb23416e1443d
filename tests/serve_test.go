package tests

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// hurry makes a stubborn child cost a test no more time than it must.
var hurry = []string{"--stdin-wait", "300ms", "--term-wait", "300ms", "--grace", "300ms"}

// TestServeAsks: server requests of every kind reach the client on the reply
// of the call that caused them, and the answer reaches the child byte for byte.
func TestServeAsks(t *testing.T) {
	t.Parallel()
	for _, version := range revisions {
		for _, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list"} {
			t.Run(version+"/"+method, func(t *testing.T) {
				t.Parallel()
				c := serve(t, nil).open(version)
				resp := c.request(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"ask","params":{"method":%q,"params":%s}}`, method, tricky))
				defer resp.Body.Close()
				s := newStream(resp)
				want := fmt.Sprintf(`{"jsonrpc":"2.0","id":"ask-1","method":%q,"params":%s}`, method, tricky)
				if got := s.message(t).data; got != want {
					t.Fatalf("the client was asked\n%s, want\n%s", got, want)
				}
				reply := `{"id":"ask-1","result":` + tricky + `,"jsonrpc":"2.0"}`
				if status := c.post(reply); status != http.StatusAccepted {
					t.Errorf("the answer got status %d, want 202", status)
				}
				if got, want := s.message(t).data, `{"jsonrpc":"2.0","id":1,"result":`+reply+`}`; got != want {
					t.Errorf("the child read\n%s, want\n%s", got, want)
				}
			})
		}
	}
}

// TestServePriming: LI14. From 2025-11-25 on an SSE reply begins with an
// event without data; before, it must not: older clients choke on it.
func TestServePriming(t *testing.T) {
	t.Parallel()
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			resp := serve(t, nil).open(version).request(progressCall("1", "progress", 1))
			defer resp.Body.Close()
			first, err := newStream(resp).next()
			if err != nil {
				t.Fatal(err)
			}
			if primed := first.data == ""; primed != (version >= "2025-11-25") {
				t.Errorf("the first event of the reply is %+v", first)
			}
			if first.id == "" {
				t.Error("the first event has no id, so the client cannot resume (LI15)")
			}
		})
	}
}

// TestServeListChanged: B.3. What belongs to no call goes to the GET stream,
// once, and nothing else does.
func TestServeListChanged(t *testing.T) {
	t.Parallel()
	c := serve(t, nil).open("2025-06-18")
	get := c.listen(t.Context(), "")
	defer get.body.Close()
	const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	for i := range 3 {
		id := fmt.Sprint(i)
		reply := c.call(emit(id, changed, `{"jsonrpc":"2.0","id":$ID,"result":{}}`))
		if len(reply) != 1 {
			t.Errorf("the call's reply is %q, want the result alone", reply)
		}
		if e := get.message(t); e.data != changed {
			t.Errorf("the GET stream has %q, want %q", e.data, changed)
		}
	}
}

// TestServeResume: LI16, LI17. The TCP connection of a call is cut after a
// few events; the call goes on, and GET with Last-Event-ID brings the rest,
// each message once and in order. The child sees no cancellation.
func TestServeResume(t *testing.T) {
	t.Parallel()
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			const n = 40
			record := filepath.Join(t.TempDir(), "stdin")
			c := serve(t, nil, "-record", record).open(version)
			ctx, cut := context.WithCancel(t.Context())
			resp := c.do(ctx, http.MethodPost, progressCall("1", "count", n), c.header())
			s := newStream(resp)
			var got []string
			var last string
			for len(got) < 3 {
				e := s.message(t)
				got, last = append(got, e.data), e.id
			}
			cut()
			resp.Body.Close()

			s = c.listen(t.Context(), last)
			defer s.body.Close()
			for len(got) < n+1 {
				got = append(got, s.message(t).data)
			}
			checkProgress(t, got, "1", n)
			if e, err := s.next(); err == nil && e.data != "" {
				t.Errorf("after the response came %+v, want the end of the stream", e)
			}
			if read := harness.ReadFile(t, record); strings.Contains(read, "cancelled") {
				t.Errorf("a lost connection became a cancellation: %q", read)
			}
		})
	}
}

// TestServeCancel: LI28. A cancellation reaches the child with the client's id
// as spelled, and ends the reply without a response.
func TestServeCancel(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "stdin")
	c := serve(t, nil, "-record", record).open("2025-06-18")
	ask := c.background(progressCall("9007199254740993", "hang", 0))
	waitFile(t, record, func(s string) bool { return strings.Contains(s, `"hang"`) })
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9007199254740993,"reason":"no"}}`
	if status := c.post(cancel); status != http.StatusAccepted {
		t.Errorf("the cancellation got status %d, want 202", status)
	}
	waitFile(t, record, func(s string) bool { return strings.Contains(s, cancel+"\n") })
	for _, msg := range recv(t, ask) {
		if strings.Contains(msg, `"result"`) {
			t.Errorf("a cancelled call was answered with %q", msg)
		}
	}
}

// TestServeEndedSession: LI21, LI23.
func TestServeEndedSession(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := s.open("2025-11-25")
	if status := c.end(); status != http.StatusNoContent && status != http.StatusOK {
		t.Errorf("DELETE: status %d, want 204", status)
	}
	for _, id := range []string{c.id, "no-such-session"} {
		old := &session{server: s, id: id, version: c.version}
		if status := old.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); status != http.StatusNotFound {
			t.Errorf("POST to session %q: status %d, want 404", id, status)
		}
	}
	resp := s.do(t.Context(), http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, nil)
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("POST without a session: status %d, want 400", resp.StatusCode)
	}
}

// TestServeBackPressure: a child that no longer reads makes its own session
// wait, does not make the bridge grow, and does not keep it from stopping.
func TestServeBackPressure(t *testing.T) {
	t.Parallel()
	s := serve(t, hurry)
	deaf, healthy := s.open("2025-06-18"), s.open("2025-06-18")
	deaf.answer(`{"jsonrpc":"2.0","id":1,"method":"deaf"}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := `{"jsonrpc":"2.0","method":"notifications/x","params":` + big(1<<20) + `}`
	const posts = 100
	accepted := make(chan bool, posts)
	for range posts {
		go func() {
			resp, err := deaf.try(ctx, http.MethodPost, body, deaf.header())
			if err == nil {
				resp.Body.Close()
			}
			accepted <- err == nil && resp.StatusCode == http.StatusAccepted
		}()
	}
	for i := range 20 {
		id := fmt.Sprint(i)
		if got, want := healthy.answer(`{"jsonrpc":"2.0","id":`+id+`,"method":"echo","params":{}}`), `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`; got != want {
			t.Errorf("the healthy session got %q", got)
		}
	}
	took := 0
	quiet := time.NewTimer(time.Second)
	for waiting := true; waiting; {
		select {
		case ok := <-accepted:
			if ok {
				took++
			}
		case <-quiet.C:
			waiting = false
		}
	}
	if took > posts/2 {
		t.Errorf("%d of %d MiB were accepted for a child that reads nothing", took, posts)
	}
	began := time.Now()
	if status := deaf.end(); status != http.StatusNoContent && status != http.StatusOK {
		t.Errorf("DELETE of the deaf session: status %d", status)
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the bridge took %v to stop", took)
	}
}

// A command that ends at once is reported at start, by name, and serve ends with status 1. Its stdin is no pipe: serve
// also ends, with status 0, when one is closed.
func TestServeEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := harness.Start(t, harness.Options{NullStdio: true}, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--", childBin, "-exit", "7")
	if status := p.Wait(t); status != 1 || !strings.Contains(p.Log(), `server "child" ended: exit status 7; last stderr: refusing to start: no configuration`) {
		t.Errorf("status %d\n%s", status, p.Log())
	}
}

// TestServeStops: SIGTERM and SIGINT end the bridge with status 0, with calls
// in flight and streams open, and promptly.
func TestServeStops(t *testing.T) {
	t.Parallel()
	for _, sig := range stopSignals {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			s := serve(t, hurry)
			c := s.open("2025-11-25")
			get := c.listen(t.Context(), "")
			defer get.body.Close()
			call := c.background(`{"jsonrpc":"2.0","id":1,"method":"hang"}`)
			c.answer(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
			began := time.Now()
			s.signal(sig)
			if code := s.wait(); code != 0 {
				t.Errorf("exit status %d, want 0", code)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the bridge took %v to stop", took)
			}
			recv(t, call)
		})
	}
}
