package probe

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// The ids of the questions. A process may be asked both, and may answer either late.
var (
	discoverID   = jsonrpc.StringID("mcp-bridge-probe")      // the id of the server/discover that a Prober sends
	initializeID = jsonrpc.StringID("mcp-bridge-initialize") // the id of the initialize that a Prober sends
)

// discoverRequest returns the server/discover with which a server is asked for its era.
func discoverRequest() jsonrpc.Message {
	meta := era.Meta{Version: jsonrpc.Quote(era.NewestModern), Capabilities: []byte("{}")}
	return jsonrpc.NewRequest(discoverID, "server/discover", []byte(`{"_meta":`+string(meta.Object())+`}`))
}

// ask finds out whether the server is a modern one: at an http URL by Options.Discover, else by server/discover, and
// perhaps initialize, to a process or connection of its own. placed is called once that has a place. spare is the process
// that has answered, if a client can go on with it; nil: none can. The error is why the era is not known.
func (p *Prober) ask(ctx context.Context, placed func()) (modern bool, spare *Process, err error) {
	if p.isHTTP() {
		m, err := p.opts.Discover(ctx)
		if errors.Is(err, p.opts.ErrNotModern) {
			return false, nil, nil
		}
		return err == nil && AnswersModern(m), nil, err
	}
	h := new(TransferableHolder)
	conn, err := p.opts.Dial(ctx, h, placed)
	if err != nil {
		return false, nil, err
	}
	asked := time.Now()
	m, err := p.askOn(ctx, conn, discoverRequest(), p.AnswerTimeout)
	if AnswersModern(m) {
		return true, &Process{Conn: conn, Holder: h}, nil
	}
	mute := &silentError{command: p.opts.IsCommand, discover: time.Since(asked)}
	if m.Kind() == jsonrpc.Invalid && err == nil {
		return p.open(ctx, &Process{Conn: conn, Holder: h}, placed, mute)
	}
	// Some servers end at anything but initialize, and some fix their era by
	// what comes first: this one is not used any more (ST15).
	p.closeLater(conn)
	switch {
	case p.opts.Context.Err() != nil:
		return false, nil, p.opts.Context.Err()
	case err != nil && !p.opts.IsCommand:
		return false, nil, err // the connection was lost, which says nothing
	case p.IsUnasked(m):
		return false, nil, p.inPlaceErrorOf(m)
	}
	return false, nil, nil
}

// Discover asks the server at the other end of conn for its era, with server/discover, and reports whether
// the answer is that of a modern server. The error is why conn is of no use any more; it wraps ErrUnasked if the
// server was not reached. That no answer came is no error.
func (p *Prober) Discover(ctx context.Context, conn bridge.Conn) (modern bool, err error) {
	m, err := p.askOn(ctx, conn, discoverRequest(), p.AnswerTimeout)
	if err == nil {
		err = p.inPlaceErrorOf(m)
	}
	return AnswersModern(m), err
}

// askOn sends a request over conn and returns its response, or an invalid Message if none has come within
// wait. The error is why conn is of no use any more.
func (p *Prober) askOn(ctx context.Context, conn bridge.Conn, question jsonrpc.Message, wait time.Duration) (answer jsonrpc.Message, err error) {
	err = p.exchange(ctx, conn, question, wait, func(m jsonrpc.Message) (enough bool) {
		if enough = m.ID().Equivalent(question.ID()); enough {
			answer = m
		}
		return enough
	})
	return answer, err
}

// exchange sends question over conn (unless that is the zero Message) and calls took with each response that comes,
// until took returns true, or wait has passed since the question was sent. Sending may take Options.MinTimeout, if that is
// longer than wait: a person may have to sign in. The error is why conn is of no use any more; that the time is over is
// none.
func (p *Prober) exchange(ctx context.Context, conn bridge.Conn, question jsonrpc.Message, wait time.Duration, took func(jsonrpc.Message) (enough bool)) error {
	sending, sent := context.WithTimeout(ctx, max(wait, p.opts.MinTimeout))
	var err error
	if question.Kind() != jsonrpc.Invalid {
		err = conn.Send(sending, question)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	s := &answerSink{conn: conn, handle: took, stopReceive: cancel}
	if err == nil {
		err = conn.Receive(ctx, s)
	} else if sending.Err() != nil {
		err = nil
	}
	sent()
	if s.enough || ctx.Err() != nil {
		err = nil // the latter is silence
	}
	return err
}

// An answerSink calls handle with the responses that come, and answers the server's requests, until handle
// has returned true.
type answerSink struct {
	conn        bridge.Conn                         // the Conn over which the server's requests are answered
	handle      func(jsonrpc.Message) (enough bool) // takes a response; true: it has what it needs
	stopReceive context.CancelFunc                  // ends the Receive that has this Sink
	enough      bool                                // handle has returned true: what comes is for the next user of conn
}

// TrySend implements bridge.Sink: it gives a response to handle, answers a request of the server, and drops
// all else. false: handle has what it needs, or the answer cannot be sent at once.
func (s *answerSink) TrySend(m jsonrpc.Message) bool {
	switch {
	case s.enough: // it is for who uses conn next
		return false
	case m.Kind() == jsonrpc.Request: // nobody else is there to answer
		return s.conn.TrySend(era.AnswerServerRequest(m))
	case m.Kind() == jsonrpc.Response && s.handle(m):
		s.enough = true
		s.stopReceive()
	}
	return true
}

// Send implements bridge.Sink: it gives a response to handle, answers a request of the server, for which it may wait, and
// drops all else. Once handle has what it needs, the Receive and its ctx have ended: Send returns the error of ctx, and m
// is left for the next Receive.
func (s *answerSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !s.enough && m.Kind() == jsonrpc.Request {
		return s.conn.Send(ctx, era.AnswerServerRequest(m))
	}
	s.TrySend(m)
	return nil
}

// AnswersModern reports whether m, a response to server/discover or an error, says that the server speaks
// 2026-07-28: the list of versions in it decides, whatever it comes with (ED7).
func AnswersModern(m jsonrpc.Message) bool {
	versions := m.Lookup("result", "supportedVersions")
	if m.IsError() {
		versions = m.Lookup("error", "data", "supported")
	}
	return era.HasModern(versions)
}

// ClaimsModern returns the version in m, an answer to initialize, if it is one that has no initialize; "": it
// is not (ED9).
func ClaimsModern(m jsonrpc.Message) string {
	if v, ok := jsonrpc.Text(m.Lookup("result", "protocolVersion")); ok && era.IsStateless(v) {
		return v
	}
	return ""
}

// RefusesModern reports whether an error response says that the server does not speak 2026-07-28 (any more).
// (Where an HTTP status says so, remote.Options.OnForeignRefusal calls Recheck.)
func RefusesModern(m jsonrpc.Message) bool {
	return string(m.Lookup("error", "code")) == "-32022" && !AnswersModern(m)
}
