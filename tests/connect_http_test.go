package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestConnectHeaders: LE1, LE3, LE4. The user's headers and the protocol's are
// on every request: POST, GET and DELETE.
func TestConnectHeaders(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("X-From-File: f\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, []string{"TOKEN=s3cret"}, bridgeBin, "connect", "--header", "Authorization: Bearer ${TOKEN}", "--header", "X-No-Space:v", "--header-file", file, u.URL)
	p.handshake("2025-06-18")
	p.send(`{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`)
	p.line()
	harness.WaitUntil(t, "the GET request", func() bool { return len(u.bodies(isHTTP(http.MethodGet))) > 0 })
	p.Stdin.Close()
	p.wait()
	kinds := map[string]bool{}
	for _, r := range u.saw() {
		kinds[r.method] = true
		want := map[string]string{"Authorization": "Bearer s3cret", "X-No-Space": "v", "X-From-File": "f"}
		if method, _ := envelope(r.body); method == "initialize" {
			want["Mcp-Session-Id"] = ""
		} else {
			want["Mcp-Session-Id"], want["Mcp-Protocol-Version"] = "session-1", "2025-06-18"
		}
		if r.method == http.MethodPost {
			want["Content-Type"], want["Accept"] = "application/json", "application/json, text/event-stream"
		}
		for k, v := range want {
			if got := r.header.Get(k); got != v {
				t.Errorf("%s %.60s: %s is %q, want %q", r.method, r.body, k, got, v)
			}
		}
	}
	if len(kinds) != 3 {
		t.Errorf("the server saw %v, want POST, GET and DELETE", kinds)
	}
	if strings.Contains(p.Log(), "s3cret") {
		t.Error("the log has the token")
	}
}

// TestConnectRedirect: LE14. A redirect to another origin takes neither the
// user's headers nor the session with it.
func TestConnectRedirect(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			evil, u := newUpstream(t), newUpstream(t)
			u.before = func(w http.ResponseWriter, r *http.Request, body string) bool {
				if strings.Contains(body, `"away"`) {
					http.Redirect(w, r, evil.URL, status)
					return true
				}
				return false
			}
			p := connected(t, u, "--header", "Authorization: Bearer t", "--header", "X-Api-Key: k")
			p.send(`{"jsonrpc":"2.0","id":1,"method":"away"}`)
			errorOf(t, p.line())
			for _, r := range evil.saw() {
				for _, h := range []string{"Authorization", "X-Api-Key", "Mcp-Session-Id"} {
					if r.header.Get(h) != "" {
						t.Errorf("the other origin was sent %s", h)
					}
				}
			}
		})
	}
}

// TestConnectResumes: LE7. The stream of a call ends before the response: the
// bridge comes back with the last event id after exactly the server's retry
// time, and the client sees every message once.
func TestConnectResumes(t *testing.T) {
	t.Parallel()
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t)
			cut := make(chan time.Time, 1)
			u.answer = func(w http.ResponseWriter, _ *http.Request, _ string) {
				event := sse(w)
				event("retry: 300\nid: e-0\ndata:")
				event(`id: e-1` + "\n" + `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t1","progress":1}}`)
				cut <- time.Now()
			}
			waited := make(chan time.Duration, 1)
			u.get = func(w http.ResponseWriter, r *http.Request) {
				switch r.Header.Get("Last-Event-Id") {
				case "":
					w.WriteHeader(http.StatusMethodNotAllowed)
				case "e-1":
					waited <- time.Since(<-cut)
					event := sse(w)
					event(`id: e-2` + "\n" + `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t1","progress":2}}`)
					event(`id: e-3` + "\n" + `data: {"jsonrpc":"2.0","id":1,"result":{"done":true}}`)
				default:
					t.Errorf("Last-Event-ID %q, want e-1", r.Header.Get("Last-Event-Id"))
				}
			}
			p := connect(t, u.URL)
			p.handshake(version)
			p.send(progressCall("1", "count", 2))
			checkProgress(t, []string{p.line(), p.line(), p.line()}, "1", 2)
			if w := recv(t, waited); w < 250*time.Millisecond {
				t.Errorf("the bridge came back after %v, want 300 ms", w)
			}
			if n := len(u.bodies(isMethod("count"))); n != 1 {
				t.Errorf("the call was sent %d times", n)
			}
		})
	}
}

// TestConnectStreamLost: a stream without event ids breaks in mid-call: an
// error, not silence, and the call is not sent again.
func TestConnectStreamLost(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	u.answer = func(w http.ResponseWriter, r *http.Request, body string) {
		if strings.Contains(body, `"lost"`) {
			sse(w)(`data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
			panic(http.ErrAbortHandler)
		}
		echo(w, r, body)
	}
	p := connected(t, u)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"lost"}`)
	p.line()
	if id, _, _ := errorOf(t, p.line()); id != "1" {
		t.Errorf("the error has id %s", id)
	}
	if n := len(u.bodies(isMethod("lost"))); n != 1 {
		t.Errorf("the call was sent %d times", n)
	}
	p.send(`{"jsonrpc":"2.0","id":2,"method":"echo","params":{}}`)
	if got := p.line(); got != `{"jsonrpc":"2.0","id":2,"result":{}}` {
		t.Errorf("the next call: %s", got)
	}
}

// TestConnectServerAsks: LE15. A request that the server sends, on the reply
// of a call or on the GET stream, is answered by a POST, byte for byte.
func TestConnectServerAsks(t *testing.T) {
	t.Parallel()
	ask := `{"jsonrpc":"2.0","id":"srv-1","method":"sampling/createMessage","params":` + tricky + `}`
	reply := `{"id":"srv-1","result":` + tricky + `,"jsonrpc":"2.0"}`
	answered := func(u *upstream) func() bool {
		return func() bool { return len(u.bodies(func(r seen) bool { return r.body == reply })) == 1 }
	}
	t.Run("on a call", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		u.answer = func(w http.ResponseWriter, _ *http.Request, _ string) {
			event := sse(w)
			event("data: %s", ask)
			harness.WaitUntil(t, "the answer", answered(u))
			event(`data: {"jsonrpc":"2.0","id":1,"result":{}}`)
		}
		p := connected(t, u)
		p.send(`{"jsonrpc":"2.0","id":1,"method":"sample"}`)
		if got := p.line(); got != ask {
			t.Fatalf("the client was asked %s", got)
		}
		p.send(reply)
		if got := p.line(); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("got %s", got)
		}
	})
	t.Run("on the GET stream", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		u.get = func(w http.ResponseWriter, r *http.Request) {
			sse(w)("id: g-1\ndata: %s", ask)
			<-r.Context().Done()
		}
		p := connected(t, u)
		if got := p.line(); got != ask {
			t.Fatalf("the client was asked %s", got)
		}
		p.send(reply)
		harness.WaitUntil(t, "the answer", answered(u))
	})
}

// TestConnectCommand: `connect -- COMMAND` is a stdio server under
// supervision: bytes pass, the child's end is seen, its stderr is logged.
func TestConnectCommand(t *testing.T) {
	t.Parallel()
	p := start(t, nil, bridgeBin, "connect", "--", childBin)
	p.handshake("2025-11-25")
	for _, id := range spelled {
		p.send(fmt.Sprintf(`{"params":%s,"jsonrpc":"2.0","method":"echo","id":%s}`, tricky, id))
		if got, want := p.line(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, tricky); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	p.send(`{"jsonrpc":"2.0","id":1,"method":"exit","params":{"code":3,"lines":["the disk is on fire"]}}`)
	if _, _, text := errorOf(t, p.line()); !strings.Contains(text, "3") || !strings.Contains(text, "the disk is on fire") {
		t.Errorf("the error names neither exit status 3 nor the end of stderr: %s", text)
	}
}

// TestConnectSessionless: ED9, C.2, C.4.6. A server that answers initialize
// without beginning a session can ask its client nothing, but one that speaks
// 2026-07-28 as well is spoken to in that: then a legacy client is asked.
func TestConnectSessionless(t *testing.T) {
	t.Parallel()
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--isolation", "request", "--", childBin, "-speak", "legacy")
	p := start(t, nil, bridgeBin, "connect", s.url)
	p.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}`)
	if line := p.line(); !strings.Contains(line, `"protocolVersion":"2025-06-18"`) {
		t.Fatalf("initialize is answered %s", line)
	}
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{"rounds":[[{"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{}}}}]]}}}`)
	question := p.line()
	id := regexp.MustCompile(`"id":([^,]+),`).FindStringSubmatch(question)
	if id == nil || !strings.Contains(question, `"message":"who?"`) {
		t.Fatalf("the client gets %s", question)
	}
	p.send(`{"jsonrpc":"2.0","id":` + id[1] + `,"result":{"action":"accept","content":{"name":"ann"}}}`)
	if line := p.line(); !strings.Contains(line, `ann`) || !strings.Contains(line, `"id":1,`) {
		t.Errorf("the call is answered %s", line)
	}
}
