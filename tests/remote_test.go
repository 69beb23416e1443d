package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// serveURL starts `mcp-bridge serve FLAGS URL`.
func serveURL(t testing.TB, url string, flags ...string) *server {
	t.Helper()
	return serveArgv(t, nil, append(append([]string{bridgeBin, "serve", "--listen", "127.0.0.1:0"}, flags...), url)...)
}

// TestServeURLDown: a remote server that is not there yet does not keep the
// bridge from starting. Clients of every transport are told at once what is
// wrong, and are served once it is there.
func TestServeURLDown(t *testing.T) {
	t.Parallel()
	addr := bridgetest.FreeAddr(t)
	s := serveURL(t, "http://"+addr+"/mcp?key=s3cret").site()
	for _, transport := range transports {
		c := firstTalker(t, s, transport)
		answer := mustAnswer(t, c, initialize("2025-06-18"))
		if id, code, text := errorOf(t, answer); id != `"init"` || code != -32603 || !strings.Contains(text, `"unreachable"`) || strings.Contains(text, "s3cret") {
			t.Errorf("%s: initialize was answered with id %s, %s, want an error that the server is unreachable", transport, id, text)
		}
		c.close()
	}
	unstarted(t).listenOn(addr)
	for _, transport := range transports {
		harness.WaitUntil(t, "the server to be reached over "+transport, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			c, err := s.open(ctx, transport)
			if err != nil {
				return false
			}
			defer c.close()
			got := mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"echo","params":`+tricky+`}`)
			if want := `{"jsonrpc":"2.0","id":1,"result":` + tricky + `}`; got != want {
				t.Errorf("%s: got %s, want %s", transport, got, want)
			}
			return true
		})
	}
}

// firstTalker is a client before its handshake.
func firstTalker(t testing.TB, s *site, transport string) talker {
	t.Helper()
	var c talker
	var err error
	switch transport {
	case "mcp":
		return &httpTalker{site: s, version: "2025-06-18"}
	case "sse":
		c, err = s.openSSE(t.Context())
	case "ws":
		c, err = s.openWS(t.Context())
	}
	if err != nil {
		t.Fatalf("%s: %v", transport, err)
	}
	return c
}

// TestServeURLEnds: C.6. One client is one session at the remote server, and
// when the client ends its own, in the way of its transport, the bridge DELETEs
// that one and no other. So it does with all at its own end.
func TestServeURLEnds(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	s := serveURL(t, u.URL, hurry...)
	front := s.site()
	deleted := func() map[string]int {
		ids := map[string]int{}
		for _, r := range u.saw() {
			if r.method == http.MethodDelete {
				ids[r.header.Get("Mcp-Session-Id")]++
			}
		}
		return ids
	}
	stays := map[string]talker{}
	for _, transport := range transports {
		stays[transport] = front.mustOpen(t, transport)
	}
	for i, transport := range transports {
		c := front.mustOpen(t, transport)
		mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`)
		c.close()
		want := fmt.Sprintf("session-%d", len(transports)+i+1)
		harness.WaitUntil(t, "the DELETE of "+want, func() bool { return deleted()[want] == 1 })
	}
	if n := len(deleted()); n != len(transports) {
		t.Errorf("the sessions %v were ended, want %d", deleted(), len(transports))
	}
	for _, c := range stays {
		mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`)
	}
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
	for i := range 2 * len(transports) {
		if id := fmt.Sprintf("session-%d", i+1); deleted()[id] != 1 {
			t.Errorf("%s was ended %d times, want once", id, deleted()[id])
		}
	}
}

// TestServeURLForgotten: C.6, LE5. A remote server that forgets its sessions
// is initialized anew for a client that would not notice, and the end for one
// whose connection is its session.
func TestServeURLForgotten(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	front := serveURL(t, u.URL).site()
	request := `{"jsonrpc":"2.0","id":1,"method":"echo","params":{"n":1}}`
	over := map[string]talker{}
	for _, transport := range transports {
		over[transport] = front.mustOpen(t, transport)
		mustAnswer(t, over[transport], request) // nothing is on its way any more
	}
	u.forget()
	if got, want := mustAnswer(t, over["mcp"], request), `{"jsonrpc":"2.0","id":1,"result":{"n":1}}`; got != want {
		t.Errorf("over mcp: got %s, want %s", got, want)
	}
	for _, transport := range []string{"sse", "ws"} {
		if id, _, text := errorOf(t, mustAnswer(t, over[transport], request)); id != "1" || !strings.Contains(text, "forgotten the session") {
			t.Errorf("%s: the call was answered with id %s, %s, want to hear that the session is lost", transport, id, text)
		}
	}
	if e, err := over["sse"].(*sseTalker).in.next(); !errors.Is(err, io.EOF) {
		t.Errorf("the event stream goes on: %+v %v", e, err)
	}
	_, _, err := over["ws"].(*wsTalker).conn.Read(t.Context())
	if code := websocket.CloseStatus(err); code != websocket.StatusInternalError {
		t.Errorf("the WebSocket was closed with %v (%v), want 1011", code, err)
	}
	mustAnswer(t, front.mustOpen(t, "sse"), request)
}

// TestServeURLHeaders: what is configured goes with every request; what the
// client sends to the bridge, its token above all, stays there (A5).
func TestServeURLHeaders(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	s := serveArgv(t, []string{"KEY=s3cret"}, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--token-file", tokenFile(t, "ann "+annToken),
		"--header", "X-Key: ${KEY}", u.URL)
	front := s.site().bearer(annToken)
	front.header.Set("X-Client", "private")
	front.header.Set("Cookie", "private=1")
	for _, transport := range transports {
		c := front.mustOpen(t, transport)
		mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`)
		c.close()
	}
	harness.WaitUntil(t, "the end of every session", func() bool { return len(u.bodies(isHTTP(http.MethodDelete))) == len(transports) })
	for _, r := range u.saw() {
		if r.header.Get("X-Key") != "s3cret" {
			t.Errorf("%s without the header that is configured: %v", r.method, r.header)
		}
		for name, values := range r.header {
			if text := strings.Join(values, " "); strings.Contains(text, annToken) || strings.Contains(text, "private") {
				t.Errorf("the server got %s of the client: %s", name, text)
			}
		}
	}
	if strings.Contains(s.Log(), "s3cret") {
		t.Error("the log tells the secret")
	}
}

// TestServeURLDownLog: why a client of 2026-07-28 is not served is said once,
// in one line of the log.
func TestServeURLDownLog(t *testing.T) {
	t.Parallel()
	addr := bridgetest.FreeAddr(t)
	s := serveURL(t, "http://"+addr+"/mcp")
	ask := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{%q:%q,%q:{}}}}`, metaVersion, modernVersion, metaCaps)
	if got, err := (&modernTalker{s.site()}).exchange(t.Context(), ask, nil); err != nil || !strings.Contains(got, "cannot reach") {
		t.Fatalf("%s, %v", got, err)
	}
	s.proc.stop()
	if log := s.proc.Log(); strings.Count(log, "[WARN]") != 1 || strings.Count(log, "cannot reach http://"+addr) != 1 {
		t.Errorf("the log does not say once why, in one line: %s", log)
	}
}

// TestConnectDownLog: that there is no server to be reached is said in the log
// of connect, too, once and not with each call of a client of 2026-07-28.
func TestConnectDownLog(t *testing.T) {
	t.Parallel()
	addr := bridgetest.FreeAddr(t)
	for url, reason := range map[string]string{
		"http://" + addr + "/mcp?key=s3cret": `the server could not be asked .* reason=unreachable error="cannot reach http://` + addr + `:`,
		"tcp:" + addr:                        `the server could not be asked .* error="cannot connect to tcp:` + addr,
	} {
		p := start(t, nil, bridgeBin, "connect", url)
		for id := range 3 {
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{"_meta":{%q:%q,%q:{}}}}`, id, metaVersion, modernVersion, metaCaps))
			if _, _, text := errorOf(t, p.line()); !strings.Contains(text, addr) {
				t.Errorf("%s: answered with %s", url, text)
			}
		}
		p.stop()
		if got := p.Log(); strings.Count(got, "[WARN]") != 1 || !regexp.MustCompile(reason).MatchString(got) || strings.Contains(got, "s3cret") {
			t.Errorf("%s: the log is %q, want one warning like %s", url, got, reason)
		}
	}
}
