package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A said is a message of connect, as far as these tests look at it.
type said struct {
	ID     any
	Method string
	Params struct{ Mode, URL, Message, ElicitationID string }
	Result struct {
		ResultType    string
		RequestState  string
		InputRequests map[string]struct {
			Method string
			Params struct{ Mode, URL, Message string }
		}
		Content []any
	}
	Error struct {
		Message string
		Data    struct {
			Reason, URL string
			Status      int
		}
	}
}

// says reads the next message of connect, and fails if that is not JSON.
func (p *proc) says() (m said) {
	p.t.Helper()
	line := p.line()
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		p.t.Fatalf("%v: %s", err, line)
	}
	return m
}

// wanting is a server where somebody has signed in, and that wants more rights for calls; connect is a bridge to it that
// opens no browser.
func wanting(t *testing.T) (server *authtest.Server, connect func(flags ...string) *proc) {
	server = authtest.New(t)
	server.RequireScopeMore()
	dir, err := os.MkdirTemp("", "mcp-bridge-wanting-")
	bridgetest.Must(t, err)
	// A sign-in that nobody wants any more is a process of its own, and may still write as it ends.
	t.Cleanup(func() { harness.WaitUntil(t, "the sign-in to end", func() bool { return os.RemoveAll(dir) == nil }) })
	env := []string{"BROWSER=" + strings.Join([]string{os.Args[0], "browse", filepath.Join(dir, "opened"), "%s"}, " "), "MCP_BRIDGE_AUTH_DIR=" + filepath.Join(dir, "auth")}
	if status, _, stderr := runBridge(t, env, "login", server.URL); status != 0 {
		t.Fatalf("login: status %d: %s", status, stderr)
	}
	return server, func(flags ...string) *proc {
		return start(t, env, append(append([]string{bridgeBin, "connect", "--no-browser"}, flags...), server.URL)...)
	}
}

// opens is a person who opens an address in a browser.
func opens(t *testing.T, addr string) {
	t.Helper()
	resp, err := http.Get(addr)
	bridgetest.Must(t, err)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the page has status %d", resp.StatusCode)
	}
}

const callT = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{}}}`

func initializeWith(revision, capabilities string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + revision + `","capabilities":` + capabilities + `,"clientInfo":{"name":"t","version":"1"}}}`
}

// A legacy client that can show addresses is asked to show where the person gives more rights, and its call goes on
// when he has done so; if he does not want to, it fails at once.
func TestStepUpElicited(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"accept", "decline", "never answered"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			server, connect := wanting(t)
			p := connect()
			p.send(initializeWith("2025-11-25", `{"elicitation":{"url":{}}}`))
			p.line()
			p.send(callT)
			ask := p.says()
			u, err := url.Parse(ask.Params.URL)
			if ask.Method != "elicitation/create" || ask.Params.Mode != "url" || ask.Params.ElicitationID == "" || err != nil || u.Query().Get("scope") == "" ||
				!strings.Contains(ask.Params.Message, server.URL) || !strings.Contains(ask.Params.Message, "more") {
				t.Fatalf("asked was %+v", ask)
			}
			if action != "never answered" {
				p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":%q}}`, ask.ID, action))
			}
			if action == "decline" {
				if no := p.says(); no.Error.Data.Reason != "authorization_required" || no.Error.Data.URL != ask.Params.URL || no.Error.Data.Status != 403 {
					t.Errorf("the answer is %+v", no)
				}
				p.send(strings.Replace(callT, `"id":2`, `"id":3`, 1))
				if no := p.says(); no.ID != 3.0 || no.Error.Data.Reason != "authorization_required" {
					t.Errorf("the next answer is %+v", no)
				}
				return
			}
			opens(t, ask.Params.URL)
			var answer, over said
			for range 2 {
				if m := p.says(); m.ID != nil {
					answer = m
				} else {
					over = m
				}
			}
			want := map[string]string{"accept": "notifications/elicitation/complete", "never answered": "notifications/cancelled"}[action]
			if answer.ID != 2.0 || len(answer.Result.Content) != 1 || over.Method != want {
				t.Errorf("answered was %+v, told %+v", answer, over)
			}
		})
	}
}

const modernT = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":{},%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}}}}}`

// A modern client is answered with input_required, and its retry gets the result of the call.
func TestStepUpInput(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"opened, then retried", "retried, then opened", "declined"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			_, connect := wanting(t)
			p := connect()
			p.send(fmt.Sprintf(modernT, 1, ""))
			ask := p.says()
			input := ask.Result.InputRequests["sign-in"]
			if ask.ID != 1.0 || ask.Result.ResultType != "input_required" || ask.Result.RequestState == "" || input.Method != "elicitation/create" || input.Params.Mode != "url" {
				t.Fatalf("answered was %+v", ask)
			}
			action := "accept"
			if order == "declined" {
				action = "decline"
			}
			if order == "opened, then retried" {
				opens(t, input.Params.URL)
			}
			p.send(fmt.Sprintf(modernT, 2, fmt.Sprintf(`"inputResponses":{"sign-in":{"action":%q}},"requestState":%q,`, action, ask.Result.RequestState)))
			if order == "retried, then opened" {
				opens(t, input.Params.URL)
			}
			answer := p.says()
			if ok := answer.ID == 2.0 && len(answer.Result.Content) == 1; ok != (action == "accept") ||
				!ok && (answer.Error.Data.Reason != "authorization_required" || answer.Error.Data.Status != 403) {
				t.Errorf("the answer is %+v", answer)
			}
		})
	}
}

// Cancellations that name no request are of no consequence while a call of a client that can show addresses is open, before it
// is answered with input_required and afterwards. Neither is an id that is in use.
func TestStepUpOddShapes(t *testing.T) {
	t.Parallel()
	_, connect := wanting(t)
	p := connect()
	odd := func() {
		for _, params := range []string{``, `,"params":{}`, `,"params":[]`, `,"params":null`, `,"params":{"requestId":null}`, `,"params":{"requestId":{}}`, `,"params":{"requestId":1.5}`, `,"params":{"requestId":"nobody's"}`} {
			p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled"` + params + `}`)
		}
	}
	p.send(fmt.Sprintf(modernT, 1, ""))
	odd()
	ask := p.says()
	if ask.ID != 1.0 || ask.Result.RequestState == "" {
		t.Fatalf("answered was %+v", ask)
	}
	odd()
	p.send(fmt.Sprintf(modernT, 1, ""))
	if no := p.says(); no.ID != 1.0 || no.Error.Message == "" {
		t.Errorf("a call with the id of one in progress was answered with %+v", no)
	}
	p.send(fmt.Sprintf(modernT, 2, fmt.Sprintf(`"inputResponses":{"sign-in":{"action":"accept"}},"requestState":%q,`, ask.Result.RequestState)))
	odd()
	opens(t, ask.Result.InputRequests["sign-in"].Params.URL)
	if answer := p.says(); answer.ID != 2.0 || len(answer.Result.Content) != 1 {
		t.Errorf("the answer is %+v", answer)
	}
}

// Who cannot show addresses, or does so in a revision that has no such questions, is told by the error alone.
func TestStepUpNotElicited(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"form only":    initializeWith("2025-11-25", `{"elicitation":{}}`),
		"old revision": initializeWith("2025-06-18", `{"elicitation":{"url":{}}}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, connect := wanting(t)
			p := connect("--auth-wait", "1s")
			p.send(line)
			p.line()
			p.send(callT)
			if no := p.says(); no.ID != 2.0 || no.Error.Data.Reason != "authorization_required" || no.Error.Data.URL == "" {
				t.Errorf("the answer is %+v", no)
			}
		})
	}
}
