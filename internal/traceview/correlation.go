package traceview

import (
	"cmp"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Correlation knows which records of a whole trace belong together: requests and their answers, and
// what the bridge has made of what it received. Add is called with every record and then Resolve
// once. The zero value is ready. It must not be used concurrently until Resolve has returned; then
// View, Lost and Gaps may be.
type Correlation struct {
	steps           []*passedMessage                                // the messages; in order of time, once Resolve has been called
	bySeq           map[uint64]*passedMessage                       // the messages whose records have a number (Seq), by that
	drops           []trace.Record                                  // the records of dropped messages
	unexpectedExits []trace.Record                                  // records of ends of processes that the bridge has not asked to end
	lostRecords     uint64                                          // how many records are missing in the trace, at least
	lastTime        time.Time                                       // time of the latest record
	openRequests    map[callDirection]map[jsonrpc.ID]*passedMessage // while Resolve runs: the requests without an answer so far, by where they passed and by id
}

// passedMessage is a message that has passed one end of the bridge.
type passedMessage struct {
	trace.Record // the record of the message, without its Body and what else dropLongFields takes out

	cancelledID jsonrpc.ID       // of notifications/cancelled: the id of the request that it cancels; zero: not known
	answer      *passedMessage   // of a request: its response; nil: there is none
	request     *passedMessage   // of a response: the request that it answers; nil: not known
	derived     []*passedMessage // of a received message: the messages that the bridge has made of it and sent
	dropRecord  *trace.Record    // the record that says that this received message was dropped; nil: there is none
	cancelled   bool             // of a request: a cancellation has passed where the request did, before an answer
}

// callDirection is where requests pass, and in which direction: a map key.
type callDirection struct {
	session string // pseudonym of the session
	hop     string // trace.Downstream or trace.Upstream
	dir     string // direction of the requests: trace.ToServer or trace.ToClient
}

// Add takes the next record of the trace. It keeps no Body, and nothing else that may be long.
func (s *Correlation) Add(r *trace.Record) {
	if r.Time.After(s.lastTime) {
		s.lastTime = r.Time
	}
	switch {
	case r.Earlier: // it is no record of a message that passed while the trace was made
	case r.Kind.IsMessage():
		st := &passedMessage{Record: *r}
		if r.Method == "notifications/cancelled" {
			st.cancelledID, _ = jsonrpc.ParseID(memberAt(r.Body.Text, "params", "requestId"))
		}
		dropLongFields(&st.Record)
		s.steps = append(s.steps, st)
		if r.Seq != 0 {
			if s.bySeq == nil {
				s.bySeq = make(map[uint64]*passedMessage)
			}
			s.bySeq[r.Seq] = st
		}
	case r.Kind == trace.Drop:
		d := *r
		dropLongFields(&d)
		s.drops = append(s.drops, d)
	case r.Kind == trace.Process && r.Event != nil && r.Event.Action == "ended" && !r.Event.StopRequested:
		exit := *r
		dropLongFields(&exit)
		exit.Event = &trace.Event{Err: printable.Clip(r.Event.Err, maxReason)}
		s.unexpectedExits = append(s.unexpectedExits, exit)
	case r.Kind == trace.Gap:
		s.lostRecords += max(r.Lost, 1)
	}
}

// maxReason is how many bytes are kept of a record's Reason, and of the error with which a process ended.
const maxReason = 4 << 10

// dropLongFields takes out of a record what is not kept of it: Body, HTTP, Event and Redacted; and cuts its Reason.
func dropLongFields(r *trace.Record) {
	r.Body, r.HTTP, r.Event, r.Redacted = trace.Body{}, nil, nil, nil
	r.Reason = printable.Clip(r.Reason, maxReason)
}

// maxRespelledSearch is the number of open requests above which findRequest finds no request whose id is spelled otherwise ("7"
// for 7) than asked for: for that it looks at each of them.
const maxRespelledSearch = 1000

// findRequest returns the one of the open requests with an id; own is the id as the request spells it, which may be otherwise
// than in its answer. ok: there is one.
func findRequest[T any](open map[jsonrpc.ID]T, id jsonrpc.ID) (own jsonrpc.ID, request T, ok bool) {
	if len(open) <= maxRespelledSearch {
		return jsonrpc.Find(open, id)
	}
	request, ok = open[id]
	return id, request, ok
}

// memberAt returns the value of the member at a path of keys in text, as JSON; nil: there is none, or text is no JSON.
func memberAt(text []byte, keys ...string) []byte {
	if !jsonrpc.Valid(text) {
		return nil
	}
	for _, key := range keys {
		if len(text) == 0 || text[0] != '{' {
			return nil
		}
		text = jsonrpc.Lookup(text, key)
	}
	return text
}

// Resolve finds out which records belong together, once all have been added.
func (s *Correlation) Resolve() {
	slices.SortStableFunc(s.steps, func(a, b *passedMessage) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Seq, b.Seq)) })
	s.openRequests = make(map[callDirection]map[jsonrpc.ID]*passedMessage)
	for _, st := range s.steps {
		if cause := s.bySeq[st.CauseSeq]; st.CauseSeq != 0 && cause != nil && cause != st {
			cause.derived = append(cause.derived, st)
		}
		switch st.Kind {
		case trace.Request:
			s.openRequestsAt(st.Record, st.Dir)[st.ID] = st
		case trace.Response:
			open := s.openRequestsAt(st.Record, oppositeDir(st.Dir))
			if id, request, ok := findRequest(open, st.ID); ok {
				st.request, request.answer = request, st
				delete(open, id)
			}
		case trace.Notification:
			if request := s.openRequestsAt(st.Record, st.Dir)[st.cancelledID]; request != nil && !st.cancelledID.IsZero() {
				request.cancelled = true
			}
		}
	}
	s.openRequests = nil
	for i := range s.drops {
		if st := s.bySeq[s.drops[i].CauseSeq]; st != nil && s.drops[i].CauseSeq != 0 {
			st.dropRecord = &s.drops[i]
		}
	}
}

// openRequestsAt returns, while Resolve runs, the requests without an answer so far that passed where r did and went in
// direction dir.
func (s *Correlation) openRequestsAt(r trace.Record, dir string) map[jsonrpc.ID]*passedMessage {
	key := callDirection{r.Session, r.Hop, dir}
	if s.openRequests[key] == nil {
		s.openRequests[key] = make(map[jsonrpc.ID]*passedMessage)
	}
	return s.openRequests[key]
}

// oppositeDir returns trace.ToClient for trace.ToServer, and trace.ToServer for all else.
func oppositeDir(dir string) string {
	if dir == trace.ToServer {
		return trace.ToClient
	}
	return trace.ToServer
}

// View returns a record of the trace with what the other records say of it; if it is a request: its answer, and how long it
// waited.
func (s *Correlation) View(r *trace.Record) *View {
	v := &View{Record: r}
	if st := s.bySeq[r.Seq]; st != nil && r.Kind == trace.Request {
		v.Pending, v.Cancelled, v.Waited = st.answer == nil, st.cancelled, s.waitTime(st)
		if st.answer != nil {
			v.Answer = &st.answer.Record
		}
	}
	return v
}

// waitTime returns how long the request st waited for its answer; if it has none, until the end of the trace.
func (s *Correlation) waitTime(st *passedMessage) time.Duration {
	switch {
	case st.answer == nil:
		return max(s.lastTime.Sub(st.Time), 0)
	case st.answer.Duration > 0:
		return st.answer.Duration
	}
	return st.answer.Time.Sub(st.Time)
}
