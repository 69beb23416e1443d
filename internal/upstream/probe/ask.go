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
	discoverID   = jsonrpc.StringID("mcp-bridge-probe")
	initializeID = jsonrpc.StringID("mcp-bridge-initialize")
)

// discoverRequest is the probe.
func discoverRequest() jsonrpc.Message {
	meta := era.Meta{Version: jsonrpc.Quote(era.NewestModern), Capabilities: []byte("{}")}
	return jsonrpc.NewRequest(discoverID, "server/discover", []byte(`{"_meta":`+string(meta.Object())+`}`))
}

// ask asks the server whether it is a modern one. spare is the process that has answered, if a
// client can go on with it; nil: none can. The error is why it is not known.
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
	case !p.opts.IsCommand && isUnauthorized(m):
		return false, nil, &unauthorizedError{m}
	}
	return false, nil, nil
}

// Discover asks the server at the other end of conn the probe's question. It reports
// whether the answer is that of a modern server. The error is why conn is of no use any more;
// silence is none.
func (p *Prober) Discover(ctx context.Context, conn bridge.Conn) (modern bool, err error) {
	m, err := p.askOn(ctx, conn, discoverRequest(), p.AnswerTimeout)
	return AnswersModern(m), err
}

// askOn asks conn something and returns the response, an invalid Message if
// none has come in time. The error is why conn is of no use any more.
func (p *Prober) askOn(ctx context.Context, conn bridge.Conn, question jsonrpc.Message, wait time.Duration) (answer jsonrpc.Message, err error) {
	err = p.exchange(ctx, conn, question, wait, func(m jsonrpc.Message) (enough bool) {
		if enough = m.ID().Equivalent(question.ID()); enough {
			answer = m
		}
		return enough
	})
	return answer, err
}

// exchange asks conn something, if question is valid, and has took look at each response until it has enough,
// or the time is over, which counts from when the question is on its way: before that a person may have
// to sign in. The error is why conn is of no use any more.
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

// answerSink waits for responses to questions.
type answerSink struct {
	conn        bridge.Conn
	handle      func(jsonrpc.Message) (enough bool)
	stopReceive context.CancelFunc // ends Receive
	enough      bool
}

// TrySend implements bridge.Sink.
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

// Send implements bridge.Sink.
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

// AnswersModern reports whether a response to server/discover, or a refusal, says that the
// server speaks 2026-07-28. The list of versions decides, whatever it comes with (ED7).
func AnswersModern(m jsonrpc.Message) bool {
	versions := m.Lookup("result", "supportedVersions")
	if m.IsError() {
		versions = m.Lookup("error", "data", "supported")
	}
	return era.HasModern(versions)
}

// ClaimsModern returns the version without initialize that a server has answered
// initialize with, "" if it is none (ED9).
func ClaimsModern(m jsonrpc.Message) string {
	if v, ok := jsonrpc.Text(m.Lookup("result", "protocolVersion")); ok && era.IsStateless(v) {
		return v
	}
	return ""
}

// RefusesModern reports whether an error says that the server does not speak
// 2026-07-28 (any more). Where an HTTP status says so, remote.Options.OnForeignRefusal calls Recheck.
func RefusesModern(m jsonrpc.Message) bool {
	return string(m.Lookup("error", "code")) == "-32022" && !AnswersModern(m)
}
