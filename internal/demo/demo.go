// Package demo is a small MCP server that shows what a client can meet: tools
// with progress and cancellation, requests to the client, subscriptions,
// prompts with completion, errors, and a crash on demand.
//
// It is the quick start of mcp-bridge and a fixture of its tests, which can add
// tools, prompts and resources to a [Server]. It is written on package jsonrpc
// and not on an SDK, so that it neither hides nor repairs what a bridge does to
// the messages on the way.
//
// It speaks both eras of MCP on one connection, without a mode: a request
// that claims a modern version in its _meta is served by itself, as 2026-07-28
// wants it, and all else belongs to the session that initialize opens, in one
// of the revisions 2024-11-05 to 2025-11-25 (ST14). The tools are the same; what
// the eras do differently with a request is an eraRequest.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// Defaults and limits.
const (
	defaultDrain    = time.Second      // how long calls in progress may go on after the client's end of input, where Server.Drain is 0
	defaultPageSize = 8                // how many rows of a list one answer has where Server.PageSize is 0: so the lists of tools and resources have two pages
	askTimeout      = 10 * time.Minute // how long a legacy client may take to answer a question: a person may have to answer it
	maxCalls        = 256              // how many calls may be in progress in a session; a further one is answered with an error
	maxListens      = 64               // how many receivers of notifications a session may have, its open subscriptions/listen and the legacy session; a further subscriptions/listen is answered with an error
)

// Server is the demo server. The zero value works. It is immutable while in
// use; one Server may serve any number of sessions at once, and sessions share
// nothing.
type Server struct {
	// Version is what serverInfo reports; empty means that of the build.
	Version string

	// Drain is how long calls in progress may go on after the client's end
	// of input; zero or less means 1 s. What is then unfinished is dropped.
	Drain time.Duration

	// Exit ends the process for the tool "crash". With nil, as when many
	// sessions live in one process, that tool only reports an error.
	Exit func(status int)

	// Stderr takes what the tool "crash" writes; nil discards it.
	// It must be safe for concurrent use, as an *os.File is.
	Stderr io.Writer

	// PageSize is how many rows of a list one answer has; zero or less means 8.
	PageSize int

	Tools     []*Tool     // the tools that the server has besides the demo's own
	Prompts   []*Prompt   // the prompts that the server has besides the demo's own
	Resources []*Resource // the resources and resource templates that the server has besides the demo's own

	onNegotiated func(revision string) // is told the revision that initialize has agreed on; nil: nobody is
}

// Serve runs the demo server as a process: it reads messages line by line from r
// and writes its own to w until r ends, and then returns nil (see [Server.ServeConn]).
// What is no valid message is answered as JSON-RPC wants it. The tool "crash"
// ends the process.
//
// r and w are as [stdio.Std] describes them, usually os.Stdin and os.Stdout;
// neither is closed.
func Serve(ctx context.Context, r io.Reader, w io.Writer, stderr io.Writer) error {
	return (&Server{Stderr: stderr, Exit: os.Exit}).Serve(ctx, r, w)
}

// Serve serves one client whose messages stand in lines: it reads them from r and writes its own to w until r ends, and then
// returns nil (see ServeConn). The tool "crash" ends the process only if Exit does.
func (srv *Server) Serve(ctx context.Context, r io.Reader, w io.Writer) error {
	var batches atomic.Bool
	served := *srv
	served.onNegotiated = func(revision string) { batches.Store(jsonrpc.HasBatches(revision)) } // ST5
	conn := stdio.Std(r, w, stdio.Options{AcceptBatch: batches.Load})
	err := served.ServeConn(ctx, conn)
	if closing := conn.Close(nil); err == nil {
		err = closing
	}
	return err
}

// errSessionOver is the cause of a session's context when nothing went wrong.
var errSessionOver = errors.New("demo: the session is over")

// ServeConn serves one client until the client has sent its last message and the calls
// in progress are answered or given up (see Drain). Then it returns nil. If something else has
// ended the session, it returns that: the cause of ctx, or the error of conn. Nothing that it has
// started is left running. The caller closes conn.
//
// ServeConn makes *Server a [bridge.Handler].
func (srv *Server) ServeConn(ctx context.Context, conn bridge.Conn) error {
	sealer, err := era.NewSealer()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &session{
		srv:             srv,
		conn:            conn,
		ctx:             ctx,
		fail:            cancel,
		eof:             make(chan struct{}),
		sealer:          sealer,
		calls:           map[jsonrpc.ID]context.CancelFunc{},
		pendingRequests: map[jsonrpc.ID]chan<- jsonrpc.Message{},
		level:           levelInfo,
	}
	err = conn.Receive(ctx, fromClientSink{s})
	close(s.eof) // nobody will answer our requests any more
	if err != io.EOF {
		cancel(fmt.Errorf("demo: receive: %w", err))
	} else {
		drain := srv.Drain
		if drain <= 0 {
			drain = defaultDrain
		}
		t := time.AfterFunc(drain, func() { cancel(errSessionOver) })
		defer t.Stop()
	}
	s.jobs.Wait()
	s.endListens()
	cancel(errSessionOver)
	// The first cause is the one that counts: a failed Send makes Receive fail too.
	if cause := context.Cause(ctx); cause != errSessionOver {
		return cause
	}
	return nil
}

// fromClientSink is the Sink of what the client of a session sends. It takes nothing at once: a message may have to be
// answered, and the client may not read yet.
type fromClientSink struct {
	s *session // the session that handles the messages
}

// TrySend always returns false: it takes no message at once.
func (i fromClientSink) TrySend(jsonrpc.Message) bool { return false }

// Send handles one message from the client.
func (i fromClientSink) Send(_ context.Context, m jsonrpc.Message) error {
	i.s.dispatch(m)
	return nil
}

// session is one conversation with one client.
//
// Requests are handled one by one in the order of arrival, by whoever brings them;
// only what can take long or asks the client gets a goroutine of its own (see Call).
// Modern requests share the connection and the ids in use with the legacy session.
type session struct {
	srv    *Server                 // the server that the session is with
	conn   bridge.Conn             // the connection to the client
	ctx    context.Context         // done when the session ends; all messages are sent under it
	fail   context.CancelCauseFunc // ends the session, with an error or errSessionOver
	eof    chan struct{}           // closed when the client will say nothing more
	sealer *era.Sealer             // seals each requestState, so that the client can neither read nor change it

	jobs sync.WaitGroup // waits for the goroutines of calls

	mu              sync.Mutex                            // guards the fields below; never held while sending or receiving
	clientInfo      clientInfo                            // what the client of the legacy session has said of itself; zero until initialize
	calls           map[jsonrpc.ID]context.CancelFunc     // for each call in progress, by the id of its request, what cancels it
	pendingRequests map[jsonrpc.ID]chan<- jsonrpc.Message // for each of our requests to the client that has no answer yet, the channel that takes it
	lastID          int64                                 // the id of our last request to the client
	level           int                                   // the level of the least severe log messages that the legacy session wants (logging/setLevel), as an index of era.LogLevels; levelInfo at first
	listens         []*listen                             // who is told about changes: the legacy session first, once it is initialized, then the open subscriptions
}

// send sends one message. If that fails, the session ends. It runs under the session's context and not under
// that of a call: a cancelled call must not leave half a message on the wire.
func (s *session) send(m jsonrpc.Message) {
	err := s.conn.Send(s.ctx, m)
	if err == nil {
		return
	}
	select {
	case <-s.eof: // the client has left altogether, which is a clean end too
		s.fail(errSessionOver)
	default:
		s.fail(fmt.Errorf("demo: send: %w", err))
	}
}

// respond answers a request with a result, which is encoded; or with err if that is not nil.
func (s *session) respond(id jsonrpc.ID, result []byte, err error) {
	if err == nil {
		s.send(jsonrpc.NewResult(id, result))
		return
	}
	code, data := jsonrpc.CodeInternalError, []byte(nil)
	var e *rpcError
	if errors.As(err, &e) {
		code = e.code
		if e.data != nil {
			data, _ = encode(e.data) // ours: it can be encoded
		}
	}
	s.send(jsonrpc.NewError(id, code, err.Error(), data))
}

// notify sends a notification. The params hold strings and checked JSON, so
// they can be encoded.
func (s *session) notify(method string, params any) {
	raw, _ := encode(params)
	s.send(jsonrpc.NewNotification(method, raw))
}
