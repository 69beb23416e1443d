package probe

import (
	"bytes"
	"context"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is about servers that are silent to the probe: they wait for initialize, or
// take long to start. Which of both, only their answer to initialize tells.

// initializeAnswerTimeout is how long a process that did not answer server/discover may take to answer
// initialize before another one is started, which is sent initialize only: some servers hang at what comes
// before it. To wait longer makes those slower; to wait less starts one that is slow to start twice.
const initializeAnswerTimeout = 12 * time.Second

// initializeParamsKey is the key, in a context, of what WithInitializeParams has put there.
type initializeParamsKey struct{}

// WithInitializeParams returns a ctx for Modern. params are those of the initialize that the client's shared
// server would be sent if it is a legacy one: a process that was asked with them can become that server
// (TakeOpened).
func WithInitializeParams(ctx context.Context, params []byte) context.Context {
	return context.WithValue(ctx, initializeParamsKey{}, params)
}

// initializeParamsOf returns what WithInitializeParams has put into a ctx; nil: nothing.
func initializeParamsOf(ctx context.Context) []byte {
	params, _ := ctx.Value(initializeParamsKey{}).([]byte)
	return params
}

// open finds out the era of a server that did not answer server/discover, with initialize: if the server is a command,
// it sends initialize to first, the process that was asked; if that tells nothing, or else at once, it sends initialize
// to another process or connection. It returns what Prober.ask returns, and the error silent if no answer came at all. It
// closes first, unless that becomes the spare. placed is called once the other process has a place.
func (p *Prober) open(ctx context.Context, first *Process, placed func(), silent *silentError) (modern bool, spare *Process, err error) {
	o := &openAttempt{p: p, process: first, probed: true, params: initializeParamsOf(ctx)}
	// Behind a command is one process, for both eras. A connection was made for a modern server.
	if p.opts.IsCommand && ctx.Err() == nil && p.opts.Context.Err() == nil {
		err = o.ask(ctx, initializeAnswerTimeout)
		if o.tellsEra() || err != nil {
			modern, spare = o.result()
			return modern, spare, p.opts.Context.Err()
		}
	}
	p.close(first.Conn) // its place is needed
	switch {
	case p.opts.Context.Err() != nil:
		return false, nil, p.opts.Context.Err()
	case ctx.Err() != nil: // it took all the time to start, or to be stopped
		return false, nil, silent
	}
	h := new(TransferableHolder)
	conn, err := p.opts.Dial(ctx, h, placed)
	if err != nil {
		return false, nil, err
	}
	o = &openAttempt{p: p, process: &Process{Conn: conn, Holder: h}, params: o.params}
	asked := time.Now()
	err = o.ask(ctx, probeTimeout)
	switch {
	case p.opts.Context.Err() != nil:
		p.closeLater(conn)
		return false, nil, p.opts.Context.Err()
	case o.tellsEra():
		modern, spare = o.result()
		return modern, spare, nil
	case err == nil:
		silent.initialize = time.Since(asked)
		p.closeLater(conn) // who asks has waited for long enough
		return false, nil, silent
	}
	p.close(conn)
	if p.opts.IsCommand {
		err = nil // it ends at whatever it hears, which a legacy client may be told
	}
	return false, nil, err
}

// An openAttempt is one process that is sent initialize to find out its era.
type openAttempt struct {
	p           *Prober         // the Prober that makes the attempt
	process     *Process        // the process, without clients
	probed      bool            // the process was sent server/discover before
	params      []byte          // the params of the initialize that a client's server would be sent; nil: there is no such client, and the bridge's own are sent
	discovered  jsonrpc.Message // the process's answer to server/discover; invalid: none has come
	initialized jsonrpc.Message // the process's answer to initialize; invalid: none has come
}

// ask sends initialize, and waits until it is clear what the answers say: for wait at most, and for a second answer that
// could change the meaning of the first for Prober.AnswerTimeout more. The error is why the process is of no use any more.
func (o *openAttempt) ask(ctx context.Context, wait time.Duration) error {
	params := o.params
	if params == nil {
		params = []byte(`{"protocolVersion":"` + era.NewestLegacy + `","capabilities":{},"clientInfo":` + string(buildinfo.Implementation()) + `}`)
	}
	took := func(m jsonrpc.Message) (enough bool) {
		switch {
		case m.ID().Equivalent(discoverID):
			o.discovered = m
			return AnswersModern(m)
		case m.ID().Equivalent(initializeID):
			o.initialized = m
			return true
		}
		return false
	}
	if err := o.p.exchange(ctx, o.process.Conn, jsonrpc.NewRequest(initializeID, "initialize", params), wait, took); err != nil {
		return err
	}
	// Who reads both at the same time may answer one before the other.
	if o.initialized.Kind() == jsonrpc.Invalid && AnswersModern(o.discovered) ||
		o.probed && o.discovered.Kind() == jsonrpc.Invalid && o.initialized.IsError() && !AnswersModern(o.initialized) {
		return o.p.exchange(ctx, o.process.Conn, jsonrpc.Message{}, o.p.AnswerTimeout, func(m jsonrpc.Message) bool {
			took(m)
			return o.discovered.Kind() != jsonrpc.Invalid && o.initialized.Kind() != jsonrpc.Invalid
		})
	}
	return nil
}

// tellsEra reports whether the answers tell the server's era: there is one to initialize, even an error, or that to
// server/discover is a modern server's.
func (o *openAttempt) tellsEra() bool {
	return o.initialized.Kind() != jsonrpc.Invalid || AnswersModern(o.discovered)
}

// result returns the era that the answers tell, and as spare the process, if a client can go on with it; nil: none can,
// and the process was closed.
func (o *openAttempt) result() (modern bool, spare *Process) {
	modern = AnswersModern(o.discovered)
	switch {
	case o.p.opts.Context.Err() != nil:
	case o.initialized.Kind() == jsonrpc.Invalid:
	case o.initialized.IsError():
		// Who has answered both with modern versions has stayed a modern server.
		if modern = modern || AnswersModern(o.initialized); modern && o.p.opts.IsCommand {
			spare = o.process
			spare.Conn = o.dropLateAnswers()
			return modern, spare
		}
	case modern: // it may have fixed its era by initialize
	case ClaimsModern(o.initialized) != "":
		modern = true
	case o.p.opts.IsCommand && o.params != nil:
		spare = o.process
		spare.Conn, spare.openedParams = o.dropLateAnswers(), o.params
		return false, spare
	}
	o.p.close(o.process.Conn) // its place is needed
	return modern, nil
}

// dropLateAnswers returns the process's Conn for its next user. Answers to the Prober's own requests that
// still come are dropped. An initialize is answered with the answer that the process has given already,
// unless that was an error.
func (o *openAttempt) dropLateAnswers() bridge.Conn {
	answer := o.initialized
	hooks := bridge.Hooks{Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
		if m.Kind() == jsonrpc.Response && (m.ID().Equivalent(discoverID) || m.ID().Equivalent(initializeID)) {
			*m = jsonrpc.Message{}
		}
		return nil
	}}
	if !answer.IsError() {
		hooks.Send = func(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) {
			if m.Kind() == jsonrpc.Request && m.Method() == "initialize" {
				return out, answer.WithID(m.ID()), nil
			}
			return m, reply, nil
		}
	}
	return bridge.Intercept(o.process.Conn, hooks)
}

// TakeOpened returns the spare process if it is a legacy one that was initialized with these params, and
// hands it over; nil: there is none.
func (p *Prober) TakeOpened(params []byte) *Process {
	return p.takeIf(func(spare *Process) bool { return spare.openedParams != nil && bytes.Equal(spare.openedParams, params) })
}
