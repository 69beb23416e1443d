package hub_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// told hands out what it is told of.
type told chan observe.Event

func (e told) Event(event observe.Event) { e <- event }

// next returns the next event of a type.
func next[T observe.Event](e told) T {
	for {
		if event, ok := (<-e).(T); ok {
			return event
		}
	}
}

// processOf returns the process of the next session that is opened. Either may be told of first, and
// so may what is left of an earlier session.
func processOf(e told) observe.ProcessStarted {
	all := map[int]observe.ProcessStarted{}
	pid := 0
	for {
		switch event := (<-e).(type) {
		case observe.ProcessStarted:
			all[event.PID] = event
		case observe.SessionOpened:
			pid = event.Session.PID()
		}
		if started, ok := all[pid]; ok {
			return started
		}
	}
}

// A restart gives new clients a new server, and ends the old one's sessions.
func TestRestart(t *testing.T) {
	h, url := start(t, hub.Options{SingleServer: true}, demoSpec(t, "demo"))
	old := session(t, url+"/mcp")
	bridgetest.Must(t, h.Restart("demo"))
	if status, body := echo(t, url+"/mcp", session(t, url+"/mcp")); status != http.StatusOK {
		t.Errorf("the new server: %d %s", status, body)
	}
	if status, _ := echo(t, url+"/mcp", old); status != http.StatusNotFound {
		t.Errorf("a session of the old server: %d", status)
	}
	if err := h.Restart("other"); err == nil {
		t.Error("a server is restarted that there is not")
	}
	if info := h.Info(); len(info) != 1 || info[0].Name != "demo" || info[0].Sessions != 1 || info[0].Remote {
		t.Errorf("the info is %+v", info)
	}
}

// A server without a queue has none after a restart either, and after a second one.
func TestRestartWithoutQueue(t *testing.T) {
	spec := demoSpec(t, "demo")
	spec.MaxChildren, spec.Queue, spec.QueueTimeout = 1, -1, 20*time.Second
	h, url := start(t, hub.Options{SingleServer: true}, spec)
	for range 2 {
		bridgetest.Must(t, h.Restart("demo"))
		session(t, url+"/mcp")
		begun := time.Now()
		status, _, body := do(t, http.MethodPost, url+"/mcp", hello)
		if took := time.Since(begun); status != http.StatusServiceUnavailable || took >= spec.QueueTimeout {
			t.Errorf("a second client, after %v: %d %s", took, status, body)
		}
	}
}

// A session that is stopped, and one whose process is killed, are over; the next one works.
func TestStopAndKill(t *testing.T) {
	var seen observe.Observer
	heard := make(told, 1000)
	defer seen.WatchEvents(heard)()
	_, url := start(t, hub.Options{SingleServer: true, Observer: &seen}, demoSpec(t, "demo"))
	id := session(t, url+"/mcp")
	opened := next[observe.SessionOpened](heard)
	opened.Session.Stop()
	next[observe.SessionEnded](heard)
	if status, _ := echo(t, url+"/mcp", id); status != http.StatusNotFound {
		t.Errorf("after the session was stopped: %d", status)
	}
	id = session(t, url+"/mcp")
	started := processOf(heard)
	bridgetest.Must(t, started.Kill())
	ended := next[observe.ProcessEnded](heard)
	for ended.PID != started.PID { // that of the first session
		ended = next[observe.ProcessEnded](heard)
	}
	if !ended.StopRequested { // whether by SIGKILL depends on how quick it is: its stdin was closed a moment before
		t.Errorf("the process has ended by itself with %v", ended.Err)
	}
	next[observe.SessionEnded](heard)
	if status, _ := echo(t, url+"/mcp", id); status == http.StatusOK {
		t.Error("after the kill the session goes on")
	}
	if status, body := echo(t, url+"/mcp", session(t, url+"/mcp")); status != http.StatusOK {
		t.Errorf("the next session: %d %s", status, body)
	}
}

// A call that is cancelled is answered with an error, and the session goes on.
func TestCancel(t *testing.T) {
	var seen observe.Observer
	h, url := start(t, hub.Options{SingleServer: true, Observer: &seen}, demoSpec(t, "demo"))
	id := session(t, url+"/mcp")
	answer := make(chan string)
	go func() {
		_, _, body := do(t, http.MethodPost, url+"/mcp",
			`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":3600}}}`, "Mcp-Session-Id", id)
		answer <- body
	}()
	for h.CancelCalls(func(c bridge.PendingCall) bool { return c.ID.String() == "9" && observe.SessionOf(c.Ctx) != nil }) == 0 {
		if h.Info()[0].State.Calls > 1 {
			t.Fatal("there are other calls")
		}
	}
	if body := <-answer; !strings.Contains(body, "was cancelled by whoever looks after the bridge") || !strings.Contains(body, `"id":9`) {
		t.Errorf("the answer is %s", body)
	}
	if status, body := echo(t, url+"/mcp", id); status != http.StatusOK {
		t.Errorf("the next call: %d %s", status, body)
	}
}

// looker is somebody who looks, without whom such a request has no name.
type looker struct{}

func (looker) Event(observe.Event)     {}
func (looker) Message(*observe.Passed) {}

// A subscription of 2026-07-28 is cancelled likewise: it ends with its result, and then its stream does.
func TestCancelListen(t *testing.T) {
	var seen observe.Observer
	defer seen.Watch(looker{})()
	h, url := start(t, hub.Options{SingleServer: true, Observer: &seen}, demoSpec(t, "demo"))
	stream := make(chan string)
	go func() {
		_, _, body := do(t, http.MethodPost, url+"/mcp",
			`{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`,
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
		stream <- body
	}()
	for h.CancelCalls(func(c bridge.PendingCall) bool { return c.ID.String() == "9" && observe.SessionOf(c.Ctx) != nil }) == 0 {
		select {
		case body := <-stream:
			t.Fatalf("the stream is %s", body)
		default:
			runtime.Gosched()
		}
	}
	if body := <-stream; !strings.Contains(body, `{"jsonrpc":"2.0","id":9,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":9}}}`) {
		t.Errorf("the stream is %s", body)
	}
}

// A request of 2026-07-28 has no session, and is cancelled by what watchers call it.
func TestCancelModern(t *testing.T) {
	var seen observe.Observer
	defer seen.Watch(looker{})()
	h, url := start(t, hub.Options{SingleServer: true, Observer: &seen}, demoSpec(t, "demo"))
	answer := make(chan string)
	go func() {
		_, _, body := do(t, http.MethodPost, url+"/mcp",
			`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":3600},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`,
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "slow")
		answer <- body
	}()
	for h.CancelCalls(func(c bridge.PendingCall) bool {
		s := observe.SessionOf(c.Ctx)
		return c.ID.String() == "9" && s != nil && strings.HasPrefix(s.Name, "q")
	}) == 0 {
		select {
		case body := <-answer:
			t.Fatalf("the answer is %s", body)
		default:
			runtime.Gosched()
		}
	}
	if body := <-answer; !strings.Contains(body, "was cancelled by whoever looks after the bridge") || !strings.Contains(body, `"id":9`) {
		t.Errorf("the answer is %s", body)
	}
}
