package streamclient

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// ME6: a reply that breaks off is an error for what acts, which is never sent
// twice, and one more attempt, with an id of its own, for what does no harm.
func TestModernBroken(t *testing.T) {
	breaks := map[string]func(w http.ResponseWriter, m jsonrpc.Message){
		"no reply":    func(w http.ResponseWriter, m jsonrpc.Message) { cut() },
		"stream ends": func(w http.ResponseWriter, m jsonrpc.Message) { writeSSE(w, ": open\n\n") },
		"stream cut":  func(w http.ResponseWriter, m jsonrpc.Message) { writeSSE(w, "data: {"); cut() },
		"half a body": func(w http.ResponseWriter, m jsonrpc.Message) {
			w.Header().Set("Content-Length", "99")
			writeJSON(w, "{")
		},
		"chunks break": func(w http.ResponseWriter, m jsonrpc.Message) { writeJSON(w, "{"); w.(http.Flusher).Flush(); cut() },
	}
	for name, broken := range breaks {
		t.Run(name, func(t *testing.T) {
			testModern(t, func(s *fakeServer, o *ModernOptions) {
				n := 0
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					s.mu.Lock()
					n++
					odd := n%2 == 1
					s.mu.Unlock()
					if odd || m.Method() == "tools/call" {
						broken(w, m)
						return true
					}
					return false
				}
			}, func(t *modernTest) {
				for _, method := range []string{"prompts/list", "resources/list", "resources/templates/list", "resources/read", "completion/complete", "server/discover", "tools/list"} {
					t.send(modern("7", method, `"name":"x"`))
					t.wantRelated("7", echoed("7", method))
					seen := t.server.requests(method)
					if len(seen) != 2 || seen[0].msg.ID() != jsonrpc.IntID(7) || seen[1].msg.ID().Equivalent(seen[0].msg.ID()) ||
						string(seen[1].msg.Params()) != string(seen[0].msg.Params()) {
						t.Errorf("%s: the server has seen %v", method, seen)
					}
				}
				t.server.mu.Lock()
				t.server.seen = nil
				t.server.mu.Unlock()
				for _, method := range []string{"prompts/get", "tasks/update", "vendor/act", "subscriptions/listen"} {
					t.send(modern("8", method, ""))
					t.wantError("8", "connection_lost", "fake.test")
					t.send(modern("9", method, "")) // the even one
					t.want(echoed("9", method))
				}
				t.wantSeen("prompts/get", "prompts/get", "tasks/update", "tasks/update", "vendor/act", "vendor/act", "subscriptions/listen", "subscriptions/listen")
			})
		})
	}
}

// ME6: tools/call is never sent twice; nothing is once something of the reply
// was handed on, nor a third time.
func TestModernBrokenForGood(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			switch m.Method() {
			case "tools/list":
				return false
			case "resources/read":
				writeSSE(w, sseEvent("1", `{"jsonrpc":"2.0","method":"notifications/n"}`))
			}
			cut()
			return true
		}
	}, func(t *modernTest) {
		t.send(modern("1", "tools/call", `"name":"x"`))
		t.wantError("1", "connection_lost")
		t.wantSeen("tools/list", "tools/call")
		t.send(modern("2", "resources/read", ""))
		t.want(`{"jsonrpc":"2.0","method":"notifications/n"}`)
		t.wantError("2", "connection_lost")
		t.wantSeen("resources/read")
		t.send(modern("3", "prompts/list", ""))
		t.wantError("3", "connection_lost")
		t.wantSeen("prompts/list", "prompts/list")
		t.server.setDown(true)
		t.send(modern("4", "prompts/list", ""))
		t.wantError("4", "unreachable")
		t.server.setDown(false)
	})
}

// ME9: a JSON-RPC error that comes with 400 or 404 is the answer, as it is; none
// leads to initialize, or to a second attempt.
func TestModernErrorStatus(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   string
	}{
		{400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"m","data":{"requiredCapabilities":{"sampling":{}}}}}`, ""},
		{400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"m","data":{"supported":["2025-11-25"],"requested":"x"}}}`, ""},
		{400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"m"}}`, ""},
		{404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}`, ""},
		{404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Session not found"}}`},
		{400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"m"}}`, `{"id":1,"jsonrpc":"2.0","error":{"code":-32600,"message":"m"}}`},
		{500, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"own words"}}`, ""},
		{200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}`, ""},
		{200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"m"}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}`},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			testModern(t, func(s *fakeServer, o *ModernOptions) {
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					writeStatus(w, c.status, c.body)
					return true
				}
			}, func(t *modernTest) {
				if c.want == "" {
					c.want = c.body
				}
				t.send(modern("1", "prompts/get", `"name":"x"`))
				t.wantRelated("1", c.want)
				t.wantSeen("prompts/get")
			})
		})
	}
}

// C.7: what else a server may say becomes an error with a reason.
func TestModernFaults(t *testing.T) {
	for name, c := range map[string]struct {
		status           int
		mediaType, body  string
		reason, wantText string
	}{
		"400":         {400, "text/plain", "no such key", "http_status", "no such key"},
		"404":         {404, "text/html", "<p>", "http_status", "often /mcp"},
		"405":         {405, "", "", "http_status", "no Streamable HTTP server"},
		"401":         {401, wire.TypeJSON, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"m"}}`, "authorization_required", "credentials"},
		"403":         {403, "", "", "forbidden", "denied"},
		"413":         {413, "", "", "too_large", "too large"},
		"502":         {502, "text/html", "<p>", "http_status", "502"},
		"other's id":  {500, wire.TypeJSON, `{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"m"}}`, "http_status", "500"},
		"html":        {200, "text/html", "<p>", "not_mcp", "text/html"},
		"empty":       {200, wire.TypeJSON, " ", "no_answer", "200 OK"},
		"202":         {202, "", "", "no_answer", "202"},
		"204":         {204, "", "", "no_answer", "204"},
		"no JSON":     {200, wire.TypeJSON, "{", "invalid_message", "parse error"},
		"an array":    {200, wire.TypeJSON, `[{"jsonrpc":"2.0","id":1,"result":{}}]`, "invalid_message", ""},
		"other reply": {200, wire.TypeJSON, `{"jsonrpc":"2.0","id":2,"result":{}}`, "no_answer", ""},
		"a request":   {200, wire.TypeJSON, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "no_answer", ""},
		"too large":   {200, wire.TypeJSON, `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 2000) + `"}`, "too_large", "1000"},
		"large event": {200, wire.TypeSSE, sseEvent("", `{"jsonrpc":"2.0","id":1,"result":"`+strings.Repeat("x", 2000)+`"}`), "too_large", "1000"},
		"no event":    {200, wire.TypeSSE, sseEvent("", "x"), "invalid_message", ""},
	} {
		t.Run(name, func(t *testing.T) {
			testModern(t, func(s *fakeServer, o *ModernOptions) {
				o.MaxMessageSize = 1000
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					w.Header()["Content-Type"] = []string{c.mediaType}
					w.WriteHeader(c.status)
					fmt.Fprint(w, c.body)
					return true
				}
			}, func(t *modernTest) {
				t.send(modern("1", "prompts/get", ""))
				m := t.wantError("1", c.reason, c.wantText)
				if status := string(m.Lookup("error", "data", "status")); c.status != 200 && status != fmt.Sprint(c.status) {
					t.Errorf("the status is %s", status)
				}
				if m.Related() != m.ID() {
					t.Errorf("it belongs to %s", m.Related())
				}
				t.wantSeen("prompts/get")
			})
		})
	}
}

// LE14: a server that is too busy for what does no harm is asked again, in a while.
func TestModernBusy(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		n := 0
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if n++; n == 2 {
				return false
			}
			w.Header().Set("Retry-After", "3")
			writeStatus(w, 503, failure(m, "-32603", "busy"))
			return true
		}
	}, func(t *modernTest) {
		began := time.Now()
		t.send(modern("1", "prompts/list", ""))
		t.want(echoed("1", "prompts/list"))
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("it took %v", d)
		}
		t.send(modern("2", "vendor/act", ""))
		t.want(`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"busy"}}`)
		t.wantSeen("prompts/list", "prompts/list", "vendor/act")
	})
}

// ED7-ED9: what Discover tells of a server, by what that answers.
func TestModernDiscover(t *testing.T) {
	const discovered = `{"jsonrpc":"2.0","id":"mcp-bridge-discover","result":{"supportedVersions":["2026-07-28"]}}`
	reply := func(status int, header, body string) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			if header != "" {
				w.Header().Set("Mcp-Session-Id", header)
			}
			writeStatus(w, status, body)
		}
	}
	for name, c := range map[string]struct {
		serve  func(w http.ResponseWriter, r *http.Request)
		want   string // the response
		reason string // or the fault
		status int
		ended  string // the session that is ended
	}{
		"modern":  {serve: reply(200, "", discovered), want: discovered},
		"stream":  {serve: func(w http.ResponseWriter, r *http.Request) { writeSSE(w, sseEvent("", discovered)) }, want: discovered},
		"refused": {serve: reply(400, "", `{"jsonrpc":"2.0","id":"mcp-bridge-discover","error":{"code":-32022,"message":"m","data":{"supported":["2025-11-25"]}}}`), want: `{"jsonrpc":"2.0","id":"mcp-bridge-discover","error":{"code":-32022,"message":"m","data":{"supported":["2025-11-25"]}}}`},
		"no id":   {serve: reply(400, "", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}`), want: `{"jsonrpc":"2.0","id":"mcp-bridge-discover","error":{"code":-32000,"message":"no session"}}`},
		"in band": {serve: reply(200, "s1", `{"jsonrpc":"2.0","id":"mcp-bridge-discover","error":{"code":-32601,"message":"m"}}`), want: `{"jsonrpc":"2.0","id":"mcp-bridge-discover","error":{"code":-32601,"message":"m"}}`, ended: "s1"},
		"session": {serve: reply(200, "s2", discovered), want: discovered, ended: "s2"},
		"400":     {serve: reply(400, "s3", "what?"), reason: "http_status", status: 400, ended: "s3"},
		"405":     {serve: reply(405, "", ""), reason: "http_status", status: 405},
		"401":     {serve: reply(401, "", `{"jsonrpc":"2.0","id":"mcp-bridge-discover","error":{"code":-32001,"message":"m"}}`), reason: "authorization_required", status: 401},
		"403":     {serve: reply(403, "", ""), reason: "forbidden", status: 403},
		"500":     {serve: reply(500, "", "oops"), reason: "http_status", status: 500},
		"web page": {serve: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<p>")
		}, reason: "not_mcp", status: 200},
		"202":     {serve: reply(202, "", ""), reason: "no_answer", status: 202},
		"silence": {serve: func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, reason: "timeout"},
		"hang up": {serve: func(w http.ResponseWriter, r *http.Request) { cut() }, reason: "connection_lost"},
	} {
		t.Run(name, func(t *testing.T) {
			testModern(t, func(s *fakeServer, o *ModernOptions) {
				o.Header = http.Header{"X-Key": {"k"}}
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					c.serve(w, r)
					return true
				}
			}, func(t *modernTest) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				answer, fault := t.client.Discover(ctx)
				if got := string(answer.Bytes()); fault == nil && got != c.want || (fault == nil) != (c.reason == "") {
					t.Fatalf("Discover = %s, %v; want %s", got, fault, c.want)
				}
				if fault != nil && (fault.Reason != c.reason || fault.Status != c.status) {
					t.Errorf("the fault is %+v", fault)
				}
				seen := t.server.requests("server/discover")[0]
				if seen.header.Get("Mcp-Method") != "server/discover" || seen.header.Get("Mcp-Protocol-Version") != "2026-07-28" || seen.header.Get("X-Key") != "k" ||
					!strings.Contains(seen.body, `"io.modelcontextprotocol/clientInfo":{"name":"mcp-bridge","version":"`) ||
					!strings.Contains(seen.body, `"io.modelcontextprotocol/clientCapabilities":{}`) {
					t.Errorf("it has asked with %v %s", seen.header, seen.body)
				}
				ended := ""
				for _, r := range t.server.requests("DELETE") {
					ended += r.header.Get("Mcp-Session-Id")
					if r.header.Get("X-Key") != "k" || r.header.Get("Authorization") == "" {
						t.Errorf("DELETE came with %v", r.header)
					}
				}
				if ended != c.ended {
					t.Errorf("the session %q was ended, want %q", ended, c.ended)
				}
			})
		})
	}
	testModern(t, nil, func(t *modernTest) {
		t.server.setDown(true)
		if _, fault := t.client.Discover(t.Context()); fault == nil || fault.Reason != httpdial.ReasonUnreachable || fault.Status != 0 {
			t.Errorf("the fault is %+v", fault)
		}
		t.server.setDown(false)
		synctest.Wait()
	})
}
