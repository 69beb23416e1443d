package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pagedTools is a remote server of 30 tools on pages of 10. Those with a
// number that can be divided by 3 are named secret_N, the others tool_N.
func pagedTools(t testing.TB) *upstream {
	t.Helper()
	u := newUpstream(t)
	u.answer = func(w http.ResponseWriter, r *http.Request, body string) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Cursor, Name string }
		}
		json.Unmarshal([]byte(body), &m)
		if m.Method != "tools/list" {
			reply(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"called":%q}}`, m.ID, m.Params.Name))
			return
		}
		first, _ := strconv.Atoi(m.Params.Cursor)
		var tools []string
		for n := first; n < first+10; n++ {
			tools = append(tools, fmt.Sprintf(`{ "name" : %q,"inputSchema":{},"x":1.0}`, toolName(n)))
		}
		next := ""
		if first < 20 {
			next = fmt.Sprintf(`,"nextCursor":"%d"`, first+10)
		}
		reply(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]%s}}`, m.ID, strings.Join(tools, ","), next))
	}
	return u
}

func toolName(n int) string {
	if n%3 == 0 {
		return fmt.Sprintf("secret_%d", n)
	}
	return fmt.Sprintf("tool_%d", n)
}

// listTools follows the pages and returns the names on all of them.
func listTools(t testing.TB, c talker) (names []string, pages int) {
	t.Helper()
	for params := "{}"; params != ""; pages++ {
		answer := mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+params+`}`)
		var m struct {
			Result struct {
				Tools      []struct{ Name string }
				NextCursor *string
			}
		}
		if err := json.Unmarshal([]byte(answer), &m); err != nil || !strings.Contains(answer, `"tools":[`) {
			t.Fatalf("tools/list was answered with %.300s (%v)", answer, err)
		}
		for _, tool := range m.Result.Tools {
			names = append(names, tool.Name)
			if want := fmt.Sprintf(`{ "name" : %q,"inputSchema":{},"x":1.0}`, tool.Name); !strings.Contains(answer, want) && strings.HasPrefix(tool.Name, "tool_") {
				t.Errorf("the list does not have %s as the server wrote it: %s", want, answer)
			}
		}
		params = ""
		if m.Result.NextCursor != nil {
			params = `{"cursor":` + quote(*m.Result.NextCursor) + `}`
		}
	}
	return names, pages
}

func callTool(id, name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%s,"arguments":{}}}`, id, quote(name))
}

// TestHiddenTools: a tool that is hidden is on no page of the list, and to call
// it is an error in which the server has no part; every other one is as it was.
// So it is on every transport, from flags and from a file.
func TestHiddenTools(t *testing.T) {
	t.Parallel()
	var shown, some []string
	for n := range 30 {
		if n%3 != 0 {
			shown = append(shown, toolName(n))
		}
		if name := toolName(n); name == "tool_1" || strings.HasPrefix(name, "tool_2") && name != "tool_2" {
			some = append(some, name)
		}
	}
	for _, c := range []struct {
		name     string
		flags    []string
		settings string
		want     []string
	}{
		{"ignore", []string{"--ignore-tool", "secret_*"}, `"ignoreTools":["secret_*"]`, shown},
		{"allow", []string{"--allow-tool", "tool_1", "--allow-tool", "tool_2?", "--allow-tool", "none"}, `"allowTools":["tool_1","tool_2?","none"]`, some},
		{"both", []string{"--allow-tool", "*_1", "--allow-tool", "*_2?", "--ignore-tool", "secret_*"}, `"allowTools":["*_1","*_2?"],"ignoreTools":["secret_*"]`, some},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := pagedTools(t)
			config := filepath.Join(t.TempDir(), "servers.json")
			writeFile(t, config, fmt.Sprintf(`{"mcpServers":{"one":{"url":%q,"mcp-bridge":{%s}}}}`, u.URL, c.settings))
			byFlags := serveArgv(t, nil, append(append([]string{bridgeBin, "serve", "--listen", "127.0.0.1:0"}, c.flags...), u.URL)...)
			byFile := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--config", config)
			for _, transport := range transports {
				checkHidden(t, "serve, "+transport, byFlags.site().mustOpen(t, transport), u, c.want)
				checkHidden(t, "serve --config, "+transport, newSite(t, "http://"+byFile.host()).at("/servers/one").mustOpen(t, transport), u, c.want)
			}
			checkHidden(t, "connect", stdioTalker{connected(t, u, c.flags...)}, u, c.want)
			p := start(t, nil, bridgeBin, "connect", "--config", config, "one")
			p.handshake("2025-06-18")
			checkHidden(t, "connect --config", stdioTalker{p}, u, c.want)
		})
	}
}

func checkHidden(t *testing.T, what string, c talker, u *upstream, want []string) {
	t.Helper()
	names, pages := listTools(t, c)
	if !slices.Equal(names, want) || pages != 3 {
		t.Errorf("%s: %d pages list %q, want 3 with %q", what, pages, names, want)
	}
	if got := mustAnswer(t, c, callTool("2", want[0])); got != fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"result":{"content":[],"called":%q}}`, want[0]) {
		t.Errorf("%s: a call of %s was answered with %s", what, want[0], got)
	}
	for _, hidden := range []string{"secret_3", "secret_27"} {
		if id, code, _ := errorOf(t, mustAnswer(t, c, callTool(`"x"`, hidden))); id != `"x"` || code != -32602 {
			t.Errorf("%s: a call of %s was answered with id %s and code %d, want -32602", what, hidden, id, code)
		}
		// Spelled with an escape it is the same name.
		escaped := strings.Replace(callTool("3", hidden), "secret", `\u0073ecret`, 1)
		if _, code, _ := errorOf(t, mustAnswer(t, c, escaped)); code != -32602 {
			t.Errorf("%s: a call of %s spelled with an escape was answered with code %d", what, hidden, code)
		}
	}
	for _, body := range u.bodies(isMethod("tools/call")) {
		if strings.Contains(body, "ecret") {
			t.Errorf("%s: the server got %s", what, body)
		}
	}
}

// TestHiddenToolsOfACommand: the same for a process, here the demo with its
// own pages.
func TestHiddenToolsOfACommand(t *testing.T) {
	t.Parallel()
	all, pages := listTools(t, serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--demo").site().mustOpen(t, "mcp"))
	if pages < 2 {
		t.Fatalf("the demo lists its tools on %d page: this proves nothing", pages)
	}
	hidden := []string{all[0], all[len(all)-1]} // on the first page and on the last
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--ignore-tool", hidden[0], "--ignore-tool", hidden[1], "--demo").site()
	for _, transport := range transports {
		c := s.mustOpen(t, transport)
		names, _ := listTools(t, c)
		if want := all[1 : len(all)-1]; !slices.Equal(names, want) {
			t.Errorf("%s: the list has %q, want %q", transport, names, want)
		}
		for _, name := range hidden {
			if _, code, _ := errorOf(t, mustAnswer(t, c, callTool("1", name))); code != -32602 {
				t.Errorf("%s: a call of %s was answered with code %d", transport, name, code)
			}
		}
	}
}

// stdioTalker speaks to a process on its stdin and stdout.
type stdioTalker struct{ p *proc }

func (c stdioTalker) exchange(ctx context.Context, request string, heard func(string)) (string, error) {
	if err := c.notify(ctx, request); err != nil {
		return "", err
	}
	for {
		line, err := c.p.readLine()
		switch {
		case err != nil:
			return "", err
		case isAnswer(line):
			return line, nil
		case heard != nil:
			heard(line)
		}
	}
}

func (c stdioTalker) notify(_ context.Context, message string) error {
	_, err := io.WriteString(c.p.Stdin, message+"\n")
	return err
}

func (c stdioTalker) close() { c.p.stop() }
