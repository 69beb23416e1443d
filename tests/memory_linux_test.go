package tests

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// most is how much resident memory, in bytes, docs/limits.md says that a bridge needs
// at most for what clients send, with messages of up to size bytes.
func most(size int) int { return 2*(5*size+20<<20) + 64<<20 }

var highWater = regexp.MustCompile(`VmHWM:\s*(\d+) kB`)

// checkMemory compares the most memory that a bridge has had with what it may.
func checkMemory(t *testing.T, p *proc, size int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	bridgetest.Must(t, err)
	kB, err := strconv.Atoi(string(highWater.FindSubmatch(status)[1]))
	bridgetest.Must(t, err)
	t.Logf("%d MiB at most, and %d may be", kB>>10, most(size)>>20)
	if kB<<10 > most(size) && !harness.RaceEnabled {
		t.Errorf("the bridge has had %d MiB, and may have %d", kB>>10, most(size)>>20)
	}
}

// filler is size bytes for the inside of a JSON string.
func filler(size int) io.Reader {
	return io.LimitReader(repeated{}, int64(size))
}

type repeated struct{}

func (repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// postFilled POSTs a message with size bytes between two parts of it, calls sent,
// and returns the reply, which stays open until the test ends.
func (s *site) postFilled(t *testing.T, sent func(), header http.Header, before string, size int, after string) *http.Response {
	body := io.MultiReader(strings.NewReader(before), filler(size), strings.NewReader(after))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent() }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/mcp", body)
	if err != nil {
		t.Error(err)
		return nil
	}
	req.ContentLength = int64(len(before) + size + len(after))
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	for _, h := range []http.Header{s.header, header} {
		for k, v := range h {
			req.Header[k] = v
		}
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil // it was refused before it was read
	}
	return resp
}

const metaModern = `"_meta":{"` + metaVersion + `":"` + modernVersion + `","` + metaCaps + `":{}}`

func modernHeader(method, name string) http.Header {
	h := http.Header{"Mcp-Protocol-Version": {modernVersion}, "Mcp-Method": {method}}
	if name != "" {
		h.Set("Mcp-Name", name)
	}
	return h
}

// TestMemoryOpenRequests: what an open request makes the bridge keep is counted in
// bytes for as long as it is kept, and one client holds no more than its share of
// what there is, whichever part of its messages is long. The other is served.
func TestMemoryOpenRequests(t *testing.T) {
	t.Parallel()
	const size, each, requests = 8 << 20, 8<<20 - 4<<10, 32
	long := strings.Repeat("u", 200)
	for _, tt := range []struct {
		name, speak, method, tool string
		before, after             func(i int) string
	}{
		{"long ids", "", "", "",
			func(i int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","method":"hang","id":"%d`, i) },
			func(int) string { return `"}` }},
		{"long tokens", "", "", "",
			func(i int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","method":"hang","id":%d,"params":{"_meta":{"progressToken":"%d`, i, i)
			},
			func(int) string { return `"}}}` }},
		{"long arguments", "", "", "",
			func(i int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","method":"hang","id":%d,"params":{"x":"`, i)
			},
			func(int) string { return `"}}` }},
		{"modern, long arguments for an older server", "legacy", "tools/call", "hang",
			func(i int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","method":"tools/call","id":%d,"params":{%s,"name":"hang","arguments":{"x":"`, i, metaModern)
			},
			func(int) string { return `"}}}` }},
		{"modern, long arguments", "modern", "tools/call", "hang",
			func(i int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","method":"tools/call","id":%d,"params":{%s,"name":"hang","arguments":{"x":"`, i, metaModern)
			},
			func(int) string { return `"}}}` }},
		{"modern, long ids", "modern", "tools/call", "hang",
			func(i int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","method":"tools/call","params":{%s,"name":"hang","arguments":{}},"id":"%d`, metaModern, i)
			},
			func(int) string { return `"}` }},
		{"listens with long URIs", "modern", "subscriptions/listen", "",
			func(i int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{%s,"notifications":{"resourceSubscriptions":["a:%d`, i, metaModern, i)
			},
			func(int) string { return `"]}}}` }},
		{"listens with long URIs, an older server", "legacy", "subscriptions/listen", "",
			func(i int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{%s,"notifications":{"resourceSubscriptions":["a:%d`, i, metaModern, i)
			},
			func(int) string { return `"]}}}` }},
		{"listens with junk", "modern", "subscriptions/listen", "",
			func(i int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{%s,"notifications":{"resourceSubscriptions":["a:%s"]},"junk":"`, i, metaModern, long)
			},
			func(int) string { return `"}}` }},
		{"listens with junk, an older server", "legacy", "subscriptions/listen", "",
			func(i int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{%s,"notifications":{"resourceSubscriptions":["a:%s"]},"junk":"`, i, metaModern, long)
			},
			func(int) string { return `"}}` }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			argv := []string{bridgeBin, "serve", "--listen", "127.0.0.1:0", "--max-message-size", strconv.Itoa(size),
				"--token-file", tokenFile(t, "ann "+annToken, "bob "+bobToken), "--", childBin}
			if tt.speak != "" {
				argv = append(argv, "-speak", tt.speak)
			}
			server := serveArgv(t, nil, argv...)
			ann, bob := server.site().bearer(annToken), server.site().bearer(bobToken)
			header := modernHeader(tt.method, tt.tool)
			if tt.speak == "" {
				header = ann.mustOpen(t, "mcp").(*httpTalker).headers()
			}
			var wg sync.WaitGroup
			var mu sync.Mutex
			statuses := map[int]int{}
			turn := make(chan struct{}, 1) // to send
			for i := range requests {
				turn <- struct{}{}
				wg.Go(func() {
					status := http.StatusServiceUnavailable
					for try := range 10 {
						if try > 0 {
							turn <- struct{}{}
						}
						sent := sync.OnceFunc(func() { <-turn })
						resp := ann.postFilled(t, sent, header, tt.before(i), each, tt.after(i))
						sent()
						if resp != nil && resp.StatusCode != status {
							status = resp.StatusCode
							break
						}
					}
					mu.Lock()
					defer mu.Unlock()
					statuses[status]++
				})
			}
			wg.Wait()
			t.Logf("statuses: %v", statuses)
			if tt.speak == "" {
				mustAnswer(t, bob.mustOpen(t, "mcp"), `{"jsonrpc":"2.0","id":1,"method":"echo"}`)
			} else {
				call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + metaModern + `,"name":"echo","arguments":{}}}`
				if answer := mustAnswer(t, &modernTalker{bob}, call); !strings.Contains(answer, `"result"`) {
					t.Errorf("the other is answered %s", answer)
				}
			}
			checkMemory(t, server.proc, size)
		})
	}
}

// TestMemoryLines: lines over a Unix socket that do not end take no more than
// there is for all that clients send, also where they are only there to be refused.
func TestMemoryLines(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	for _, tt := range []struct {
		name   string
		tokens bool
		first  string // what each client says before
		length int    // of its line
	}{
		{"that are refused", true, "", 30 << 20},
		{"before the first message", false, "", 30 << 20},
		{"after it", false, initialized + "\n", size - 1<<10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(socketDir(t), "s")
			args := []string{"--listen", "unix:" + path, "--max-message-size", strconv.Itoa(size)}
			if tt.tokens {
				args = append(args, "--token-file", tokenFile(t, "ann "+annToken))
			}
			p, _ := startServe(t, nil, 1, append(args, "--", childBin)...)
			var wg sync.WaitGroup
			for range 10 + 30*min(len(tt.first), 1) {
				conn, err := net.Dial("unix", path)
				bridgetest.Must(t, err)
				defer conn.Close()
				wg.Go(func() { // it may be cut off
					_, _ = io.Copy(conn, io.MultiReader(strings.NewReader(tt.first+`{"x":"`), filler(tt.length)))
				})
			}
			wg.Wait()
			if !tt.tokens {
				mustAnswer(t, mustLines(t, path), `{"jsonrpc":"2.0","id":1,"method":"echo"}`)
			}
			checkMemory(t, p, size)
		})
	}
}
