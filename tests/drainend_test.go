package tests

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestShutdownEndsDrains: SIGTERM bounds every wait for calls in progress by
// --grace, also that for a server which a new configuration has removed, whose
// calls were given far longer until then. They are answered with an error, and
// the log counts what drains.
func TestShutdownEndsDrains(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"auto", "shared", "request"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			server := func(name string) string {
				return fmt.Sprintf(`%q: {"command": %s, "args": ["-speak", "legacy"], "mcp-bridge": {"drainTimeout": "1h", "grace": "1s", "isolation": %q}}`,
					name, quote(childBin), isolation)
			}
			file := configFile(t, `{"mcpServers": {`+server("a")+`,`+server("b")+`}}`)
			s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--config", file)
			front := newSite(t, "http://"+s.host())
			const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{"ms":3600000,"n":36000},"_meta":{"progressToken":"p7"}}}`
			calls := map[string]<-chan lastWords{"modern": begin(t, modernCaller{&modernTalker{front.at("/servers/a")}}, call)}
			for _, transport := range transports {
				c := front.at("/servers/a").mustOpen(t, transport)
				if ws, ok := c.(*wsTalker); ok {
					c = politeTalker{ws}
				}
				calls[transport] = begin(t, c, call)
			}
			replaceFile(t, file, `{"mcpServers": {`+server("b")+`}}`)
			s.waitLog(regexp.MustCompile(`configuration loaded: servers=1`))
			began := time.Now()
			s.signal(syscall.SIGTERM)
			if code := s.wait(); code != 0 {
				t.Errorf("exit status %d, want 0", code)
			}
			t.Logf("with a grace of one second it took %v", time.Since(began).Round(10*time.Millisecond))
			for transport, c := range calls {
				if e := recv(t, c); e.err != nil || !strings.Contains(e.answer, `"id":7,"error"`) {
					t.Errorf("%s: the call in progress was answered with %.300s (%v), want an error", transport, e.answer, e.err)
				}
			}
			if !regexp.MustCompile(`shutting down.* draining_servers=1 draining_sessions=[1-9]`).MatchString(s.Log()) {
				t.Error("the log does not count what drains")
			}
		})
	}
}

// modernCaller makes of each call one of 2026-07-28.
type modernCaller struct{ *modernTalker }

func (c modernCaller) exchange(ctx context.Context, request string, heard func(string)) (string, error) {
	meta := fmt.Sprintf(`"_meta":{%q:%q,%q:{},`, metaVersion, modernVersion, metaCaps)
	return c.modernTalker.exchange(ctx, strings.Replace(request, `"_meta":{`, meta, 1), heard)
}

// politeTalker answers the end of its WebSocket: it reads on after the answer.
type politeTalker struct{ *wsTalker }

func (c politeTalker) exchange(ctx context.Context, request string, heard func(string)) (string, error) {
	answer, err := c.wsTalker.exchange(ctx, request, heard)
	if err == nil {
		_, _, _ = c.conn.Read(ctx)
	}
	return answer, err
}
