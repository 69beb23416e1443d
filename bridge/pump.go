package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// DefaultGrace is how long a Pump waits for answers that are still owed once
// its context has ended.
const DefaultGrace = 5 * time.Second

// DefaultDrain is how long a Pump waits for answers that are still owed once
// the client has said that it sends nothing more.
const DefaultDrain = 30 * time.Second

// cancelWait bounds what is done for an ended conversation on its way out.
const cancelWait = time.Second

// PumpOptions tune a Pump. The zero value works.
type PumpOptions struct {
	// Drain bounds the wait for owed answers after the client's EOF (ST8).
	// 0 means DefaultDrain, negative means not to wait.
	Drain time.Duration

	// Grace bounds the wait for owed answers after ctx is done.
	// 0 means DefaultGrace, negative means not to wait.
	Grace time.Duration

	// RequestTimeout is how long the server may stay silent on a request
	// before it is cancelled and answered with an error (J8). Progress on the
	// request starts it anew. 0 means forever.
	RequestTimeout time.Duration

	// Dropped is told of each message that reached nobody, and why. The
	// reason never holds content. It may be called concurrently; nil is fine.
	Dropped func(m jsonrpc.Message, reason string)
}

// Pump copies messages between one client and one server, byte for byte and
// in order, until the conversation is over. It runs two goroutines, one per
// direction, and returns when both have ended; it closes neither Conn.
//
// It keeps the books on who owes whom an answer, so that no request is left
// hanging:
//
//   - After the client's io.EOF it goes on until the server owes nothing
//     (bounded by Drain), then returns nil.
//   - When ctx is done it takes nothing more from the client, waits likewise
//     (bounded by Grace), answers what is still owed with an error, and
//     returns nil.
//   - When the server ends, every request it owes is answered with a JSON-RPC
//     error that carries the server's error, and that error is returned.
//   - When the client is gone (any error but io.EOF), the server is told to
//     cancel what it owes, and the error is returned.
//
// A response that nobody waits for is dropped (J12), except that an id which
// is the same JSON value in another spelling finds its request and gets back
// the spelling that was asked with.
func Pump(ctx context.Context, client, server Conn, opts PumpOptions) error {
	p := &pump{client: client, server: server, opts: opts}
	p.toServer.init()
	p.toClient.init()
	return p.run(ctx)
}

type pump struct {
	client, server Conn
	opts           PumpOptions
	toServer       ledger // the client's requests, owed by the server
	toClient       ledger // the server's requests, owed by the client
}

var errServerEnded = errors.New("the server has ended the conversation")

// errDrained ends both directions in an orderly way.
var errDrained = errors.New("conversation over")

func (p *pump) run(parent context.Context) error {
	// The copying goes on for a while after parent is done, so it has a
	// context of its own; the cause tells the directions why they stop.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	defer cancel(nil)

	var wg sync.WaitGroup
	var clientErr error
	clientDone := make(chan struct{})
	wg.Go(func() {
		defer close(clientDone)
		clientErr = p.fromClient(ctx, parent)
		p.clientEnded(ctx, parent, clientErr, cancel)
	})
	serverErr := p.fromServer(ctx)
	serverEnded := context.Cause(ctx) == nil
	if serverEnded {
		p.fail(ctx, serverErr)
	}
	cancel(errDrained)
	wg.Wait()
	switch {
	case serverEnded:
		if errors.Is(serverErr, io.EOF) {
			return errServerEnded
		}
		return serverErr
	case clientErr != nil && !errors.Is(clientErr, io.EOF) && parent.Err() == nil:
		return fmt.Errorf("client: %w", clientErr)
	}
	return nil
}

// fromClient copies from the client to the server until the client ends or
// parent is done.
func (p *pump) fromClient(ctx, parent context.Context) error {
	recv, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(parent, stop)()
	for {
		m, err := p.client.Recv(recv)
		if err != nil {
			if parent.Err() != nil {
				return parent.Err()
			}
			return err
		}
		if !p.admit(ctx, m) {
			continue
		}
		if err := p.server.Send(ctx, m); err != nil {
			if ctx.Err() != nil {
				return err
			}
			// A server that takes nothing more is as good as gone. Its
			// Recv says what became of it, if it still can say anything.
			p.reject(ctx, m, err)
		}
	}
}

// admit enters a client's message into the books and reports whether the
// server is to get it.
func (p *pump) admit(ctx context.Context, m jsonrpc.Message) bool {
	switch m.Kind() {
	case jsonrpc.Request:
		c := &call{id: m.ID(), method: m.Method(), token: m.ProgressToken()}
		switch err := p.toServer.open(c); err {
		case nil:
		case errInUse: // J3
			p.answer(ctx, c.id, jsonrpc.CodeInvalidRequest, err.Error(), nil)
			return false
		default:
			p.answer(ctx, c.id, jsonrpc.CodeInternalError, "the server has ended", serverEndedData)
			return false
		}
		p.arm(ctx, c)
	case jsonrpc.Notification:
		if m.Method() != "notifications/cancelled" {
			return true
		}
		if method, ok := p.toServer.method(m.RequestID()); !ok || method == "initialize" { // J11, J12
			p.drop(m, "cancels no request that can be cancelled")
			return false
		}
		p.toServer.close(m.RequestID())
	case jsonrpc.Response:
		if _, ok := p.toClient.close(m.ID()); !ok {
			p.drop(m, "answers no request of the server")
			return false
		}
	}
	return true
}

// fromServer copies from the server to the client until the server ends.
func (p *pump) fromServer(ctx context.Context) error {
	for {
		m, err := p.server.Recv(ctx)
		if err != nil {
			return err
		}
		if m, ok := p.returned(ctx, m); ok {
			if err := p.client.Send(ctx, m); err != nil {
				p.drop(m, "the client did not take it")
				if m.Kind() == jsonrpc.Request {
					p.toClient.close(m.ID())
				}
			}
		}
		if m.Kind() == jsonrpc.Response {
			p.toServer.settled()
		}
	}
}

// returned enters a server's message into the books. It reports whether the
// client is to get it, and in what spelling.
func (p *pump) returned(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, bool) {
	switch m.Kind() {
	case jsonrpc.Response:
		id, ok := p.toServer.take(m.ID())
		if !ok {
			p.drop(m, "answers no request that is in progress")
			return m, false
		}
		if id != m.ID() {
			m = m.WithID(id)
		}
	case jsonrpc.Request:
		if err := p.toClient.open(&call{id: m.ID(), method: m.Method()}); err != nil {
			p.refuse(ctx, m.ID(), jsonrpc.CodeInternalError, err.Error())
			return m, false
		}
	case jsonrpc.Notification:
		switch m.Method() {
		case "notifications/progress":
			p.toServer.progress(m.ProgressToken(), p.opts.RequestTimeout)
		case "notifications/cancelled":
			p.toClient.close(m.RequestID())
		}
	}
	return m, true
}

// clientEnded runs when nothing more comes from the client. It lets the
// server finish what it owes, where somebody still waits for it, and then
// ends the other direction.
func (p *pump) clientEnded(ctx, parent context.Context, err error, cancel context.CancelCauseFunc) {
	defer cancel(errDrained)
	if ctx.Err() != nil { // the server ended first
		return
	}
	// Nobody answers the server's requests any more; it must not wait for it.
	for _, c := range p.toClient.shut() {
		p.refuse(ctx, c.id, jsonrpc.CodeInternalError, "the client has gone")
	}
	switch {
	case parent.Err() != nil:
		p.drain(ctx, nil, p.opts.Grace, DefaultGrace)
	case errors.Is(err, io.EOF):
		p.drain(ctx, parent, p.opts.Drain, DefaultDrain)
	}
	if ctx.Err() != nil {
		return
	}
	left := p.toServer.shut()
	for _, c := range left {
		if c.method == "initialize" {
			continue
		}
		p.cancelAtServer(ctx, c.id, "the client has gone")
	}
	if parent.Err() != nil || errors.Is(err, io.EOF) {
		p.answerAll(ctx, left, "the bridge is shutting down", shuttingDownData)
	}
}

// drain waits until the server owes nothing, for at most d. A parent that is
// done meanwhile shortens the wait to the grace.
func (p *pump) drain(ctx, parent context.Context, d, byDefault time.Duration) {
	if d == 0 {
		d = byDefault
	}
	if d < 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	var stop <-chan struct{}
	if parent != nil {
		stop = parent.Done()
	}
	select {
	case <-p.toServer.drained():
	case <-t.C:
	case <-ctx.Done():
	case <-stop:
		p.drain(ctx, nil, p.opts.Grace, DefaultGrace)
	}
}

// fail answers everything the server owes once it has ended.
func (p *pump) fail(ctx context.Context, err error) {
	text := "the server ended before it answered"
	if err != nil && !errors.Is(err, io.EOF) {
		text = err.Error()
	}
	p.answerAll(ctx, p.toServer.shut(), text, serverEndedData)
}

// What errors of the bridge's own carry as data, for programs (C.7).
var (
	serverEndedData  = []byte(`{"reason":"server_ended"}`)
	shuttingDownData = []byte(`{"reason":"shutting_down"}`)
	timeoutData      = []byte(`{"reason":"timeout"}`)
)

func (p *pump) answerAll(ctx context.Context, calls []*call, text string, data []byte) {
	for _, c := range calls {
		p.answer(ctx, c.id, jsonrpc.CodeInternalError, text, data)
	}
}

// answer sends the client an error of the bridge's own.
func (p *pump) answer(ctx context.Context, id jsonrpc.ID, code int, text string, data []byte) {
	m := jsonrpc.NewError(id, code, text, data)
	if err := p.client.Send(ctx, m); err != nil {
		p.drop(m, "the client did not take it")
	}
}

// refuse sends the server an error in the client's place.
func (p *pump) refuse(ctx context.Context, id jsonrpc.ID, code int, text string) {
	ctx, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	m := jsonrpc.NewError(id, code, text, nil)
	if err := p.server.Send(ctx, m); err != nil {
		p.drop(m, "the server did not take it")
	}
}

// reject answers a message that the server did not take. A server that is
// ending says so in the other direction in a moment, and better.
func (p *pump) reject(ctx context.Context, m jsonrpc.Message, err error) {
	if m.Kind() != jsonrpc.Request {
		p.drop(m, "the server did not take it")
		return
	}
	t := time.NewTimer(cancelWait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return
	case <-t.C:
	}
	if _, ok := p.toServer.close(m.ID()); ok {
		p.answer(ctx, m.ID(), jsonrpc.CodeInternalError, "the server did not take the request: "+err.Error(), serverEndedData)
	}
}

// cancelAtServer tells the server that nobody waits for a request any more.
func (p *pump) cancelAtServer(ctx context.Context, id jsonrpc.ID, why string) {
	ctx, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	m := jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":`+id.String()+`,"reason":"`+why+`"}`))
	if err := p.server.Send(ctx, m); err != nil {
		p.drop(m, "the server did not take it")
	}
}

// arm starts the time-out of a request.
func (p *pump) arm(ctx context.Context, c *call) {
	if p.opts.RequestTimeout <= 0 {
		return
	}
	p.toServer.arm(c, time.AfterFunc(p.opts.RequestTimeout, func() {
		if _, ok := p.toServer.close(c.id); !ok || ctx.Err() != nil {
			return
		}
		if c.method != "initialize" {
			p.cancelAtServer(ctx, c.id, "timed out")
		}
		p.answer(ctx, c.id, jsonrpc.CodeInternalError,
			fmt.Sprintf("the server did not answer within %v", p.opts.RequestTimeout), timeoutData)
	}))
}

func (p *pump) drop(m jsonrpc.Message, reason string) {
	if p.opts.Dropped != nil {
		p.opts.Dropped(m, reason)
	}
}
