package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestServerInheritsNothing: a server has stdin, stdout and stderr of the
// bridge, and nothing else of it: no listener, no client's connection, no pipe of
// another server, no file.
func TestServerInheritsNothing(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--pty"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pids")
			socket := filepath.Join(t.TempDir(), "s")
			s := serve(t, append([]string{"--listen", "unix:" + socket}, flags...), "-pids", pids)
			front := s.site()
			for _, over := range []string{"mcp", "mcp", "sse", "ws", "mcp", "ws", "sse"} {
				mustAnswer(t, front.mustOpen(t, over), ping)
			}
			lines, err := openLines(t.Context(), socket)
			bridgetest.Must(t, err)
			t.Cleanup(lines.close)
			mustAnswer(t, lines, ping)
			for _, w := range watch(t, pids, 8) {
				links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", w.pid))
				if err != nil || len(links) < 3 {
					t.Fatal(err, links)
				}
				for _, link := range links {
					to, err := os.Readlink(link)
					number := filepath.Base(link)
					inherited, _ := os.Readlink("/proc/self/fd/" + number) // by the tests, from whoever runs them
					switch {
					case err != nil || strings.HasPrefix(to, "anon_inode:") || strings.Contains(to, "cgroup"): // its runtime's own
					case number == "0" || number == "1" || number == "2":
						if !strings.HasPrefix(to, "pipe:") && !strings.HasPrefix(to, "/dev/pts/") {
							t.Errorf("process %d has %s as its %s", w.pid, to, number)
						}
					case to != inherited:
						t.Errorf("process %d has %s open as %s", w.pid, to, number)
					}
				}
			}
		})
	}
}

// TestForgedLines: what servers and clients say ends up in the log as it is
// meant: one line each, without a control code that a terminal would act on.
func TestForgedLines(t *testing.T) {
	t.Parallel()
	const forged = "2026-01-01T00:00:00.000Z [ERROR] mcp-bridge: forged"
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := serve(t, []string{"--log-format", format, "--log-level", "debug"})
			c := s.site().mustOpen(t, "ws")
			mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"emit","params":{"lines":["noise \u001b[2J\r`+forged+`\u0007","{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{}}"]}}`)
			for _, message := range []string{
				`{"jsonrpc":"2.0","id":"\u001b[2J\n` + forged + `","method":"\u001b]0;x\u0007\n` + forged + `"}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\n` + forged + `"}}`,
				`{"jsonrpc":"2.0","id":2,"method":"exit","params":{"code":3,"lines":["\u001b[31mred\u001b[0m\r` + forged + `\u0000\u0008"]}}`,
			} {
				bridgetest.Must(t, c.notify(within(t, harness.Patience), message))
			}
			for _, h := range []string{"Origin: http://evil\x1b[2J.example", "User-Agent: \x1b[2J", "Mcp-Session-Id: \x1b[2J" + forged} {
				s.raw(t, "POST /mcp HTTP/1.1\r\nHost: localhost\r\n"+h+"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}
			s.stop()
			for line := range strings.Lines(s.Log()) {
				line = strings.TrimSuffix(line, "\n")
				if strings.HasPrefix(line, forged) {
					t.Errorf("a line of the log is forged: %q", line)
				}
				if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }); i >= 0 {
					t.Errorf("the log has a control code: %q", line)
				}
			}
		})
	}
}
