package upstream

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/schemas"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/sharing"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// connector is the Dialer of one shared server: its Conns speak modern, whatever the
// server speaks. It learns what passes by about the server's tools and its era.
type connector struct {
	s      *Server
	shared *sharing.Server
	tools  *schemas.Table
	filter atomic.Pointer[legacyserver.Filter] // of a legacy server, once it was started

	starts, failed int // of servers; failed: ended at the question which era they speak. Only Dial uses them
}

// connector is what sharing.Options say of Connect.
func (s *Server) connector(shared *sharing.Server) (bridge.Dialer, func() bool) {
	c := &connector{s: s, shared: shared, tools: s.table(shared.Key)}
	return c, c.parked
}

// parked reports whether calls wait for their clients in the server.
func (c *connector) parked() bool {
	f := c.filter.Load()
	return f != nil && f.Parked() > 0
}

// Dial starts the server, or connects to it, as one that speaks modern. It is
// what the Mux calls.
func (c *connector) Dial(ctx context.Context) (bridge.Conn, error) {
	return bridge.PushDialed(c.dial(ctx))
}

func (c *connector) dial(ctx context.Context) (bridge.PullConn, error) {
	ctx = bridge.WithParty(ctx, c.shared.Party)
	if c.shared.Key.Legacy {
		return c.dialLegacy(ctx)
	}
	var conn bridge.PullConn
	if spare := c.s.prober.TakeSpare(); spare != nil {
		spare.Holder.Give(c.shared)
		conn = spare.Conn
	} else {
		var err error
		if conn, err = c.s.dialAdmitted(ctx, c.s.dialers.modern, c.shared); err != nil {
			return nil, err
		}
		if err := c.check(ctx, conn); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	c.starts++
	return newTap(&discreet{PullConn: conn, of: c}, c, nil), nil
}

func (c *connector) dialLegacy(ctx context.Context) (bridge.PullConn, error) {
	conn, err := c.s.dialAdmitted(ctx, c.s.legacyDialer(), c.shared)
	if err != nil {
		return nil, err
	}
	conn = &discreet{PullConn: conn, of: c, asked: true}
	f := legacyserver.New(legacyserver.Options{
		Capabilities: []byte(c.shared.Key.Capabilities), ClientInfo: c.shared.ClientInfo,
		Principal: c.shared.Key.Principal, Unit: c.shared.ID(), Instance: rand.Text(), Sealer: c.s.sealer,
		ParkTimeout: c.s.spec.ParkTimeout,
	})
	c.filter.Store(f)
	return newTap(bridge.Pull(translate.Wrap(bridge.Push(conn), f, c.s.spec.Dropped)), c, f), nil
}

// maxFailed is how many servers in a row may end at the question which era
// they speak. An older one may do just that.
const maxFailed = 3

// check asks a process that takes the place of one that has ended whether it
// still speaks 2026-07-28: what it is started from may have changed. (A server
// at a URL says so with each answer.)
func (c *connector) check(ctx context.Context, conn bridge.PullConn) error {
	if c.starts == 0 || c.s.spec.Protocol != era.Auto || c.s.isHTTP() {
		return nil
	}
	modern, err := c.s.prober.Discover(ctx, conn)
	switch {
	case modern:
		c.failed = 0
		return nil
	case err != nil:
		if c.failed++; c.failed < maxFailed {
			return err
		}
	}
	if !c.suspect() {
		return err
	}
	return probe.ErrChanged
}

// suspect ends the shared server if it may be one of the other era by now: the next client
// finds out. A server at an http URL is asked first. It reports whether it has ended it.
func (c *connector) suspect() bool {
	if !c.s.prober.Suspect() {
		return false
	}
	c.shared.ShutDown(probe.ErrChanged)
	return true
}

// discreet is a Conn to a server that clients share. How the server has ended is
// said to all of them, but not its last words on stderr: they may be about one.
type discreet struct {
	bridge.PullConn
	of    *connector
	asked bool // initialize, which is not answered yet; only Recv uses it
}

// TrySender passes on what the Conn has.
func (d *discreet) TrySender() func(jsonrpc.Message) bool { return bridge.TrySender(d.PullConn) }

func (d *discreet) Recv(ctx context.Context) (jsonrpc.Message, error) {
	m, err := d.PullConn.Recv(ctx)
	if m.Kind() == jsonrpc.Notification && m.Method() == "notifications/tools/list_changed" {
		d.of.tools.Forget() // nobody may listen, and then it goes no further
	}
	if d.asked && m.Kind() == jsonrpc.Response {
		d.asked = false
		claimed := probe.ClaimsModern(m)
		if m.IsError() && m.Lookup("error", "data", "reason") == nil { // else there is no server
			d.of.s.log.Warn("the server has refused initialize; --protocol says what is spoken with it", "code", string(m.Lookup("error", "code")))
		} else if claimed != "" {
			d.of.s.log.Warn("the server has answered initialize with a version that has none; --protocol says what is spoken with it", "version", claimed)
		}
		switch {
		case !m.IsError() && claimed == "":
		case d.of.s.spec.Protocol == era.Auto && probe.AnswersModern(m): // it says so itself
			d.of.s.prober.Said(true)
			d.of.shared.ShutDown(probe.ErrChanged)
		default:
			d.of.suspect()
		}
	}
	if exit, ok := errors.AsType[*stdio.ExitError](err); ok {
		err = &stdio.ExitError{Name: exit.Name, Err: exit.Err}
	}
	return m, err
}

// tap is a shared server's Conn. It sees the lists of tools pass by, and
// what says that the server's era is another one than was thought (ED9).
type tap struct {
	bridge.PullConn
	of     *connector
	tools  *schemas.Table
	filter *legacyserver.Filter // nil: the server is a modern one

	mu        sync.Mutex
	asked     map[jsonrpc.ID]question // tools/list and server/discover in progress
	discovers []jsonrpc.ID            // the server/discover that were asked last
}

type question struct {
	method string
	age    uint64 // of the list of tools
}

// maxDiscovers is how many server/discover one is looked for behind: who has
// given it up does not say so, and the server may never answer it.
const maxDiscovers = 1000

func newTap(conn bridge.PullConn, c *connector, f *legacyserver.Filter) *tap {
	return &tap{PullConn: conn, of: c, filter: f, tools: c.tools, asked: make(map[jsonrpc.ID]question)}
}

func (t *tap) Send(ctx context.Context, m jsonrpc.Message) error {
	switch method := m.Method(); method {
	case "tools/list", "server/discover":
		t.note(m.ID(), method)
	case "notifications/cancelled":
		t.mu.Lock()
		delete(t.asked, m.RequestID())
		t.mu.Unlock()
	}
	return t.PullConn.Send(ctx, m)
}

// note keeps what is asked, until it is answered.
func (t *tap) note(id jsonrpc.ID, method string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[id] = question{method, t.tools.Age()}
	if method != "server/discover" {
		return
	}
	if t.discovers = append(t.discovers, id); len(t.discovers) > maxDiscovers {
		delete(t.asked, t.discovers[0])
		t.discovers = t.discovers[1:]
	}
}

// lastAnswers is how long what a server still owes may take that could not be
// initialized.
const lastAnswers = 100 * time.Millisecond

// errInitialize ends a server that could not be initialized: the next may (D4).
var errInitialize = errors.New("the server could not be initialized")

// TrySender is what bridge.TrySender says, of all that need not be noted first.
func (t *tap) TrySender() func(jsonrpc.Message) bool {
	try := bridge.TrySender(t.PullConn)
	if try == nil {
		return nil
	}
	return func(m jsonrpc.Message) bool {
		switch m.Method() {
		case "tools/list", "server/discover", "notifications/cancelled":
			return false
		}
		return try(m)
	}
}

// Feed hands on what comes from the server. It ends with errInitialize when that
// could not be initialized, once all is said.
func (t *tap) Feed(ctx context.Context, sink func(jsonrpc.Message)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var last *time.Timer
	err := bridge.Feed(ctx, t.PullConn, func(m jsonrpc.Message) {
		sink(t.seen(m))
		if f := t.filter; last == nil && f != nil && f.Failed() {
			last = time.AfterFunc(lastAnswers, func() { cancel(errInitialize) })
		}
	})
	if last != nil {
		last.Stop()
	}
	if context.Cause(ctx) == errInitialize {
		return errInitialize
	}
	return err
}

// Recv is Feed for one message, of a server that was initialized.
func (t *tap) Recv(ctx context.Context) (jsonrpc.Message, error) {
	m, err := t.PullConn.Recv(ctx)
	if err != nil {
		return m, err
	}
	return t.seen(m), nil
}

// seen looks at what the server has said, and returns what clients get of it.
func (t *tap) seen(m jsonrpc.Message) jsonrpc.Message {
	if m.Kind() != jsonrpc.Response {
		return m
	}
	switch asked := t.answered(m); asked.method {
	case "tools/list":
		t.tools.Learn(m.Result(), asked.age)
	case "server/discover":
		if m.IsError() && t.filter == nil {
			t.of.s.log.Warn("the server has refused server/discover; --protocol says what is spoken with it", "code", string(m.Lookup("error", "code")))
		}
		m = t.of.s.served(m)
	}
	if m.IsError() && !t.of.shared.Key.Legacy && probe.RefusesModern(m) {
		t.of.suspect()
	}
	return m
}

// answered returns what m answers, if that is of interest.
func (t *tap) answered(m jsonrpc.Message) (asked question) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.asked) == 0 {
		return question{}
	}
	asked = t.asked[m.ID()]
	delete(t.asked, m.ID())
	return asked
}

// served returns the answer to server/discover with the versions that clients
// may speak to us: the bridge understands more than its server (MI9).
func (s *Server) served(m jsonrpc.Message) jsonrpc.Message {
	if m.Lookup("result", "supportedVersions") == nil || s.spec.Clients == era.OnlyLegacy || !probe.AnswersModern(m) {
		return m
	}
	list := []byte{'['}
	for i, v := range s.spec.Clients.Versions() {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, jsonrpc.Quote(v)...)
	}
	return m.WithResult(jsonrpc.With(m.Result(), "supportedVersions", append(list, ']')))
}
