package traceview

import (
	"cmp"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// LossPlace says at which place a message was lost.
type LossPlace string

// The places.
const (
	AtBridge   LossPlace = "bridge"  // the bridge has received the message, and neither passed it on as it is nor answered it
	AtServer   LossPlace = "server"  // the message was sent to the server, which has not answered
	AtClient   LossPlace = "client"  // the message was sent to the client, which has not answered
	AnswerLost LossPlace = "answer"  // the bridge has received the answer to the message, and not passed that on
	Discarded  LossPlace = "dropped" // the bridge says that it has dropped the message, and why

	// Cancelled is the place of a request that is not lost: its sender has cancelled it before it was answered.
	Cancelled LossPlace = "cancelled"
)

// Loss is a message that got lost, or a request that nobody has answered or that was cancelled. An answer that the bridge has made
// itself, to a request that it has passed on, does not count as one.
type Loss struct {
	Place  LossPlace      // where the message was lost
	Record trace.Record   // the record of the message, without its Body
	Text   string         // what is known of the loss, in a sentence; not escaped
	Path   []trace.Record // how far the message came: Record, and the records of what was made of it

	cancelled bool          // the request was cancelled, by its sender or by the bridge
	dropped   *trace.Record // the record that says that the answer to the message was dropped, of which this Loss tells, too; nil: none
}

// Lost returns the messages that got lost, and the requests that were cancelled or have no answer, in order of time; then the
// dropped messages of which none of these tells.
func (s *Correlation) Lost() []Loss {
	var all []Loss
	told := map[*trace.Record]bool{}
	for _, st := range s.steps {
		if loss, is := s.lossOf(st); is {
			loss.Record, loss.Path = st.Record, append([]trace.Record{st.Record}, loss.Path...)
			all = append(all, loss)
			told[st.dropRecord], told[loss.dropped] = true, true
		}
	}
	for i := range s.drops {
		if d := &s.drops[i]; !told[d] {
			all = append(all, Loss{Place: Discarded, Record: *d, Text: "the bridge has dropped it: " + d.Reason, Path: []trace.Record{*d}})
		}
	}
	return all
}

// Gaps returns how many records are missing in the trace, at least.
func (s *Correlation) Gaps() uint64 { return s.lostRecords }

// lossOf returns the Loss of a message, without its Record and without the beginning of its Path, which is that Record. isLoss
// is false if it was not lost, or the Loss of another message tells of it.
func (s *Correlation) lossOf(st *passedMessage) (loss Loss, isLoss bool) {
	if st.cancelled || st.answer != nil {
		return s.peerLoss(st)
	}
	if st.dropRecord != nil && !s.isReportedWithRequest(st) {
		return Loss{Place: Discarded, Text: "the bridge has dropped it: " + st.dropRecord.Reason}, true
	}
	nearPeer, farPeer := peerNames(&st.Record)
	switch {
	case st.Kind == trace.Request && isReceived(&st.Record):
		return s.receivedLoss(st, nearPeer, farPeer), true
	case st.Kind == trace.Request:
		if st.CauseSeq != 0 {
			return loss, false // the request that caused it tells
		}
		text := fmt.Sprintf("a request of the bridge itself, which the %s has not answered within %s", nearPeer, roundedDuration(s.waitTime(st)))
		return Loss{Place: lossPlaceOf(nearPeer), Text: text}, true
	case isReceived(&st.Record) && len(st.derived) == 0 && !s.isRightlyKept(st):
		return Loss{Place: AtBridge, Text: fmt.Sprintf("received from the %s, and not passed on to the %s", nearPeer, farPeer)}, true
	}
	return loss, false
}

// peerLoss returns, as lossOf does, the Loss of a message that has an answer or is cancelled: a received request that its peer
// has not answered, though the bridge has, or its sender has cancelled it.
func (s *Correlation) peerLoss(st *passedMessage) (loss Loss, isLoss bool) {
	// subscriptions/listen has no answer to wait for.
	if st.Kind != trace.Request || !isReceived(&st.Record) || st.Method == "subscriptions/listen" || st.answer != nil && st.answer.CauseSeq != 0 {
		return loss, false
	}
	nearPeer, farPeer := peerNames(&st.Record)
	within := roundedDuration(s.waitTime(st))
	passed := st.forwardedRequest()
	switch {
	case passed != nil && passed.answer != nil || passed == nil && st.answer != nil:
		return loss, false
	case passed != nil:
		loss.Path = []trace.Record{passed.Record}
	}
	if st.cancelled {
		loss.Place, loss.cancelled = Cancelled, true
		loss.Text = fmt.Sprintf("by the %s; the %s has not answered it", nearPeer, farPeer)
		if passed == nil {
			loss.Text = fmt.Sprintf("by the %s; it was not passed on to the %s", nearPeer, farPeer)
		}
		return loss, true
	}
	loss.Place, loss.cancelled = lossPlaceOf(farPeer), passed.cancelled
	code := ""
	if c := st.answer.Code; c != 0 {
		code = fmt.Sprintf(", with error %d", c)
	}
	loss.Text = s.silenceText(passed, farPeer, within, st.answer.Time.Add(time.Second)) + fmt.Sprintf("; the bridge has answered the %s itself%s", nearPeer, code)
	return loss, true
}

// silenceText returns the text of the Loss of a request that was passed on, as st, to farPeer ("client" or "server"), and not
// answered: that the bridge has cancelled it; else, that farPeer's process has ended, if it did so before the time until; else, that
// there was no answer. within is how long there was none, as text.
func (s *Correlation) silenceText(st *passedMessage, farPeer, within string, until time.Time) string {
	if st.cancelled {
		return fmt.Sprintf("by the bridge, after %s in which the %s has not answered it", within, farPeer)
	}
	if exit := s.exitAfter(st, until); exit != nil {
		return fmt.Sprintf("passed on to the %s, whose process ended (%s) %s later, so no answer came",
			farPeer, cmp.Or(exit.Event.Err, "exit status 0"), roundedDuration(exit.Time.Sub(st.Time)))
	}
	return fmt.Sprintf("passed on to the %s, which has not answered within %s", farPeer, within)
}

// exitAfter returns the record of the end of the process to which the request st went, if it ended between then and the time
// until; nil: the trace has none, or the bridge has asked for that end. The process is known by its server and session.
func (s *Correlation) exitAfter(st *passedMessage, until time.Time) *trace.Record {
	for i := range s.unexpectedExits {
		exit := &s.unexpectedExits[i]
		if st.Dir == trace.ToServer && exit.Server == st.Server && exit.Session == st.Session && !exit.Time.Before(st.Time) && !exit.Time.After(until) {
			return exit
		}
	}
	return nil
}

// forwardedRequest returns the request that the bridge has made of the received request st, and sent on; nil: there is none. If
// it has made several, that is the last one.
func (st *passedMessage) forwardedRequest() (passed *passedMessage) {
	for _, made := range st.derived {
		if made.Kind == trace.Request && made.Dir == st.Dir {
			passed = made
		}
	}
	return passed
}

// receivedLoss returns the Loss of a received request without an answer: how far it came. nearPeer is the peer that has sent it
// ("client" or "server"), and farPeer the other.
func (s *Correlation) receivedLoss(st *passedMessage, nearPeer, farPeer string) Loss {
	within := roundedDuration(s.waitTime(st))
	for _, passed := range st.derived {
		if passed.Kind != trace.Request || passed.Dir != st.Dir {
			continue
		}
		steps := []trace.Record{passed.Record}
		if passed.answer == nil {
			return Loss{Place: lossPlaceOf(farPeer), Path: steps, Text: s.silenceText(passed, farPeer, within, s.lastTime), cancelled: passed.cancelled}
		}
		steps = append(steps, passed.answer.Record)
		loss := Loss{Place: AnswerLost, Path: steps, dropped: passed.answer.dropRecord}
		loss.Text = fmt.Sprintf("answered by the %s, and the answer was not passed on to the %s", farPeer, nearPeer)
		if loss.dropped != nil {
			loss.Text += ", but dropped: " + loss.dropped.Reason
		}
		return loss
	}
	if len(st.derived) > 0 {
		return Loss{
			Place: AtBridge, Path: []trace.Record{st.derived[0].Record},
			Text: fmt.Sprintf("received from the %s and made into something else, and not answered within %s", nearPeer, within),
		}
	}
	return Loss{Place: AtBridge, Text: fmt.Sprintf("received from the %s, neither passed on to the %s nor answered within %s", nearPeer, farPeer, within)}
}

// isReportedWithRequest reports whether the Loss of a request tells of the dropped message st, too: st is the answer to what
// the bridge has made of that request, which has no answer itself.
func (s *Correlation) isReportedWithRequest(st *passedMessage) bool {
	if st.Kind != trace.Response || st.request == nil || st.request.CauseSeq == 0 {
		return false
	}
	asked := s.bySeq[st.request.CauseSeq]
	return asked != nil && asked.Kind == trace.Request && isReceived(&asked.Record) && asked.answer == nil && !asked.cancelled && asked.dropRecord == nil
}

// isRightlyKept reports whether the received message st is one that the bridge rightly does not pass on, such as
// notifications/initialized, or whose loss the Loss of a request tells.
func (s *Correlation) isRightlyKept(st *passedMessage) bool {
	switch {
	case st.Method == "notifications/initialized" || st.Method == "notifications/cancelled":
		return true
	case st.Kind != trace.Response:
		return false
	case st.request == nil: // the beginning of the trace is missing
		return true
	}
	asked := s.bySeq[st.request.CauseSeq]
	// Either the bridge itself has asked, or its client has an answer by now or has cancelled, or the
	// request of that client tells of the loss.
	return st.request.CauseSeq == 0 || asked == nil || asked.answer != nil || asked.cancelled || asked.Kind == trace.Request
}

// isReceived reports whether r is of a message that the bridge has received, and not of one that it has sent.
func isReceived(r *trace.Record) bool {
	return r.Hop == trace.Downstream && r.Dir == trace.ToServer || r.Hop == trace.Upstream && r.Dir == trace.ToClient
}

// peerNames returns the names, "client" or "server", of the peer at the end of the bridge where a message passed, and of the
// one at the other end.
func peerNames(r *trace.Record) (nearPeer, farPeer string) {
	if r.Hop == trace.Downstream {
		return "client", "server"
	}
	return "server", "client"
}

// lossPlaceOf returns the place of a request that a peer has not answered: AtClient for the peer "client", else AtServer.
func lossPlaceOf(peer string) LossPlace {
	if peer == "client" {
		return AtClient
	}
	return AtServer
}

// roundedDuration returns a duration as people write it, with about three digits: "1.23s", "45ms".
func roundedDuration(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}
