package streamclient

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// modernTest is a modern Conn with a fakeServer, in a synctest bubble.
type modernTest struct {
	clientTest
	client *ModernClient
	log    *lockedLog
}

// lockedLog is a log that can be read while it is written.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

const (
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	modernURL  = "http://user:pass@fake.test/mcp/secret?key=secret"
)

// testModern runs f in a bubble, with a Conn to a fake server; set prepares both.
func testModern(t *testing.T, set func(s *fakeServer, o *ModernOptions), f func(t *modernTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{t: t, stateless: true}
		transport := &http.Transport{DialContext: s.dial, MaxIdleConnsPerHost: 100, DisableCompression: true}
		var log lockedLog
		opts := ModernOptions{Transport: transport, Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Debug})}
		if set != nil {
			set(s, &opts)
		}
		s.start()
		client := &ModernClient{URL: modernURL, Options: opts}
		conn, err := client.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			conn.Close(nil)
			for _, secret := range []string{"pass", "secret"} {
				if strings.Contains(log.String(), secret) {
					t.Errorf("the log shows a secret: %s", log.String())
				}
			}
			transport.CloseIdleConnections()
			s.stop()
			time.Sleep(24 * time.Hour) // for scripts that sleep
		}()
		f(&modernTest{clientTest{T: t, server: s, conn: conn}, client, &log})
	})
}

// modern returns a request with the _meta of a modern client; params are more
// members of its params, "" for none.
func modern(id, method, params string) string {
	if params != "" {
		params = "," + params
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + modernMeta + params + `}}`
}

// wantRelated receives a message and compares its bytes and what it belongs to.
func (t *modernTest) wantRelated(id, text string) {
	t.Helper()
	got := t.recv()
	if string(got.Bytes()) != text || got.Related().String() != id {
		t.Fatalf("received %s for %s\nwant     %s for %s", got.Bytes(), got.Related(), text, id)
	}
}

// one returns the only request of a method that the server has seen.
func (t *modernTest) one(method string) seenRequest {
	t.Helper()
	seen := t.server.requests(method)
	if len(seen) != 1 {
		t.Fatalf("the server has seen %d requests %s, want 1", len(seen), method)
	}
	return seen[0]
}

// wantSeen checks which methods the server has got, in order, since it was last asked.
func (t *modernTest) wantSeen(methods ...string) {
	t.Helper()
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	var got []string
	for _, r := range t.server.seen {
		got = append(got, r.msg.Method())
	}
	t.server.seen = nil
	if strings.Join(got, " ") != strings.Join(methods, " ") {
		t.Errorf("the server has seen %q, want %q", got, methods)
	}
}

func echoed(id, method string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{"echo":"` + method + `"}}`
}

func writeStatus(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", wire.TypeJSON)
	w.WriteHeader(status)
	io.WriteString(w, text)
}

// failure returns an error response to m.
func failure(m jsonrpc.Message, code, message string) string {
	return `{"jsonrpc":"2.0","id":` + m.ID().String() + `,"error":{"code":` + code + `,"message":"` + message + `"}}`
}

// cut ends the connection in the middle of the reply.
func cut() { panic(http.ErrAbortHandler) }

func cancelOf(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}
