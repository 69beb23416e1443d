// Package demo is a small MCP server that shows everything a client can meet:
// tools with progress and cancellation, requests to the client, resources that
// change, prompts with completion, errors, and a crash on demand.
//
// It is the quick start of mcp-bridge and the fixture of its tests. It is
// written on package jsonrpc alone, not on an SDK, so that it neither hides
// nor repairs what a bridge does to the messages on the way.
//
// It speaks both eras of MCP on one connection, without a mode: a request
// that claims a modern version in its _meta is served by itself, as 2026-07-28
// wants it, and all else belongs to the session that initialize opens, in one
// of the revisions 2024-11-05 to 2025-11-25 (ST14). The tools are the same; what
// the eras do differently with a request is a face.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Defaults and limits.
const (
	defaultClock = time.Second
	defaultDrain = time.Second
	askTimeout   = 10 * time.Minute // a person may have to answer
	maxCalls     = 256              // tools/call in flight per session
	maxListens   = 64               // subscriptions/listen open per session
)

// Server is the demo server. The zero value works. It is immutable while in
// use; one Server may serve any number of sessions at once, and sessions share
// nothing.
type Server struct {
	// Version is what serverInfo reports; empty means that of the build.
	Version string

	// Clock is how often demo://clock changes; zero means 1 s.
	Clock time.Duration

	// Drain is how long calls in progress may go on after the client's end
	// of input; zero means 1 s. What is then unfinished is dropped.
	Drain time.Duration

	// Exit ends the process for the tool "crash". With nil, as when many
	// sessions live in one process, that tool only reports an error.
	Exit func(status int)

	// Stderr takes what the tools "crash" and "stderr" write; nil discards it.
	// It must be safe for concurrent use, as an *os.File is.
	Stderr io.Writer

	// Conformance adds the tools, prompts and resources that the official
	// conformance suite asks for by name, and puts each list on one page,
	// because the suite reads one only.
	Conformance bool

	// Environ lists the "K=V" pairs whose names the tool "env" tells; nil means os.Environ().
	Environ []string

	negotiated func(revision string) // told the revision of the session; nil is fine
}

// errSessionOver is why a session's context ends when nothing went wrong.
var errSessionOver = errors.New("demo: the session is over")

// ServeConn serves one client until it has sent its last message and the calls
// in progress are answered or given up (see Drain). It then returns nil, and
// otherwise what ended the session: ctx's cause, or the error of conn. Nothing it
// started is left running. The caller closes conn.
//
// ServeConn makes *Server a [bridge.Handler].
func (srv *Server) ServeConn(ctx context.Context, conn bridge.Conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &session{
		srv:     srv,
		conn:    conn,
		ctx:     ctx,
		fail:    cancel,
		eof:     make(chan struct{}),
		calls:   map[jsonrpc.ID]context.CancelFunc{},
		pending: map[jsonrpc.ID]chan<- jsonrpc.Message{},
		level:   levelInfo,
		subs:    map[string]bool{},
		signer:  newSigner(),
	}
	err := s.receive()
	close(s.eof) // nobody will answer our requests any more
	if err != nil {
		cancel(err)
	} else {
		t := time.AfterFunc(orDefault(srv.Drain, defaultDrain), func() { cancel(errSessionOver) })
		defer t.Stop()
	}
	s.stopClock()
	s.running.Wait()
	s.endListens()
	cancel(errSessionOver)
	// The first cause is the one that counts: a failed Send makes Receive fail too.
	if cause := context.Cause(ctx); cause != errSessionOver {
		return cause
	}
	return nil
}

// receive takes messages until the end of input (nil), or until the session fails.
func (s *session) receive() error {
	if err := s.conn.Receive(s.ctx, inbox{s}); err != io.EOF {
		return fmt.Errorf("demo: receive: %w", err)
	}
	return nil
}

// inbox is the Sink of a session. It takes nothing at once: a message may have to be
// answered, and the client may not read yet.
type inbox struct{ s *session }

func (i inbox) TrySend(jsonrpc.Message) bool { return false }

func (i inbox) Send(_ context.Context, m jsonrpc.Message) error {
	i.s.dispatch(m)
	return nil
}

func orDefault(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}

func (srv *Server) stderr() io.Writer {
	if srv.Stderr == nil {
		return io.Discard
	}
	return srv.Stderr
}

func (srv *Server) environ() []string {
	if srv.Environ == nil {
		return os.Environ()
	}
	return srv.Environ
}

// session is one conversation with one client.
//
// Requests are handled one by one in the order of arrival, by whoever brings them;
// only what can take long or asks the client gets one of its own (see job).
// Modern requests share with the legacy session what belongs to this process:
// the connection, the ids in use, and whether "extra" is there.
type session struct {
	srv  *Server
	conn bridge.Conn
	ctx  context.Context         // of the session: what is sent is sent under it
	fail context.CancelCauseFunc // ends the session
	eof  chan struct{}           // closed when the client will say nothing more

	running sync.WaitGroup // calls

	clock  *clock // the ticking of demo://clock; only dispatch uses it, and ServeConn afterwards
	signer signer // of requestState

	mu           sync.Mutex // guards the rest; never held while sending or receiving
	hello        clientInfo // of the legacy session; zero until initialize
	calls        map[jsonrpc.ID]context.CancelFunc
	pending      map[jsonrpc.ID]chan<- jsonrpc.Message // our requests to the client
	lastID       int64                                 // of our requests
	elicitations int64                                 // in mode url
	level        int                                   // logging/setLevel
	subs         map[string]bool                       // resources subscribed to in the legacy session
	listens      []*listen                             // open subscriptions/listen, the oldest first
	extra        bool                                  // whether tool "extra" is there
	extraPrompt  bool                                  // whether prompt "extra" is there
}
