package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/sharing"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// scripted returns the Server of a command whose processes answer what they are
// sent with the lines that say returns; "id":ID stands for the id of it.
func scripted(t *testing.T, spec Spec, say func(m jsonrpc.Message) []string) *Server {
	t.Helper()
	spec.Command = supervisor.Spec{Name: "fake", Path: "fake"}
	s, err := New(spec)
	bridgetest.Must(t, err)
	done := make(chan struct{})
	running := atomic.Int32{}
	running.Add(1)
	leave := func() {
		if running.Add(-1) == 0 {
			close(done)
		}
	}
	d := dialFunc(func(context.Context) (bridge.Conn, error) {
		ours, theirs := bridge.Pipe()
		running.Add(1)
		answers := make(chan jsonrpc.Message, 16)
		running.Add(1)
		go func() { // who sends does the work of the bridge: the server shall not wait for that
			defer leave()
			for answer := range answers {
				_ = theirs.Send(context.Background(), answer)
			}
		}()
		go func() {
			defer leave()
			defer theirs.Close(nil)
			defer close(answers)
			for {
				m, err := bridgetest.Recv(context.Background(), theirs)
				if err != nil {
					return
				}
				for _, line := range say(m) {
					answer, err := jsonrpc.Parse([]byte(strings.Replace(line, `"id":ID`, `"id":`+m.ID().String(), 1)))
					if err != nil {
						panic(line)
					}
					answers <- answer
				}
			}
		}()
		return ours, nil
	})
	s.dialers.lasting, s.dialers.singleSession, s.dialers.modern = d, d, s.wrapDialer(d)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		leave()
		<-done
	})
	return s
}

func annotated(header string) string {
	return `{"tools":[{"name":"x","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"` + header + `"}}}}]}`
}

// MI22: when a legacy server says that its tools have changed, what is known of
// their headers is forgotten, also if no client listens.
func TestToolsChangeUnheard(t *testing.T) {
	var header atomic.Value
	header.Store("Old")
	s := scripted(t, Spec{Protocol: era.OnlyLegacy}, func(m jsonrpc.Message) []string {
		switch m.Method() {
		case "initialize":
			return []string{`{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}}`}
		case "tools/list":
			return []string{`{"jsonrpc":"2.0","id":ID,"result":` + annotated(header.Load().(string)) + `}`}
		case "tools/call":
			header.Store("New")
			return []string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`}
		}
		return nil
	})
	schema := func() string {
		t.Helper()
		got, _ := s.ToolSchema(t.Context(), parse(t, modernCall), "x")
		return string(got)
	}
	if got := schema(); !strings.Contains(got, `"Old"`) {
		t.Fatalf("before: %s", got)
	}
	if m := ask(t, party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{})), modernCall); m.IsError() {
		t.Fatalf("%s", m.Bytes())
	}
	if got := schema(); !strings.Contains(got, `"New"`) {
		t.Errorf("after: %s", got)
	}
}

// MI22, ME4: what a remote server wants as headers by now, clients have to send,
// once a call was refused for its headers.
func TestToolsChangeAtARemoteServer(t *testing.T) {
	var header atomic.Value
	header.Store("Old")
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, _ := jsonrpc.Parse(body)
		w.Header().Set("Content-Type", "application/json")
		switch wanted := header.Load().(string); {
		case m.Method() == "tools/list":
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}`, m.ID(), annotated(wanted)[1:])
		case r.Header.Get("Mcp-Param-"+wanted) == "":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"header mismatch: Mcp-Param-%s is missing"}}`, m.ID(), wanted)
		default:
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[]}}`, m.ID())
		}
	}))
	t.Cleanup(h.Close)
	s := remoteServer(t, &site{url: h.URL}, Spec{Protocol: era.OnlyModern})
	call := strings.Replace(modernCall, `"name":"x"`, `"name":"x","arguments":{"a":"b"}`, 1)
	for _, now := range []string{"Old", "New"} {
		header.Store(now)
		if m := ask(t, party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{})), call); m.IsError() {
			t.Fatalf("%s", m.Bytes())
		}
		if got, _ := s.ToolSchema(t.Context(), parse(t, call), "x"); !strings.Contains(string(got), `"`+now+`"`) {
			t.Errorf("the server wants %s: %s", now, got)
		}
	}
}

// MI9: a server/discover that is never answered, and whose client has given it up
// without a word, is not remembered for ever.
func TestDiscoversAreForgotten(t *testing.T) {
	s := scripted(t, Spec{}, nil)
	l := &responseWatcher{connector: &connector{s: s, shared: new(sharing.Server), toolSchemas: s.table(sharing.Key{})}, awaited: make(map[jsonrpc.ID]question)}
	for i := range 2 * maxDiscovers {
		for range 2 { // TrySend, and then Send
			l.noteSent(jsonrpc.NewRequest(jsonrpc.IntID(int64(i)), "server/discover", nil))
		}
	}
	if n := len(l.awaited); n > maxDiscovers || len(l.discoverIDs) > maxDiscovers {
		t.Errorf("%d are remembered", n)
	}
}

// MI22: a server that never answers tools/list, or late, costs a call of an
// unknown tool three seconds, and the calls that follow nothing.
func TestToolsAreNeverListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := make(chan struct{})
		var asked atomic.Int32
		s := scripted(t, Spec{Protocol: era.OnlyModern}, func(m jsonrpc.Message) []string {
			if m.Method() != "tools/list" {
				return nil
			}
			asked.Add(1)
			select {
			case <-lists:
				return []string{`{"jsonrpc":"2.0","id":ID,"result":` + annotated("Late") + `}`}
			default:
				return nil
			}
		})
		call := func(want time.Duration, header string) {
			t.Helper()
			began := time.Now()
			schema, _ := s.ToolSchema(t.Context(), parse(t, modernCall), "x")
			if d := time.Since(began); d != want || !strings.Contains(string(schema), header) {
				t.Errorf("after %v: %s", d, schema)
			}
		}
		call((3 * time.Second), "")
		call(0, "") // the list is waited for still
		time.Sleep(30 * time.Second)
		call(0, "") // and no more
		time.Sleep(time.Minute - (3 * time.Second) - time.Second)
		if n := asked.Load(); n != 1 {
			t.Errorf("the list was asked for %d times", n)
		}
		time.Sleep(time.Second)
		close(lists)
		call(0, "Late")
	})
}

// MI22: a client that does not wait any more takes nothing from the others.
func TestToolsAreListedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		s := scripted(t, Spec{Protocol: era.OnlyModern}, func(m jsonrpc.Message) []string {
			<-answer
			return []string{`{"jsonrpc":"2.0","id":ID,"result":` + annotated("Late") + `}`}
		})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, known := s.ToolSchema(gone, parse(t, modernCall), "x"); known {
			t.Error("it is known")
		}
		if _, known := s.ToolSchema(t.Context(), parse(t, modernCall), "x"); known {
			t.Error("it is known")
		}
		close(answer)
		synctest.Wait()
		if schema, _ := s.ToolSchema(t.Context(), parse(t, modernCall), "x"); !strings.Contains(string(schema), "Late") {
			t.Errorf("it is known as %s", schema)
		}
	})
}
