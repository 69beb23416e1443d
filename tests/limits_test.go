package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// nested is an array of so many levels.
func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// deepCall is a request of so many levels in all. Its answer has as many.
func deepCall(levels int) string {
	return `{"jsonrpc":"2.0","method":"echo","params":{"a":` + nested(levels-2) + `},"id":7}`
}

// refusedWith sends what must be refused and returns the error, whichever way the transport tells it.
func refusedWith(t testing.TB, c talker, message string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	answer, err := c.exchange(ctx, message, nil)
	if no, ok := errors.AsType[*refusal](err); ok {
		if no.status != http.StatusBadRequest {
			t.Errorf("the status is %d, want 400: %s", no.status, no.body)
		}
		return no.body
	}
	bridgetest.Must(t, err)
	return answer
}

// waysIn opens a session on every transport, of a child of its own that records what it reads.
func waysIn(t *testing.T, flags []string, test func(t *testing.T, c talker, p *proc, recorded func() string)) {
	for _, over := range append([]string{"stdio", "unix"}, transports...) {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			record := filepath.Join(t.TempDir(), "stdin")
			recorded := func() string {
				read, err := os.ReadFile(record)
				bridgetest.Must(t, err)
				return string(read)
			}
			switch {
			case over == "unix" && runtime.GOOS == "windows":
				t.Skip("needs Unix sockets")
			case over == "unix":
				path := filepath.Join(socketDir(t), "s")
				p, _ := startServe(t, nil, 1, append(append([]string{"--listen", "unix:" + path}, flags...), "--", childBin, "-record", record)...)
				test(t, mustLines(t, path), p, recorded)
				return
			case over == "stdio":
				p := start(t, nil, append(append([]string{bridgeBin, "connect"}, flags...), "--", childBin, "-record", record)...)
				p.handshake("2025-06-18")
				test(t, stdioTalker{p}, p, recorded)
				return
			}
			s := serve(t, flags, "-record", record)
			test(t, s.site().mustOpen(t, over), s.proc, recorded)
		})
	}
}

// J14: a message with more levels than --max-depth is refused with its id before the server sees
// anything of it, on every way in; one that has just as many passes, and the session goes on.
func TestMaxDepth(t *testing.T) {
	t.Parallel()
	waysIn(t, nil, func(t *testing.T, c talker, _ *proc, recorded func() string) {
		for _, levels := range []int{1001, 100_000} {
			if id, code, text := errorOf(t, refusedWith(t, c, deepCall(levels))); id != "7" || code != -32600 || !strings.Contains(text, "--max-depth") {
				t.Errorf("%d levels: the answer has id %s and code %d: %s", levels, id, code, text)
			}
		}
		want := `{"jsonrpc":"2.0","id":7,"result":{"a":` + nested(998) + `}}`
		if got := mustAnswer(t, c, deepCall(1000)); got != want {
			t.Errorf("1000 levels are answered with %.200s", got)
		}
		if strings.Contains(recorded(), nested(999)) {
			t.Error("the server has got it")
		}
	})
}

// J14 for clients of 2026-07-28, which have no session.
func TestMaxDepthModern(t *testing.T) {
	t.Parallel()
	s := serve(t, nil, "-speak", "modern").site()
	call := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":` + nested(1000) +
		`},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	h := http.Header{"Mcp-Protocol-Version": {modernVersion}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"echo"}}
	no := s.ask(t, http.MethodPost, "/mcp", call, h)
	if id, code, text := errorOf(t, no.body); no.status != http.StatusBadRequest || id != "7" || code != -32600 || !strings.Contains(text, "--max-depth") {
		t.Errorf("over HTTP: status %d, id %s, %s", no.status, id, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	c, err := s.openWS(ctx)
	bridgetest.Must(t, err)
	defer c.close()
	if id, code, text := errorOf(t, mustAnswer(t, c, call)); id != "7" || code != -32600 || !strings.Contains(text, "--max-depth") {
		t.Errorf("over WebSocket: id %s, %s", id, text)
	}
}

// J14, LI12: in a batch each message counts by itself, without the array around them.
func TestMaxDepthBatch(t *testing.T) {
	t.Parallel()
	batch := "[" + deepCall(1001) + "," + strings.Replace(deepCall(1000), `"id":7`, `"id":8`, 1) + "]"
	check := func(t *testing.T, answers string) {
		t.Helper()
		if !strings.Contains(answers, `--max-depth`) || !strings.Contains(answers, `"id":8,"result":{"a":`+nested(998)) {
			t.Errorf("the batch is answered with %.300s", answers)
		}
	}
	t.Run("mcp", func(t *testing.T) {
		t.Parallel()
		c := serve(t, nil).open("2025-03-26")
		check(t, strings.Join(c.call(batch), "\n"))
	})
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		p := start(t, nil, bridgeBin, "connect", "--", childBin)
		p.handshake("2025-03-26")
		p.send(batch)
		check(t, p.line()+"\n"+p.line())
	})
}

// J14: what a server says with too many levels does not reach the client: whoever waits for it gets an
// error, and the log tells of the rest.
func TestMaxDepthOfServers(t *testing.T) {
	t.Parallel()
	waysIn(t, []string{"--max-depth", "50"}, func(t *testing.T, c talker, p *proc, _ func() string) {
		answer := mustAnswer(t, c, emit("1", `{"jsonrpc":"2.0","id":$ID,"result":{"a":`+nested(49)+`}}`))
		if id, code, text := errorOf(t, answer); id != "1" || code != -32603 || !strings.Contains(text, "--max-depth") {
			t.Errorf("the call is answered with id %s, %s", id, text)
		}
		var heard []string
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		answer, err := c.exchange(ctx, emit("2", `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":`+nested(49)+`}}`,
			`{"jsonrpc":"2.0","id":$ID,"result":{"a":`+nested(48)+`}}`), func(m string) { heard = append(heard, m) })
		if err != nil || answer != `{"jsonrpc":"2.0","id":2,"result":{"a":`+nested(48)+`}}` || len(heard) > 0 {
			t.Errorf("the client got %q and the answer %s, %v", heard, answer, err)
		}
		p.waitLog(regexp.MustCompile(`output of the server skipped.*--max-depth`))
	})
}

// J14 for what comes from a remote server, over each transport.
func TestMaxDepthOfRemote(t *testing.T) {
	t.Parallel()
	deep := serve(t, []string{"--max-depth", "5000"}).site()
	lone := strings.Replace(deep.base, "http:", "ws:", 1) + "/ws"
	for name, args := range map[string][]string{
		"http": {deep.base + "/mcp", "--transport", "http-only"}, "sse": {deep.base + "/sse", "--transport", "sse-only"}, "ws": {lone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, nil, append([]string{bridgeBin, "connect"}, args...)...)
			p.handshake("2025-06-18")
			c := stdioTalker{p}
			for _, before := range []string{"", `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`} {
				lines := []string{`{"jsonrpc":"2.0","id":$ID,"result":{"a":` + nested(999) + `}}`}
				if before != "" {
					lines = append([]string{before}, lines...)
				}
				if id, _, text := errorOf(t, mustAnswer(t, c, emit("1", lines...))); id != "1" || !strings.Contains(text, "--max-depth") {
					t.Errorf("the call is answered with id %s, %s", id, text)
				}
			}
			mustAnswer(t, c, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		})
	}
}

// J14: the limit is a setting of each server in a configuration file.
func TestMaxDepthConfigured(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.json")
	text := fmt.Sprintf(`{"mcpServers":{"low":{"command":%q,"mcp-bridge":{"maxDepth":10}},"usual":{"command":%q}}}`, childBin, childBin)
	bridgetest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--config", file).site()
	s = newSite(t, strings.TrimSuffix(s.base, "/servers"))
	if id, code, text := errorOf(t, refusedWith(t, s.at("/servers/low").mustOpen(t, "ws"), deepCall(11))); id != "7" || code != -32600 {
		t.Errorf("the answer has id %s: %s", id, text)
	}
	if got := mustAnswer(t, s.at("/servers/usual").mustOpen(t, "ws"), deepCall(11)); !strings.Contains(got, "result") {
		t.Error(got)
	}
}

// J15: an id, a method, a progress token and the id of what is cancelled have 1 KiB. What has more is
// refused with a text that names the field, no id that is too long is repeated, and the session goes on.
func TestLongNames(t *testing.T) {
	t.Parallel()
	long, fits := quote(strings.Repeat("x", 1025)), quote(strings.Repeat("x", 1024))
	waysIn(t, nil, func(t *testing.T, c talker, _ *proc, recorded func() string) {
		for _, bad := range []struct{ field, id, message string }{
			{"the id", "null", `{"jsonrpc":"2.0","id":` + long + `,"method":"ping"}`},
			{"the id", "null", `{"jsonrpc":"2.0","id":1` + strings.Repeat("0", 1024) + `,"method":"ping"}`},
			{"the method", "1", `{"jsonrpc":"2.0","id":1,"method":` + long + `}`},
			{"the progress token", "1", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":` + long + `}}}`},
		} {
			if id, code, text := errorOf(t, refusedWith(t, c, bad.message)); id != bad.id || code != -32600 || !strings.Contains(text, bad.field+" is longer than 1024 bytes") {
				t.Errorf("%s: the answer has id %s, %s", bad.field, id, text)
			}
		}
		call := `{"jsonrpc":"2.0","id":` + fits + `,"method":"ping","params":{"_meta":{"progressToken":` + fits + `}}}`
		if got, want := mustAnswer(t, c, call), `{"jsonrpc":"2.0","id":`+fits+`,"result":{}}`; got != want {
			t.Errorf("what just fits is answered with %.200s", got)
		}
		if strings.Contains(recorded(), strings.Trim(long, `"`)) {
			t.Error("the server has got what is too long")
		}
	})
}

// J15: a cancellation whose id is spelled otherwise is compared with all that are open, so it is bounded.
// Over HTTP it is refused; elsewhere, where a notification is never answered, it goes no further.
func TestLongCancellation(t *testing.T) {
	t.Parallel()
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"` + strings.Repeat(`\u0078`, 8363) + `"}}`
	answer := `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1025) + `","result":{}}`
	waysIn(t, nil, func(t *testing.T, c talker, _ *proc, recorded func() string) {
		for field, message := range map[string]string{"params.requestId": cancel, "the id": answer} {
			ctx, stop := context.WithTimeout(t.Context(), harness.Patience)
			defer stop()
			err := c.notify(ctx, message)
			if no, ok := errors.AsType[*refusal](err); ok {
				if no.status != http.StatusBadRequest || !strings.Contains(no.body, field+" is longer than 1024 bytes") {
					t.Errorf("refused with %v", no)
				}
			} else if _, posts := c.(*httpTalker); posts || err != nil {
				t.Errorf("got %v, want status 400", err)
			}
		}
		mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		if got := recorded(); strings.Contains(got, "cancelled") || strings.Contains(got, "xxx") {
			t.Error("the server has got it")
		}
	})
}

// J15: what a server sends with names that are too long is logged and goes no further. The id of an answer
// may be spelled longer than the request's was.
func TestLongNamesOfServers(t *testing.T) {
	t.Parallel()
	long := quote(strings.Repeat("x", 1025))
	id := quote(strings.Repeat("é", 500))
	escaped := `"` + strings.Repeat(`\u00e9`, 500) + `"`
	waysIn(t, nil, func(t *testing.T, c talker, p *proc, _ func() string) {
		var heard []string
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		answer, err := c.exchange(ctx, emit(id, `{"jsonrpc":"2.0","id":`+long+`,"result":{}}`, `{"jsonrpc":"2.0","id":`+long+`,"method":"ping"}`,
			`{"jsonrpc":"2.0","method":`+long+`}`, `{"jsonrpc":"2.0","id":`+escaped+`,"result":{}}`), func(m string) { heard = append(heard, m) })
		if want := `{"jsonrpc":"2.0","id":` + id + `,"result":{}}`; err != nil || answer != want || len(heard) > 0 {
			t.Errorf("the client got %q and the answer %.200s, %v", heard, answer, err)
		}
		p.waitLog(regexp.MustCompile(`output of the server skipped.* is longer than 1024 bytes`))
	})
}
