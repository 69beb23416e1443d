package trace

import (
	"net/http"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// messageKinds are the Kinds of messages, by their jsonrpc.Kind.
var messageKinds = [...]Kind{jsonrpc.Request: Request, jsonrpc.Notification: Notification, jsonrpc.Response: Response}

// makeMessage makes the record of a message. f is what was found in its text; nil: the text is left out.
func (m *recordMaker) makeMessage(d *redact.Redactor, p *observe.Passed, f *findings) {
	m.Seq, m.Time, m.CauseSeq = p.Seq, p.At(), p.CauseSeq
	m.Hop, m.Dir = p.Hop.String(), p.Dir.String()
	m.setSession(p.Session)
	m.setTransportAt(p.Session, p.Hop)
	m.Stream, m.TimeInBridge = p.Stream, p.TimeInBridge
	m.setMessage(&p.Message)
	if p.Call != nil {
		m.Name = d.Name(p.Call.Name)
		if m.Kind == Response {
			m.Method = p.Call.Method
		}
	}
	m.Method = d.Name(m.Method)
	if m.Kind == Response {
		m.Duration = p.Duration
		if p.Message.IsError() {
			m.Code, _ = strconv.Atoi(string(jsonrpc.Lookup(p.Message.ErrorObject(), "code")))
			m.Failed = m.Code == 0 // JSON-RPC allows this code, too
		} else if m.Method == "tools/call" {
			m.Failed = p.Failed()
		}
	}
	if f == nil {
		m.omitText(d)
		return
	}
	m.Body = Body{Text: f.cleanText, valid: true, oneLine: p.Message.IsOneLine()}
	if f.cleanText == nil {
		m.Body.Text = m.messageText.join(&p.Message)
	}
	if m.Redacted = f.redacted; len(m.Redacted) > 0 {
		m.ID = d.ID(m.ID)
	}
}

// secretsKey is the key in an observe.Call under which the values are kept that were taken out of the request: its response may
// have them under other names.
type secretsKey struct{}

// findings are what was found in a message that has been looked through for secrets.
type findings struct {
	cleanText []byte   // the message without secrets; nil: there are none in it
	redacted  []string // the paths of what was taken out, for Record.Redacted
}

// noFindings says that there are no secrets in a message, as in most.
var noFindings = &findings{}

// findSecrets looks for secrets in a message, and in a response also for those of its request. A message is not looked through again
// when it is sent, if nothing was found in it when it was received. The Redactor of SetTextRedactor learns from each message.
func (r *Recorder) findSecrets(p *observe.Passed) *findings {
	var extra [][]byte
	if p.Message.Kind() == jsonrpc.Response && p.Call != nil {
		extra, _ = p.Call.Get(secretsKey{}).([][]byte)
	}
	d, learner := r.redactor.Load(), r.textRedactor.Load()
	clean := d.CleanMark()
	known := p.HasCause && len(extra) == 0 && p.Source.Memo == any(clean) && p.Source.IsWhole(&p.Message) && d.IsPlainID(p.Message.ID().String())
	if known && learner == nil {
		return noFindings
	}
	text, id, rest := p.Message.SplitAtID()
	if id != "" || len(rest) > 0 {
		buffer := messageBuffers.Get().(*messageBuffer)
		defer func() { buffer.clear(); messageBuffers.Put(buffer) }()
		text = buffer.join(&p.Message)
	}
	f := noFindings
	if !known {
		out, redacted, found := d.Message(text, extra)
		switch {
		case len(redacted) > 0:
			f = &findings{out, redacted}
			text = out
		case !p.HasCause && p.Source != nil && len(extra) == 0:
			p.Source.Memo = clean
		}
		if p.Message.Kind() == jsonrpc.Request && p.Call != nil && len(found) > 0 {
			p.Call.Set(secretsKey{}, found)
		}
	}
	if learner != nil {
		learner.Message(text, nil) // only to learn from it
	}
	return f
}

// setSession sets Server, Session, Era and Transport to those of s; nil: the session is not known, and nothing is set.
func (m *recordMaker) setSession(s *observe.Session) {
	if s != nil {
		m.Server, m.Session, m.Era, m.Transport = s.Server, s.Name, s.Era(), s.Transport
	}
}

// setMessage sets Kind, Method, ID and Size of the record to those of a message. Method and ID may still have secrets in them.
func (m *recordMaker) setMessage(msg *jsonrpc.Message) {
	m.Kind = messageKinds[msg.Kind()]
	m.Method, m.ID, m.Size = msg.Method(), msg.ID(), msg.Size()
}

// omitText leaves the text of a message out of the record, but for its length; d takes secrets out of the id.
func (m *recordMaker) omitText(d *redact.Redactor) {
	m.Body = Body{OmittedBytes: m.Size}
	m.ID = d.ID(m.ID)
}

// copyRedacted sets Body to the text of a message, without secrets and without the values in extra. found is as
// Redactor.Message returns it.
func (m *recordMaker) copyRedacted(d *redact.Redactor, msg *jsonrpc.Message, extra [][]byte) (found [][]byte) {
	m.Body = Body{valid: true}
	if m.Body.Text, m.Redacted, found = d.Message(m.messageText.join(msg), extra); len(m.Redacted) > 0 {
		m.ID = d.ID(m.ID)
	}
	return found
}

// makeEvent makes the record of an event. false: such an event has no record. text: the text of a dropped message is wanted.
func (m *recordMaker) makeEvent(d *redact.Redactor, e observe.Event, text bool) bool {
	switch e := e.(type) {
	case observe.SessionOpened:
		m.setSession(e.Session)
		who := e.Session.Client()
		m.Kind, m.Record.Event = Session, &Event{Action: "opened", Client: d.String(who.Name), Version: d.String(who.Version),
			Revision: e.Session.Revision(), PID: e.Session.PID()}
	case observe.SessionEnded:
		m.setSession(e.Session)
		m.Kind, m.Record.Event = Session, &Event{Action: "ended", Reason: d.String(e.Reason), Err: d.Error(e.Err), Duration: e.Lasted, Calls: e.Calls}
	case observe.SessionFailed:
		m.setSession(e.Session)
		m.Kind, m.Record.Event = Session, &Event{Action: "failed", Err: d.Error(e.Err), Duration: e.Lasted}
	case observe.CallLate:
		m.beginCallNote(d, e.Server, e.Session, e.Method, e.ID, e.Since)
		m.Record.Event = &Event{Code: "late", Text: "the request still has no answer"}
	case observe.WaitingCallEnded:
		m.beginCallNote(d, e.Server, e.Session, e.Method, e.ID, e.Since)
		m.Hop, m.Dir = observe.Downstream.String(), observe.ToServer.String()
		m.Record.Event = &Event{Code: "over", Text: "the request is answered or cancelled; it came before somebody looked"}
	case observe.CallTimedOut:
		m.beginCallNote(d, e.Server, e.Session, e.Method, e.ID, e.Since)
		m.Record.Event = &Event{Code: "timeout", Text: "the bridge has answered the request, because the server has not done so within " + e.Timeout.String()}
	case observe.Unanswered:
		if e.Call == nil || e.Cancelled { // the cancellation has its record
			return false
		}
		m.setSession(e.Session)
		m.Kind, m.Hop, m.Dir = Note, e.Hop.String(), e.Call.Dir.String()
		m.Method, m.Name, m.ID, m.Duration = d.Name(e.Call.Method), d.Name(e.Call.Name), d.ID(e.Call.ID), m.now.Sub(e.Call.Began())
		m.Record.Event = &Event{Code: "unanswered", Text: "the request will not be answered"}
		m.setTransportAt(e.Session, e.Hop)
	case observe.Dropped:
		m.setMessage(&e.Message)
		m.setServerAndSession(e.Server, e.Session)
		m.Kind, m.Method, m.Reason = Drop, d.Name(m.Method), d.String(e.Reason)
		if mark := e.Message.Mark(); mark != nil { // it was received: that has its own record, unless it has no number (Seq is 0), because no Recorder was told of it
			m.CauseSeq = mark.Seq
		}
		if text {
			m.copyRedacted(d, &e.Message, nil)
		} else {
			m.omitText(d)
		}
	case observe.Note:
		m.setServerAndSession(e.Server, e.Session)
		m.Kind, m.Record.Event = Note, &Event{Code: e.Code, Text: d.String(e.Text)}
	case observe.Refused, *observe.Exchange, observe.Stream:
		m.makeTransport(d, e)
	default:
		return m.makeProcess(d, e)
	}
	return true
}

// setServerAndSession sets which session an event is about (nil: not known), and which server ("": the session's).
func (m *recordMaker) setServerAndSession(server string, s *observe.Session) {
	m.setSession(s)
	if server != "" {
		m.Server = server
	}
}

// beginCallNote begins a Note about a request that came at the time since and has no answer; the caller sets Event.
func (m *recordMaker) beginCallNote(d *redact.Redactor, server string, s *observe.Session, method string, id jsonrpc.ID, since time.Time) {
	m.setServerAndSession(server, s)
	m.Kind, m.Method, m.ID = Note, d.Name(method), d.ID(id)
	m.Duration = m.now.Sub(since)
}

// makeWaitingCall makes the record of a request that had no answer yet when somebody began to look at the trace (Record.Earlier).
func (m *recordMaker) makeWaitingCall(d *redact.Redactor, w *observe.WaitingCall) {
	m.beginCallNote(d, w.Server, w.Session, w.Method, w.ID, w.Since)
	m.Kind, m.Time, m.Hop, m.Dir, m.Earlier = Request, w.Since, observe.Downstream.String(), w.Dir.String(), true
}

// makeTransport makes the record of a Refused, an Exchange or a Stream.
func (m *recordMaker) makeTransport(d *redact.Redactor, e observe.Event) {
	switch e := e.(type) {
	case observe.Refused:
		m.setServerAndSession(e.Server, e.Session)
		path, changed := d.URL(e.Path)
		if changed {
			m.Redacted = append(m.Redacted, "http.url")
		}
		m.Kind, m.HTTP = Refused, &Exchange{Method: d.Name(e.Method), URL: path, RemoteAddr: e.RemoteAddr, Status: e.Status, Rule: e.Rule, Reason: d.String(e.Reason)}
		for name, value := range map[string]string{"Host": e.Host, "Origin": e.Origin} {
			if value != "" {
				if m.HTTP.RequestHeader == nil {
					m.HTTP.RequestHeader = http.Header{}
				}
				m.HTTP.RequestHeader[name] = []string{d.String(value)}
			}
		}
	case *observe.Exchange:
		m.setServerAndSession(e.Server, e.Session)
		m.exchange = Exchange{
			Method: d.Name(e.Method), Proto: e.Proto, RemoteAddr: e.RemoteAddr, Status: e.Status, RequestBytes: e.RequestBytes, ResponseBytes: e.ResponseBytes,
			FirstByte: e.FirstByte, Duration: e.Duration, Rule: e.Rule, Reason: d.String(e.Reason), Err: d.Error(e.Err),
		}
		x := &m.exchange
		m.Kind, m.Hop, m.Time, m.HTTP = HTTP, e.Hop.String(), e.Began, x
		var changed bool
		if x.URL, changed = d.URL(e.URL); changed {
			m.Redacted = append(m.Redacted, "http.url")
		}
		x.requestHeaderJSON = m.headerJSON(d, e.RequestHeader, inRequest)
		x.responseHeaderJSON = m.headerJSON(d, e.ResponseHeader, inResponse)
		m.setTransportAt(e.Session, e.Hop)
	case observe.Stream:
		m.setServerAndSession(e.Server, e.Session)
		m.Kind, m.Hop, m.Stream, m.Reason = Stream, e.Hop.String(), e.Name, d.String(e.Reason)
		m.Record.Event = &Event{Action: e.Action, FromEventID: d.String(e.FromEventID)}
		m.setTransportAt(e.Session, e.Hop)
	}
}

// setTransportAt makes Transport that of the server, and Era empty, if hop is Upstream: setSession has set those of the client.
func (m *recordMaker) setTransportAt(s *observe.Session, hop observe.Hop) {
	if s != nil && hop == observe.Upstream {
		m.Era, m.Transport = "", s.ServerTransport()
	}
}

// makeProcess makes the record of a process's begin, end, stderr or noise. false: e is no event of a process, and has no
// record.
func (m *recordMaker) makeProcess(d *redact.Redactor, e observe.Event) bool {
	var server string
	var session *observe.Session
	switch e := e.(type) {
	case observe.ProcessStarted:
		server, session = e.Server, e.Session
		m.Kind, m.Record.Event = Process, &Event{Action: "started", PID: e.PID, Program: d.String(e.Program)}
	case observe.ProcessStopping:
		server = e.Server
		m.Kind, m.Record.Event = Process, &Event{Action: "stopping", PID: e.PID, Step: e.Step}
	case observe.ProcessEnded:
		server, session = e.Server, e.Session
		m.Kind, m.Record.Event = Process, &Event{Action: "ended", PID: e.PID, Program: d.String(e.Program), StopRequested: e.StopRequested, Err: d.Error(e.Err), Duration: e.Lasted}
	case observe.Stderr:
		server, session = e.Server, e.Session
		line, changed := d.Text([]byte(e.Line))
		if changed {
			m.Redacted = []string{"raw"}
		}
		m.Kind, m.Size, m.Body, m.Record.Event = Stderr, len(e.Line), Body{Text: line}, &Event{PID: e.PID}
	case observe.Noise:
		server, session = e.Server, e.Session
		m.Kind, m.Size, m.Reason, m.Record.Event = Noise, e.Bytes, d.String(e.Reason), &Event{PID: e.PID}
	default:
		return false
	}
	m.setServerAndSession(server, session)
	return true
}
