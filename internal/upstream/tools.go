package upstream

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// schemas is what is known of a server's tools: MI22 has to know
// which arguments of a call also stand in headers.
type schemas struct {
	mu     sync.Mutex
	inputs map[string][]byte // input schemas by tool; nil for those without x-mcp-header
	fresh  time.Time         // until which a tool that is not in it is taken for unknown
	age    uint64            // how often the list has changed
	fetch  *fetch            // that goes on; nil: none does
}

// fetch is one question for the list of tools.
type fetch struct {
	began time.Time
	done  chan struct{}
	err   error // why nobody could be asked; to be read after done
}

// table returns the tools of the servers that have this key. They may differ by
// what a server was told of its client, and of whom.
func (s *Server) table(key unitKey) *schemas {
	key.alone = 0
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tools[key]
	if t == nil {
		if len(s.tools) >= maxTables {
			clear(s.tools)
		}
		t = new(schemas)
		s.tools[key] = t
	}
	return t
}

// maxTables bounds the tables that are kept.
const maxTables = 1000

// maxTools bounds what is kept.
const maxTools = 10_000

const (
	// again is how long a tool that is not in the list is taken for unknown.
	again = 5 * time.Second

	// unheard is how long every tool is that is not known, after the server has
	// not answered.
	unheard = time.Minute

	// fetchWait is how long a call waits for the list of tools; then it is not
	// known which headers it should have, and the server has to see to it.
	fetchWait = 3 * time.Second

	// fetchMost is how long the list itself may take, for the calls that follow.
	// A server may have to be started for it.
	fetchMost = 30 * time.Second
)

func (t *schemas) input(tool string) (schema []byte, known, fresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	schema, known = t.inputs[tool]
	return schema, known, time.Now().Before(t.fresh)
}

func (t *schemas) now() (age uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.age
}

// learn takes the tools of a result of tools/list that was asked for at an age:
// if the list has changed since, they may be those of before.
func (t *schemas) learn(result []byte, age uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.age != age {
		return
	}
	if t.inputs == nil {
		t.inputs = make(map[string][]byte)
	}
	var tools []byte
	for m := range jsonrpc.Members(result) {
		if m.Key == "tools" {
			tools = m.Value
		}
	}
	for _, tool := range jsonrpc.Elements(tools) {
		var name string
		var schema []byte
		for m := range jsonrpc.Members(tool) {
			switch m.Key {
			case "name":
				name, _ = jsonrpc.Text(m.Value)
			case "inputSchema":
				schema = m.Value
			}
		}
		if !bytes.Contains(schema, []byte("x-mcp-header")) && !bytes.ContainsRune(schema, '\\') {
			schema = nil // mostly so
		}
		if _, known := t.inputs[name]; known || len(t.inputs) < maxTools {
			t.inputs[name] = bytes.Clone(schema)
		}
	}
}

// forget is for when the list has changed.
func (t *schemas) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inputs, t.fresh = nil, time.Time{}
	t.age++
}

// forgetTools is for when a server wants other headers than its list of tools
// has called for.
func (s *Server) forgetTools() {
	s.mu.Lock()
	tables := slices.Collect(maps.Values(s.tools))
	s.mu.Unlock() // whoever has a table's lock may want this one
	for _, t := range tables {
		t.forget()
	}
}

// tap is a unit's Conn to its server. It sees the lists of tools pass by, and
// what says that the server's era is another one than was thought (ED9).
type tap struct {
	bridge.PullConn
	unit   *unit
	tools  *schemas
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

func newTap(conn bridge.PullConn, u *unit, f *legacyserver.Filter) *tap {
	return &tap{PullConn: conn, unit: u, filter: f, tools: u.s.table(u.key), asked: make(map[jsonrpc.ID]question)}
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
	t.asked[id] = question{method, t.tools.now()}
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
		t.tools.learn(m.Result(), asked.age)
	case "server/discover":
		if m.IsError() && t.filter == nil {
			t.unit.s.log.Warn("the server has refused server/discover; --protocol says what is spoken with it", "code", string(m.Lookup("error", "code")))
		}
		m = t.unit.s.served(m)
	}
	if m.IsError() && !t.unit.key.legacy && notModern(m) {
		t.unit.doubt()
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
	if m.Lookup("result", "supportedVersions") == nil || s.spec.Clients == era.OnlyLegacy || !answersModern(m) {
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

// notModern reports whether an error says that the server does not speak
// 2026-07-28 (any more). What a status says of that, wonder is told.
func notModern(m jsonrpc.Message) bool {
	return string(m.Lookup("error", "code")) == "-32022" && !answersModern(m)
}

// ToolSchema returns the input schema of the tool that a modern client calls.
// It may be nil when the schema has no x-mcp-header. known is false if the server
// has no such tool, or has not said so by fetchWait after it was asked (MI22).
func (s *Server) ToolSchema(ctx context.Context, call jsonrpc.Message, tool string) (schema []byte, known bool) {
	key, clientInfo, err := s.keyFor(ctx, call)
	if err != nil {
		return nil, false // the call itself will say why
	}
	t := s.table(key)
	schema, known, fresh := t.input(tool)
	if known || fresh { // mostly so
		return schema, known
	}
	patience := time.NewTimer(fetchWait)
	defer patience.Stop()
	// One that goes on may be of before the list has changed, but a server that says
	// so with each list is not asked again and again.
	for asked := 0; asked < 2 && !known && !fresh; asked++ {
		f := s.fetching(ctx, t, func(ctx context.Context) (*member, error) { return s.join(ctx, key, clientInfo, true) }, era.MetaOf(call))
		if f == nil || time.Since(f.began) >= fetchWait { // others have waited for it in vain
			break
		}
		select {
		case <-f.done:
			if f.err != nil {
				return nil, false
			}
		case <-patience.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
		schema, known, fresh = t.input(tool)
	}
	return schema, known
}

// fetching returns the fetch that goes on, which begins if none does. It goes on
// without ctx, of which it has the principal. nil: the Server is closed.
func (s *Server) fetching(ctx context.Context, t *schemas, join func(context.Context) (*member, error), meta era.Meta) *fetch {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fetch != nil {
		return t.fetch
	}
	f := &fetch{began: time.Now(), done: make(chan struct{})}
	age := t.age
	meta.Version, meta.Capabilities = bytes.Clone(meta.Version), bytes.Clone(meta.Capabilities)
	principal := bridge.Principal(ctx)
	if !s.spawn(func() {
		ctx, cancel := context.WithTimeout(bridge.WithPrincipal(s.ctx, principal), fetchMost)
		defer cancel()
		member, err := join(ctx)
		if err == nil {
			fetchTools(ctx, member, meta)
			_ = member.Close()
		}
		t.fetched(f, err, age, ctx.Err() != nil)
	}) {
		return nil
	}
	t.fetch = f
	return f
}

// fetched ends a fetch of the list as it was at an age.
func (t *schemas) fetched(f *fetch, err error, age uint64, silent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fetch, f.err = nil, err
	close(f.done)
	switch now := time.Now(); {
	case t.age != age || err != nil:
	case silent:
		t.fresh = now.Add(unheard)
	default:
		t.fresh = now.Add(again)
	}
}

// maxPages bounds how much of a list is fetched.
const maxPages = 100

// fetchTools asks for the list of tools, which the tap learns.
func fetchTools(ctx context.Context, conn bridge.PullConn, meta era.Meta) {
	head := append([]byte(`{"_meta":{"`+era.KeyVersion+`":`), meta.Version...)
	head = append(append(head, `,"`+era.KeyCapabilities+`":`...), meta.Capabilities...)
	var cursor []byte
	for page := range maxPages {
		params := append(bytes.Clone(head), '}')
		if cursor != nil {
			params = append(append(params, `,"cursor":`...), cursor...)
		}
		id := jsonrpc.IntID(int64(page) + 1)
		if conn.Send(ctx, jsonrpc.NewRequest(id, "tools/list", append(params, '}'))) != nil {
			return
		}
		for {
			m, err := conn.Recv(ctx)
			if err != nil {
				return
			}
			if m.Kind() == jsonrpc.Response && m.ID() == id {
				cursor = m.Lookup("result", "nextCursor")
				break
			}
		}
		if _, more := jsonrpc.Text(cursor); !more {
			return
		}
	}
}
