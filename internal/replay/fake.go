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
// at a time; each begins at the beginning of the recording. A request is answered as an equal one in the
// recording (volatileMeta does not count): each time as the next of these, and then as the last one
// again. What the server has said before and after the answer comes before and after it.
type Fake struct {
	recording     *Recording           // what it answers with
	scripts       []*script            // all scripts of the recording, in its order
	calls         map[string][]*script // the scripts of requests, by requestKey, in the order of the recording
	notifications map[string][]*script // the scripts of notifications, by method, in the order of the recording

	mu           sync.Mutex       // guards what follows
	askedScripts map[*script]bool // the scripts of requests that any client has made so far
	missTexts    []string         // the first of missCount, for Usage.Misses
	missCount    int              // how many requests of clients were not in the recording
}

// NewFake returns a Fake that takes the part of the server of a recording.
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

// requestKey returns a key that is the same for requests of clients that a Fake answers alike: equal ones (see matchKey), and
// all initialize, whoever the client is.
func requestKey(m *jsonrpc.Message) string {
	if m.Method() == "initialize" {
		return "initialize"
	}
	return matchKey(m)
}

// Usage says which requests of a recording clients of a Fake have made so far, and how many others. Its texts can be printed.
type Usage struct {
	Requests  int      // how many requests the recording has
	Asked     int      // how many of Requests any client has made
	Unasked   []string // which of Requests no client has made, the first few
	MissCount int      // how many requests of clients are not in the recording
	Misses    []string // descriptions of the first few requests of MissCount
}

// maxListedTexts is how many texts Usage.Unasked, and how many Usage.Misses, has at most.
const maxListedTexts = 20

// Usage returns which requests clients have made up to now.
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

// ServeConn answers one client until it has sent its last message; it implements bridge.Handler. Calls that wait for an answer
// of the client are given up then.
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

// maxRunningScripts is how many requests of one client may be in progress at a time whose scripts ask the client something. One
// more is answered with an error.
const maxRunningScripts = 256

// session is the conversation of one client with a Fake, which takes the part of the server of a recording.
type session struct {
	fake *Fake           // the Fake that serves the client
	conn bridge.Conn     // the client
	ctx  context.Context // done when the client has sent its last message, or ctx of ServeConn is
	wg   sync.WaitGroup  // counts the goroutines of scripts that wait for answers of the client

	timesAsked        map[string]int   // by requestKey: how often the client has asked that; used by fromClientSink alone
	usedNotifications map[*script]bool // scripts of notifications that were played for the client; used by fromClientSink alone

	mu             sync.Mutex                        // guards what follows
	lastID         int64                             // the id of the last request to the client; 0: there was none
	runningCalls   map[jsonrpc.ID]context.CancelFunc // by the client's id: cancels a call in progress that asks the client something
	awaitedAnswers map[jsonrpc.ID]chan<- struct{}    // by the id of a request to the client: closed when the client has answered
}

// fromClientSink takes what the client of a session says. It is a bridge.Sink that takes nothing at once, so all comes by Send.
type fromClientSink struct {
	s *session // the session whose client sends the messages
}

// TrySend takes nothing: Send may have to wait for the client.
func (fromClientSink) TrySend(jsonrpc.Message) bool { return false }

// Send handles a message of the client: it plays what the recording has for a request or notification, and hands an answer to
// the script that waits for it.
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

// handleNotification plays a script of a notification with the same method that was not played yet, of an equal one if there is
// one; otherwise it does nothing. notifications/cancelled ends the script of the request.
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

// handleRequest plays the script of an equal request in the recording; if there is none, it sends the answer of
// answerUnrecorded.
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

// playScript plays found for m, a message of the client. A script that waits for the client gets a goroutine of its own,
// because the client's answers come through the caller of playScript.
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

// answerUnrecorded returns the answer to a request that is not in the recording: a result for ping and the like, else an error,
// which counts as a miss unless it only says of which era the server is.
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

// discoverResult returns the result of server/discover for a recording in which the client has not made that request. It has
// the capabilities that the recorded methods need, and the server's name as other results tell it.
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
