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
	steps           []*passedMessage                                // in order of time, once Resolve has been called
	bySeq           map[uint64]*passedMessage                       // those of steps that have a Seq
	drops           []trace.Record                                  // of dropped messages
	unexpectedExits []trace.Record                                  // ends of processes that the bridge has not asked to end
	lostRecords     uint64                                          // see Gaps
	lastTime        time.Time                                       // of the latest record
	openRequests    map[callDirection]map[jsonrpc.ID]*passedMessage // of Resolve: requests without an answer so far
}

// passedMessage is a message that has passed one end of the bridge.
type passedMessage struct {
	trace.Record // without its Body

	cancelledID jsonrpc.ID       // of a cancellation: the id of the request; zero: not known
	answer      *passedMessage   // of a request; nil: there is none
	request     *passedMessage   // of a response; nil: not known
	derived     []*passedMessage // of a received message: what the bridge has made of it
	dropRecord  *trace.Record    // says that the message was dropped; nil: it was not
	cancelled   bool             // of a request: its sender has cancelled it before it was answered
}

// callDirection is where requests pass, and in which direction.
type callDirection struct{ session, hop, dir string }

// Add takes the next record. It keeps no Body, and nothing else that may be long.
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

// maxReason is how many bytes a Correlation keeps of the reason of a drop, or of the error of a process.
const maxReason = 4 << 10

// dropLongFields takes out of a record what a Correlation does not keep.
func dropLongFields(r *trace.Record) {
	r.Body, r.HTTP, r.Event, r.Redacted = trace.Body{}, nil, nil, nil
	r.Reason = printable.Clip(r.Reason, maxReason)
}

// maxRespelledSearch is up to how many requests without an answer findRequest also finds one whose id is spelled otherwise than
// that of its answer: for that it looks at each of them.
const maxRespelledSearch = 1000

// findRequest returns the request with an id, and own, its id as the request spells it.
func findRequest[T any](open map[jsonrpc.ID]T, id jsonrpc.ID) (own jsonrpc.ID, request T, ok bool) {
	if len(open) <= maxRespelledSearch {
		return jsonrpc.Find(open, id)
	}
	request, ok = open[id]
	return id, request, ok
}

// memberAt returns the member at a path of keys in text, which may be anything; nil: there is none.
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

// Resolve finds out which records belong together.
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

// openRequestsAt returns the requests without an answer so far that went in direction dir where r passed.
func (s *Correlation) openRequestsAt(r trace.Record, dir string) map[jsonrpc.ID]*passedMessage {
	key := callDirection{r.Session, r.Hop, dir}
	if s.openRequests[key] == nil {
		s.openRequests[key] = make(map[jsonrpc.ID]*passedMessage)
	}
	return s.openRequests[key]
}

func oppositeDir(dir string) string {
	if dir == trace.ToServer {
		return trace.ToClient
	}
	return trace.ToServer
}

// View returns a record of the trace with what the others say of it.
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

// waitTime returns how long a request waited for its answer, or has waited at the end of the trace.
func (s *Correlation) waitTime(st *passedMessage) time.Duration {
	switch {
	case st.answer == nil:
		return max(s.lastTime.Sub(st.Time), 0)
	case st.answer.Duration > 0:
		return st.answer.Duration
	}
	return st.answer.Time.Sub(st.Time)
}
