package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Fake is the server of a recording. It is a bridge.Handler that serves any number of clients
// at a time; each begins at the beginning of the recording. A call is answered as the first
// one in the recording that is equal but for what is volatile and that this client has not
// asked yet, or as the last one again. What the server has said before and after the answer
// comes at its place.
type Fake struct {
	recording     *Recording
	scripts       []*script
	calls         map[string][]*script // requests by key, in order
	notifications map[string][]*script // notifications by method

	mu           sync.Mutex
	askedScripts map[*script]bool // by any client
	missTexts    []string         // the first ones
	missCount    int
}

// NewFake returns the server of a recording.
func NewFake(rec *Recording) *Fake {
	f := &Fake{recording: rec, scripts: splitScripts(rec), calls: map[string][]*script{}, notifications: map[string][]*script{}, askedScripts: map[*script]bool{}}
	for _, s := range f.scripts {
		if m := &s.trigger.m; m.Kind() == jsonrpc.Request {
			s.key = requestKey(m)
			f.calls[s.key] = append(f.calls[s.key], s)
		} else {
			f.notifications[m.Method()] = append(f.notifications[m.Method()], s)
		}
	}
	return f
}

// requestKey is matchKey of a request of a client. Who asks and with which revision does not matter.
func requestKey(m *jsonrpc.Message) string {
	if m.Method() == "initialize" {
		return "initialize"
	}
	return matchKey(m)
}

// Usage is what of a recording was used.
type Usage struct {
	Requests  int      // in the recording
	Asked     int      // of them, by any client
	Unasked   []string // the first others, to be printed
	MissCount int      // requests that are not in the recording
	Misses    []string // the first of them, to be printed
}

// maxListedTexts is how many are told one by one.
const maxListedTexts = 20

// Usage returns what was used up to now.
func (f *Fake) Usage() Usage {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := Usage{MissCount: f.missCount, Misses: slices.Clone(f.missTexts)}
	for _, s := range f.scripts {
		switch {
		case s.trigger.m.Kind() != jsonrpc.Request:
			continue
		case f.askedScripts[s]:
			u.Asked++
		case len(u.Unasked) < maxListedTexts:
			u.Unasked = append(u.Unasked, fmt.Sprintf("line %d: %s", s.trigger.line, describeMessage(&s.trigger.m)))
		}
		u.Requests++
	}
	return u
}

// ServeConn implements bridge.Handler. It returns when the client has sent its last message
// and what can be answered is answered.
func (f *Fake) ServeConn(ctx context.Context, client bridge.Conn) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &session{
		fake: f, conn: client, ctx: ctx, timesAsked: map[string]int{}, usedNotifications: map[*script]bool{},
		runningCalls: map[jsonrpc.ID]context.CancelFunc{}, awaitedAnswers: map[jsonrpc.ID]chan<- struct{}{},
	}
	err := client.Receive(ctx, fromClientSink{s})
	stop() // nobody answers requests any more
	s.wg.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// maxRunningScripts is how many calls of a client may wait for its answers at a time.
const maxRunningScripts = 256

// session is one client of a Fake.
type session struct {
	fake *Fake
	conn bridge.Conn
	ctx  context.Context
	wg   sync.WaitGroup // scripts that wait for answers of the client

	// Only the Sink of Receive uses these.
	timesAsked        map[string]int   // by key: how often it was asked
	usedNotifications map[*script]bool // notifications

	mu             sync.Mutex
	lastID         int64
	runningCalls   map[jsonrpc.ID]context.CancelFunc // calls that wait for an answer of the client
	awaitedAnswers map[jsonrpc.ID]chan<- struct{}    // requests to the client; closed at its answer
}

// fromClientSink takes what the client of a session says.
type fromClientSink struct{ s *session }

func (fromClientSink) TrySend(jsonrpc.Message) bool { return false }

func (i fromClientSink) Send(_ context.Context, m jsonrpc.Message) error {
	switch s := i.s; m.Kind() {
	case jsonrpc.Request:
		return s.handleRequest(m)
	case jsonrpc.Response:
		s.mu.Lock()
		id, answered, ok := jsonrpc.Find(s.awaitedAnswers, m.ID())
		delete(s.awaitedAnswers, id)
		s.mu.Unlock()
		if ok {
			close(answered)
		}
	case jsonrpc.Notification:
		return s.handleNotification(m)
	}
	return nil
}

func (s *session) handleNotification(m jsonrpc.Message) error {
	if m.Method() == "notifications/cancelled" {
		s.mu.Lock()
		_, cancel, ok := jsonrpc.Find(s.runningCalls, m.CancelledID())
		s.mu.Unlock()
		if ok {
			cancel()
		}
		return nil
	}
	var found *script
	for _, n := range s.fake.notifications[m.Method()] {
		if s.usedNotifications[n] {
			continue
		}
		if matchKey(&n.trigger.m) == matchKey(&m) {
			found = n
			break
		}
		if found == nil {
			found = n
		}
	}
	if found == nil {
		return nil
	}
	s.usedNotifications[found] = true
	return s.playScript(found, m)
}

func (s *session) handleRequest(m jsonrpc.Message) error {
	key := requestKey(&m)
	all := s.fake.calls[key]
	if len(all) == 0 {
		return s.conn.Send(s.ctx, s.fake.answerUnrecorded(&m))
	}
	found := all[min(s.timesAsked[key], len(all)-1)]
	s.timesAsked[key]++
	s.fake.mu.Lock()
	s.fake.askedScripts[found] = true
	s.fake.mu.Unlock()
	return s.playScript(found, m)
}

// playScript says what the server has said to a message. It waits for the client only in a
// goroutine of its own: the client's answers come through its caller.
func (s *session) playScript(found *script, m jsonrpc.Message) error {
	r := &scriptRun{session: s, script: found, trigger: m}
	if !found.waits() {
		return r.play(s.ctx)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	if m.Kind() == jsonrpc.Request {
		s.mu.Lock()
		_, used := s.runningCalls[m.ID()]
		full := len(s.runningCalls) >= maxRunningScripts
		if !used && !full {
			s.runningCalls[m.ID()] = cancel
		}
		s.mu.Unlock()
		if used || full {
			cancel()
			return s.conn.Send(s.ctx, jsonrpc.NewError(m.ID(), jsonrpc.CodeInvalidRequest, "the id is in use, or too many calls are in progress", nil))
		}
	}
	s.wg.Go(func() {
		defer cancel()
		_ = r.play(ctx) // its error is the session's end
		s.mu.Lock()
		defer s.mu.Unlock()
		if m.Kind() == jsonrpc.Request {
			delete(s.runningCalls, m.ID())
		}
		for _, id := range r.ids {
			delete(s.awaitedAnswers, id)
		}
	})
	return nil
}

// answerUnrecorded answers a request that is not in the recording.
func (f *Fake) answerUnrecorded(m *jsonrpc.Message) jsonrpc.Message {
	method := m.Method()
	switch {
	case method == "ping", method == "logging/setLevel":
		return jsonrpc.NewResult(m.ID(), nil)
	case method == "server/discover" && f.recording.Era == "modern":
		return jsonrpc.NewResult(m.ID(), f.discoverResult())
	case method == "server/discover", method == "initialize": // how a server of the other era is known
		return jsonrpc.NewError(m.ID(), jsonrpc.CodeMethodNotFound, "Method not found", nil)
	}
	code, text := f.describeNearest(m)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.missCount++; len(f.missTexts) < maxListedTexts {
		f.missTexts = append(f.missTexts, describeMessage(m)+": "+text)
	}
	return jsonrpc.NewError(m.ID(), code, text, nil)
}

// discoverResult is the answer to server/discover where nobody has asked it in the recording: the
// capabilities that its methods need, and who the server says it is in other results.
func (f *Fake) discoverResult() []byte {
	capabilities := []byte(`{"logging":{}}`)
	for _, method := range f.recording.methods() {
		switch method {
		case "tools/list", "tools/call":
			capabilities = jsonrpc.With(capabilities, "tools", []byte(`{"listChanged":true}`))
		case "prompts/list", "prompts/get":
			capabilities = jsonrpc.With(capabilities, "prompts", []byte(`{"listChanged":true}`))
		case "resources/list", "resources/read", "resources/templates/list":
			capabilities = jsonrpc.With(capabilities, "resources", []byte(`{"listChanged":true,"subscribe":true}`))
		case "completion/complete":
			capabilities = jsonrpc.With(capabilities, "completions", []byte(`{}`))
		}
	}
	who := fmt.Appendf(nil, `{"name":%s,"version":"0"}`, jsonrpc.Quote(f.recording.Server))
	for _, i := range f.recording.messages {
		if said := i.m.Lookup("result", "_meta", era.KeyServerInfo); said != nil {
			who = said
			break
		}
	}
	return fmt.Appendf(nil, `{"resultType":"complete","supportedVersions":[%q],"capabilities":%s,"ttlMs":0,"cacheScope":"private","_meta":{%q:%s}}`,
		era.NewestModern, capabilities, era.KeyServerInfo, who)
}
