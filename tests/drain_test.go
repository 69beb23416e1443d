package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// drainConfig is a server "a" that waits so long for calls when it has to go,
// in a version of its configuration, and one that has nothing to do with it.
func drainConfig(drain string, version int) string {
	a := fmt.Sprintf(`"a": {"command": %s, "args": ["demo"], "env": {"VERSION": "%d"}, "description": "version %[2]d", "mcp-bridge": {"drainTimeout": %[3]q}},`,
		quote(bridgeBin), version, drain)
	if version < 0 {
		a = ""
	}
	return fmt.Sprintf(`{"mcpServers": {%s "b": {"command": %s, "args": ["demo"], "description": "other"}}}`, a, quote(bridgeBin))
}

// served asks the index which servers there are, and their descriptions.
func served(t testing.TB, s *site) map[string]string {
	t.Helper()
	resp := s.ask(t, http.MethodGet, "/servers", "", nil)
	var index struct {
		Servers []struct{ Name, Description string }
	}
	if err := json.Unmarshal([]byte(resp.body), &index); err != nil || resp.status != http.StatusOK {
		t.Fatalf("/servers: %v %v", resp, err)
	}
	names := map[string]string{}
	for _, server := range index.Servers {
		names[server.Name] = server.Description
	}
	return names
}

// TestReloadDrains: a call in progress at a server that the new configuration
// changes, or does not have, still gets its progress and its answer; then the
// session is over, as its transport says it. A call that takes longer than
// drainTimeout is answered with an error. New clients have the new server meanwhile.
func TestReloadDrains(t *testing.T) {
	t.Parallel()
	finished := func(e lastWords) bool {
		return e.err == nil && strings.Contains(e.answer, `"result"`) && strings.Contains(e.answer, "done") && e.steps == 4
	}
	cutShort := func(e lastWords) bool {
		return e.err == nil && strings.Contains(e.answer, `"id":7,"error"`)
	}
	for name, c := range map[string]struct {
		version int // of the next configuration
		drain   string
		seconds int // that the call takes
		want    func(lastWords) bool
	}{
		"changed":  {2, "30s", 2, finished},
		"removed":  {-1, "30s", 2, finished},
		"too long": {2, "200ms", 300, cutShort},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := configFile(t, drainConfig(c.drain, 1))
			s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--config", file)
			front := newSite(t, "http://"+s.host())
			other := front.at("/servers/b").mustOpen(t, "mcp")
			sessions, calls := map[string]talker{}, map[string]<-chan lastWords{}
			for _, transport := range transports {
				sessions[transport] = front.at("/servers/a").mustOpen(t, transport)
				calls[transport] = inProgress(t, sessions[transport], c.seconds)
			}
			want := map[string]string{"b": "other"}
			if c.version > 0 {
				want["a"] = fmt.Sprintf("version %d", c.version)
			}
			replaceFile(t, file, drainConfig(c.drain, c.version))
			harness.WaitUntil(t, "the new configuration", func() bool { return maps.Equal(served(t, front), want) })
			for _, transport := range transports {
				fresh, err := front.at("/servers/a").open(t.Context(), transport)
				if r, ok := errors.AsType[*refusal](err); c.version < 0 && (!ok || r.status != http.StatusNotFound) || c.version > 0 && err != nil {
					t.Errorf("%s: a new client: %v", transport, err)
				}
				if err == nil {
					mustAnswer(t, fresh, ping)
					fresh.close()
				}
			}
			for _, transport := range transports {
				if e := recv(t, calls[transport]); !c.want(e) {
					t.Errorf("%s: the call in progress was answered with %.300s (%v) after %d steps", transport, e.answer, e.err, e.steps)
				}
				isOver(t, sessions[transport])
			}
			mustAnswer(t, other, ping)
		})
	}
}

// lastWords are what came of a call, and how often progress was heard before.
type lastWords struct {
	answer string
	steps  int
	err    error
}

// inProgress makes a call of so many seconds, with a step every half of one,
// and returns when the first has been made.
func inProgress(t *testing.T, c talker, seconds int) <-chan lastWords {
	t.Helper()
	return begin(t, c, demoCall("7", fmt.Sprint(seconds), 2*seconds))
}

// begin makes a call and returns when the first step has been made.
func begin(t *testing.T, c talker, call string) <-chan lastWords {
	t.Helper()
	begun, ended := make(chan string, 1), make(chan lastWords, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		var e lastWords
		e.answer, e.err = c.exchange(ctx, call, func(m string) {
			if e.steps++; e.steps == 1 {
				begun <- m
			}
		})
		if e.steps == 0 {
			begun <- "none came, but " + e.answer
		}
		ended <- e
	}()
	if first := recv(t, begun); !strings.Contains(first, `"progress":1,`) {
		t.Fatalf("instead of the first step there was: %s", first)
	}
	return ended
}

// demoCall is a call that takes a moment, with progress after each step.
func demoCall(id, seconds string, steps int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":%s,"steps":%d},"_meta":{"progressToken":"p%[1]s"}}}`, id, seconds, steps)
}

// isOver checks that a session has ended in the way of its transport.
func isOver(t *testing.T, c talker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	switch c := c.(type) {
	case *httpTalker:
		harness.WaitUntil(t, "the session to be gone", func() bool {
			_, err := c.exchange(ctx, ping, nil)
			r, ok := errors.AsType[*refusal](err)
			return ok && r.status == http.StatusNotFound
		})
	case *sseTalker:
		stop := time.AfterFunc(harness.Patience, c.cancel)
		defer stop.Stop()
		if e, err := c.in.next(); err == nil {
			t.Errorf("the event stream goes on with %+v", e)
		} else if c.notify(ctx, ping) == nil {
			t.Error("the stream has ended, and the session takes messages")
		}
	case *wsTalker:
		if _, data, err := c.conn.Read(ctx); err == nil {
			t.Errorf("the WebSocket goes on with %s", data)
		}
	}
}
