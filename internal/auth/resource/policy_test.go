package resource

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const testPolicy = `# who may do what
* -> mcp
tools/call -> read
tools/call delete_* -> delete
tools/call *secret? -> secret
resources/read file:///etc/* -> root
completion/complete delete_* -> delete
resources/subscribe -> sub
resources/subscribe secret://* -> admin
* hidden://* -> hidden

implies admin -> delete secret
implies delete -> write
implies write -> read
implies read -> write
`

func parsePolicy(t testing.TB, text string) *Policy {
	t.Helper()
	p, err := ParsePolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// listen is a subscriptions/listen with these notifications.
func listen(notifications string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":` + notifications + `}}`
}

func TestPolicyMessages(t *testing.T) {
	t.Parallel()
	p := parsePolicy(t, testPolicy)
	for _, test := range []struct{ messages, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, "mcp"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list"}}`, "mcp read"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file"}}`, "mcp read delete"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"xdelete_file"}}`, "mcp read"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_secrets"}}`, "mcp read delete secret"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\u0064elete_file"}}`, "mcp read delete"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n\u0061me":"delete_file"}}`, "mcp read delete"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","name":"list"}}`, "mcp read delete"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list","NAME":"delete_file"}}`, "mcp read delete"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`, "mcp read delete secret hidden"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, "mcp read"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"name":"delete_file"},"name":"x"}}`, "mcp read"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, "mcp admin delete hidden read root secret sub"},
		{`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}`, "mcp root"},
		{`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"delete_x"}}}`, "mcp delete"},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"secret://a"}}`, "mcp sub admin"},
		{listen(`{"toolsListChanged":true}`), "mcp"},
		{listen(`{"resourceSubscriptions":[]}`), "mcp"},
		{listen(`{"resourceSubscriptions":null}`), "mcp"},
		{listen(`{"resourceSubscriptions":["file:///a"]}`), "mcp sub"},
		{listen(`{"resourceSubscriptions":["file:///a","secret:\u002f/b"]}`), "mcp sub admin"},
		{listen(`{"resourceSubscriptions":["hidden://a"]}`), "mcp sub hidden"},
		{listen(`{"ResourceSubscriptions":["secret://a"],"resourceSubscriptions":[]}`), "mcp sub admin"},
		{listen(`{},"notifications":{"resourceSubscriptions":["secret://a"]},"Notifications":{}`), "mcp sub admin"},
		{listen(`{"resourceSubscriptions":[7]}`), "mcp sub admin hidden"},
		{listen(`{"resourceSubscriptions":"file:///a"}`), "mcp sub admin hidden"},
		{listen(`{"resourceSubscriptions":["` + strings.Repeat("x", maxNameBytes) + `"]}`), "mcp sub admin hidden"},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete_x"}},{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a_secret1"}}]`, "mcp read delete secret"},
	} {
		messages, faults := jsonrpc.Decode([]byte(test.messages), true, 0, 0)
		if len(faults) > 0 {
			t.Fatal(faults[0])
		}
		got := p.ScopesForMessages(messages...)
		w := strings.Fields(test.want)
		slices.Sort(got)
		slices.Sort(w)
		if !slices.Equal(got, w) {
			t.Errorf("%s: needs %q, want %q", test.messages, got, w)
		}
	}
	if got := scopesForMethod(p, "tools/call", "delete_x"); auth.JoinScope(got) != "mcp read delete" {
		t.Errorf("needs %q", got)
	}
	if scopesForMethod(nil, "tools/call", "x") != nil || !(*Policy)(nil).Covers(nil, nil) {
		t.Error("no policy needs something")
	}
}

func TestPolicyImplies(t *testing.T) {
	t.Parallel()
	p := parsePolicy(t, testPolicy)
	for _, test := range []struct {
		have, needed string
		ok           bool
	}{
		{"read", "read", true}, {"", "read", false}, {"admin", "read write delete secret", true}, {"admin", "mcp", false},
		{"delete", "secret", false}, {"write", "read", true}, {"read", "write", true}, {"read delete", "secret", false}, {"", "", true},
	} {
		if p.Covers(strings.Fields(test.have), strings.Fields(test.needed)) != test.ok {
			t.Errorf("%q for %q: want %v", test.have, test.needed, test.ok)
		}
	}
}

func TestPolicyLineErrors(t *testing.T) {
	t.Parallel()
	const note, second, characters, line = "a note stands on a line of its own", "a second", "characters of ASCII", "write METHOD -> SCOPE"
	for text, want := range map[string]string{
		"tools/call": line, "tools/call ->": line, "-> a": line, "ping b c -> d": line, "ping => b": line, "implies -> a": "write implies", "implies a b -> c": line,
		"method -> a": "write method METHOD -> SCOPE", "method a b c -> d": line,
		`ping -> "b"`: characters, `ping -> b\c`: characters, "ping -> b\u00e9": characters, `implies " -> c`: characters, "ping -> \u2192 a": characters,
		"tools/call -> a -> b": second, "implies a -> b -> c": second, "tools/call a -> b tools/list -> c": second, "method x -> a -> b": second,
		"tools/call -> a->b": "spaces around", "tools/call -> a, b": "no commas",
		"tools/call -> a # note": note, "tools/call -> a #note": note, "implies a -> b # note": note, "implies #a -> b": note,
		"tool/call -> a": "did you mean tools/call?", "Tools/Call -> a": "did you mean tools/call?", "tools/cal x -> a": "did you mean tools/call?",
		"tools_list -> a": "did you mean tools/list?", "resource/read -> a": "did you mean resources/read?", "notifications/canceled -> a": "did you mean notifications/cancelled?",
		"acme/search -> a": "method acme/search -> SCOPE", "sampling/createMessage -> a": "no method that clients send", "tools/* -> a": "a line for each method",
		"tools/list x* -> a": "write tools/list -> SCOPE", "tasks/cancel job-* -> a": "write tasks/cancel -> SCOPE", "method ping x -> a": "write ping -> SCOPE",
		"subscriptions/listen file:* -> a":       "or resources/subscribe file:* -> SCOPE",
		"ping -> " + strings.Repeat("x", 70<<10): "longer than", strings.Repeat("ping -> b\n", maxPolicyRules+1): "more than",
	} {
		_, err := ParsePolicy("# first\n" + text)
		wrong, ok := errors.AsType[*PolicyLineError](err)
		if !ok || !strings.Contains(err.Error(), want) || wrong.LineNumber != 2+strings.Count(strings.TrimSuffix(text, "\n"), "\n") {
			t.Errorf("%.50q: %v, want %q", text, err, want)
		}
	}
}

// scopesForMethod returns the scopes that a message of this method needs, which names a tool, a prompt or a resource.
func scopesForMethod(p *Policy, method, name string) []string {
	return p.addNeededScopes(nil, method, func(pattern string) bool { return matchesPattern(pattern, name) })
}

// TestPolicyOwnMethods shows that methods that the protocol does not have are possible, for who means them.
func TestPolicyOwnMethods(t *testing.T) {
	t.Parallel()
	p := parsePolicy(t, "  # indented\nmethod acme/search -> a\nmethod tool/call x* -> b c\nmethod method -> d\nmethod implies -> e\nmethod ping -> f\n\ntools/call #1 -> g\ntools/list * -> h,i")
	for call, want := range map[string]string{
		"acme/search": "a", "tool/call xy": "b c", "tool/call y": "", "method": "d", "implies": "e", "ping": "f", "tools/call #1": "g", "tools/call": "", "tools/list": "h,i",
	} {
		method, name, _ := strings.Cut(call, " ")
		if got := auth.JoinScope(scopesForMethod(p, method, name)); got != want {
			t.Errorf("%s needs %q, want %q", call, got, want)
		}
	}
}

// TestAuthorize shows the challenge of messages that need more: one, with the scopes of all.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	p, as, _ := setup(t, func(_ *provider, o *Options) {
		o.Policy = parsePolicy(t, testPolicy)
		o.StaticKeys = parseTokens(t, "ci 0123456789abcdefghijkl")
	})
	messages, _ := jsonrpc.Decode([]byte(`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_x"}},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a_secret1"}}]`), true, 0, 0)
	for token, scopes := range map[string]string{
		as.token(t, nil): "mcp read delete secret", as.token(t, map[string]any{"scope": "mcp admin"}): "", "0123456789abcdefghijkl": "",
	} {
		h := http.Header{}
		r, no := p.Authenticate(h, request(http.MethodPost, "/mcp", "Bearer "+token))
		if no != nil {
			t.Fatal(no)
		}
		no = p.Authorize(h, r, messages...)
		if scopes == "" {
			if no != nil || len(h) > 0 {
				t.Errorf("refused: %v %v", no, h)
			}
			continue
		}
		challenges, err := auth.ParseChallenges(h.Values("WWW-Authenticate"))
		d := auth.DemandOf(challenges)
		if err != nil || no == nil || no.Status != 403 || d.ErrorCode != "insufficient_scope" || auth.JoinScope(d.Scopes) != scopes || d.ResourceMetadata != public+metadataPathPrefix+"/mcp" {
			t.Errorf("%v %v", no, h)
		}
		answer, refused := p.Forbidden(r, messages[0])
		if !refused || answer.ID() != jsonrpc.IntID(1) || string(answer.Lookup("error", "data")) != `{"reason":"insufficient_scope","scope":"mcp read delete"}` {
			t.Errorf("answer %s", answer.Bytes())
		}
		notification, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"delete_x"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if reply, refused := p.Forbidden(r, notification); !refused || reply.Kind() != jsonrpc.Invalid {
			t.Error("a notification is answered, or taken")
		}
		answer = InsufficientScopeReply(jsonrpc.IntID(1), p.ScopesToDemand(r.Context(), messages...))
		if got := string(answer.Lookup("error", "data")); got != `{"reason":"insufficient_scope","scope":"`+scopes+`"}` {
			t.Errorf("data %s", got)
		}
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add(testPolicy, "tools/call", "delete_x")
	f.Add("implies a -> b\nimplies b -> a", "*", "")
	f.Add("method a *?*?* -> b", "a", "xyz")
	f.Fuzz(func(t *testing.T, text, method, name string) {
		p, err := ParsePolicy(text)
		if err != nil {
			if p != nil {
				t.Error("a policy and an error")
			}
			return
		}
		needed := scopesForMethod(p, method, name)
		for _, s := range needed {
			if !isScope(s) {
				t.Errorf("%q is no scope", s)
			}
		}
		if !p.Covers(needed, needed) || len(needed) > 0 && p.Covers(nil, needed) {
			t.Error("what is needed is not what is enough")
		}
		if !matchesPattern("*", name) || !strings.ContainsAny(name, "*?") && strings.ToValidUTF8(name, "") == name && !matchesPattern(name, name) {
			t.Errorf("%q does not match itself", name)
		}
	})
}
