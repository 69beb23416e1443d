package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A script is what the server has said to one request or notification of the client, for a Fake to say it again.
type script struct {
	trigger *recordedMessage // the client's request or notification, as it was recorded
	key     string           // of a request: its requestKey
	steps   []step           // what is sent and awaited, in order
}

// A step of a script sends a message of the server, or waits for the client's answer to one that was sent before.
type step struct {
	send  *recordedMessage // the message of the server to send, if await is nil
	await *recordedMessage // the request of the server whose answer is waited for; nil: send is sent
}

// waits reports whether the script has a step that waits for an answer of the client.
func (s *script) waits() bool {
	return slices.ContainsFunc(s.steps, func(t step) bool { return t.await != nil })
}

// splitScripts makes scripts of a recording, one for each request and notification of the client, except progress and
// cancellations. Each message of the server belongs to one, unless the client has said nothing before. Progress, answers and
// what a subscription brings name theirs. Other messages belong to the newest call in progress; if there is none, to the message
// of the client that was sent or answered last.
func splitScripts(rec *Recording) (all []*script) {
	var openCalls []*script // calls in progress
	var last *script
	byClientRequest := map[*recordedMessage]*script{} // by the client's request
	byServerRequest := map[*recordedMessage]*script{} // by the server's request
	subscriptions := map[string]*script{}             // by listenKey
	closeCall := func(s *script) {
		if n := slices.Index(openCalls, s); n >= 0 {
			openCalls = slices.Delete(openCalls, n, n+1)
		}
	}
	for _, i := range rec.messages {
		kind, method := i.m.Kind(), i.m.Method()
		switch {
		case i.fromClient && kind == jsonrpc.Response:
			if s := byServerRequest[i.request]; s != nil {
				s.steps = append(s.steps, step{await: i.request})
			}
		case i.fromClient && method == "notifications/cancelled":
			closeCall(byClientRequest[i.request])
		case i.fromClient && method == "notifications/progress":
		case i.fromClient:
			last = &script{trigger: i}
			all = append(all, last)
			if kind == jsonrpc.Request {
				byClientRequest[i] = last
				if method == "subscriptions/listen" {
					subscriptions[listenKey(i, i.m.ID())] = last
				} else {
					openCalls = append(openCalls, last)
				}
			}
		case kind == jsonrpc.Response:
			if last = byClientRequest[i.request]; last != nil {
				last.steps = append(last.steps, step{send: i})
				closeCall(last)
			}
		default:
			s := last
			if n := len(openCalls); n > 0 {
				s = openCalls[n-1]
			}
			if about := byClientRequest[i.request]; about != nil && method == "notifications/progress" {
				s = about
			}
			if id, ok := jsonrpc.ParseID(i.m.Lookup("params", "_meta", era.KeySubscription)); ok && subscriptions[listenKey(i, id)] != nil {
				s = subscriptions[listenKey(i, id)]
			}
			if s == nil {
				continue // before the client has said anything
			}
			s.steps = append(s.steps, step{send: i})
			if kind == jsonrpc.Request {
				byServerRequest[i] = s
			}
		}
	}
	return all
}

// listenKey returns a map key for the subscription with an id in the session of i: ids are unique in a session.
func listenKey(i *recordedMessage, id jsonrpc.ID) string { return i.session + " " + id.String() }

// scriptRun is one run of a script, for a message of a client that is equal or similar to the script's trigger.
type scriptRun struct {
	*session
	script         *script                              // what is run
	trigger        jsonrpc.Message                      // the message of the client for which it runs
	clientAnswered map[*recordedMessage]<-chan struct{} // by recorded request of the server that was sent: closed when the client has answered
	ids            []jsonrpc.ID                         // ids of the requests that this run has sent to the client
}

// play makes the steps of the script. If the recording has no answer to a request, it sends an error, unless the request was
// cancelled there or is a subscription. The error is that of ctx or of the client's Conn.
func (r *scriptRun) play(ctx context.Context) error {
	answered := false
	for _, t := range r.script.steps {
		if t.await != nil {
			select {
			case <-r.clientAnswered[t.await]:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		answered = answered || t.send.m.Kind() == jsonrpc.Response
		m, ok := r.withNewIDs(t.send)
		if !ok {
			continue
		}
		if ctx.Err() != nil { // the call was cancelled
			return ctx.Err()
		}
		if err := r.conn.Send(r.ctx, m); err != nil {
			return err
		}
	}
	begin := r.script.trigger
	if answered || r.trigger.Kind() != jsonrpc.Request || begin.cancelled || begin.m.Method() == "subscriptions/listen" {
		return nil
	}
	return r.conn.Send(r.ctx, jsonrpc.NewError(r.trigger.ID(), jsonrpc.CodeInternalError, "the recording ends before the answer", nil))
}

// withNewIDs returns a recorded message of the server with the ids and tokens of this run. false: it has to be left out, since
// it is progress and has no token, or the client has given none.
func (r *scriptRun) withNewIDs(i *recordedMessage) (jsonrpc.Message, bool) {
	m := i.m
	switch m.Kind() {
	case jsonrpc.Response:
		return r.response(m.WithID(r.trigger.ID())), true
	case jsonrpc.Request:
		answered := make(chan struct{})
		r.mu.Lock()
		r.lastID++
		id := jsonrpc.IntID(r.lastID)
		r.awaitedAnswers[id] = answered
		r.mu.Unlock()
		if r.clientAnswered == nil {
			r.clientAnswered = map[*recordedMessage]<-chan struct{}{}
		}
		r.clientAnswered[i], r.ids = answered, append(r.ids, id)
		return m.WithID(id), true
	}
	if m.Method() == "notifications/progress" {
		token := r.trigger.ProgressToken()
		if token.IsZero() || m.ProgressToken().IsZero() {
			return m, false
		}
		return m.WithProgressToken(token), true
	}
	if meta := m.Lookup("params", "_meta"); jsonrpc.Lookup(meta, era.KeySubscription) != nil {
		meta = jsonrpc.With(meta, era.KeySubscription, []byte(r.trigger.ID().String()))
		m = m.WithParams(jsonrpc.With(m.Params(), "_meta", meta))
	}
	return m, true
}

// response returns m, a recorded response, with what depends on the request of this run: the id of a subscription, the
// negotiated version.
func (r *scriptRun) response(m jsonrpc.Message) jsonrpc.Message {
	if m.IsError() {
		return m
	}
	if meta := m.Lookup("result", "_meta"); jsonrpc.Lookup(meta, era.KeySubscription) != nil {
		meta = jsonrpc.With(meta, era.KeySubscription, []byte(r.trigger.ID().String()))
		m = m.WithResult(jsonrpc.With(m.Result(), "_meta", meta))
	}
	if r.trigger.Method() == "initialize" { // one recording serves all legacy revisions
		wanted, _ := jsonrpc.Text(r.trigger.Lookup("params", "protocolVersion"))
		if _, has := jsonrpc.Text(m.Lookup("result", "protocolVersion")); has && era.IsLegacy(wanted) {
			m = m.WithResult(jsonrpc.With(m.Result(), "protocolVersion", jsonrpc.Quote(wanted)))
		}
	}
	return m
}

// describeNearest returns code and text of the error for a request that is not in the recording: the text says which recorded
// request is most like it, and how they differ.
func (f *Fake) describeNearest(m *jsonrpc.Message) (code int, text string) {
	const maxLooked, maxBytes = 200, 16 << 20
	params := paramsOf(m)
	var best *script
	var differences []change
	looked, read := 0, 0
	for _, s := range f.scripts {
		if s.trigger.m.Kind() != jsonrpc.Request || s.trigger.m.Method() != m.Method() || looked == maxLooked || read > maxBytes {
			continue
		}
		looked, read = looked+1, read+s.trigger.m.Size()
		var all []change
		at := &path{parent: &path{}, key: "params"}
		findChanges(at, paramsOf(&s.trigger.m), params, func(c change) bool {
			all = append(all, c)
			return len(all) < 10
		})
		if best == nil || len(all) < len(differences) {
			best, differences = s, all
		}
	}
	if best == nil {
		methods := f.recording.methods()
		if len(methods) > 20 {
			methods = append(methods[:20], "...")
		}
		return jsonrpc.CodeMethodNotFound, fmt.Sprintf("the recording has no %s; it has %s", escapeAndShorten(m.Method()), printable.Text(strings.Join(methods, ", ")))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the recording has no such %s; the nearest one is in line %d", escapeAndShorten(m.Method()), best.trigger.line)
	for _, c := range differences[:min(len(differences), 3)] {
		where := pathText(c.path)
		switch {
		case !c.hasNew:
			fmt.Fprintf(&b, ", with %s: %s", where, showValue(c.oldValue))
		case !c.hasOld:
			fmt.Fprintf(&b, ", without %s", where)
		default:
			fmt.Fprintf(&b, ", with %s: %s and not %s", where, showValue(c.oldValue), showValue(c.newValue))
		}
	}
	return jsonrpc.CodeInvalidParams, b.String()
}
