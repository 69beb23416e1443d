package schemas

import (
	"bytes"
	"context"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// unknownToolTTL is how long after the list was fetched a tool that is not in it counts as unknown, without
	// asking again.
	unknownToolTTL = 5 * time.Second

	// unansweredListTTL is how long after a request for the list that the server has not answered an unknown
	// tool counts as unknown, without asking again.
	unansweredListTTL = time.Minute

	// maxFetchWait is how long a call waits for the list of tools. After that nobody here knows which headers
	// the call should have, and the server has to check them.
	maxFetchWait = 3 * time.Second

	// fetchTimeout is how long fetching the list may take, also after no call waits for it any more. A server
	// may have to be started for it.
	fetchTimeout = 30 * time.Second

	// maxPages is how many pages of a list are fetched.
	maxPages = 100
)

// A Source says how a Table asks its server for the list of tools.
type Source struct {
	// Join returns a Conn to the server, whose answers to tools/list the Table learns
	// by itself.
	Join func(ctx context.Context) (bridge.Conn, error)

	// Spawn runs f in a goroutine of its own, with a ctx that does not end with the call for which it is asked.
	// false: it is too late for that, and f does not run.
	Spawn func(f func(ctx context.Context)) bool

	// Meta is the _meta of the request: version and capabilities are taken from it.
	Meta era.Meta
}

// Schema returns the input schema of a tool, after asking the server (from) for its list if need be. schema may
// be nil when it would have no x-mcp-header. known is false if the server has no such tool, could not be asked, or has
// not sent its list within 3 seconds after it was asked (MI22).
func (t *Table) Schema(ctx context.Context, tool string, from Source) (schema []byte, known bool) {
	schema, known, fresh := t.input(tool)
	if known || fresh { // mostly so
		return schema, known
	}
	waitTimer := time.NewTimer(maxFetchWait)
	defer waitTimer.Stop()
	// One that goes on may be of before the list has changed, but a server that says
	// so with each list is not asked again and again.
	for asked := 0; asked < 2 && !known && !fresh; asked++ {
		f := t.startFetch(from)
		if f == nil || time.Since(f.began) >= maxFetchWait { // others have waited for it in vain
			break
		}
		select {
		case <-f.done:
			if f.err != nil {
				return nil, false
			}
		case <-waitTimer.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
		schema, known, fresh = t.input(tool)
	}
	return schema, known
}

// A fetch is one request for the list of tools, for all calls that wait for it.
type fetch struct {
	began time.Time     // when the fetch began
	done  chan struct{} // closed when the fetch is over
	err   error         // why the server could not be asked; nil: it could. To be read once done is closed
}

// startFetch returns the fetch in progress, or begins one; nil: none can begin.
func (t *Table) startFetch(from Source) *fetch {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fetch != nil {
		return t.fetch
	}
	f := &fetch{began: time.Now(), done: make(chan struct{})}
	listVersion, meta := t.listVersion, from.Meta
	meta.Version, meta.Capabilities = bytes.Clone(meta.Version), bytes.Clone(meta.Capabilities)
	if !from.Spawn(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
		defer cancel()
		conn, err := from.Join(ctx)
		if err == nil {
			listTools(ctx, conn, meta)
			_ = conn.Close(nil)
		}
		t.endFetch(f, err, listVersion, ctx.Err() != nil)
	}) {
		return nil
	}
	t.fetch = f
	return f
}

// endFetch ends the fetch f, which has begun at listVersion. err says why the server could not be asked; nil: it could.
// silent: the server has not answered in time.
func (t *Table) endFetch(f *fetch, err error, listVersion uint64, silent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fetch, f.err = nil, err
	close(f.done)
	switch now := time.Now(); {
	case t.listVersion != listVersion || err != nil:
	case silent:
		t.freshUntil = now.Add(unansweredListTTL)
	default:
		t.freshUntil = now.Add(unknownToolTTL)
	}
}

// listTools asks for the list of tools over conn, page by page, and waits for the last page. What conn does
// with the answers is not its business.
func listTools(ctx context.Context, conn bridge.Conn, meta era.Meta) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	meta = era.Meta{Version: meta.Version, Capabilities: meta.Capabilities} // the question is not the client's
	l := &toolLister{conn: conn, requestHead: append([]byte(`{"_meta":`), meta.Object()...), done: cancel}
	if l.ask(ctx, nil) == nil {
		_ = conn.Receive(ctx, l)
	}
}

// A toolLister is the Sink of listTools: it asks for the next page when one has come.
type toolLister struct {
	conn        bridge.Conn        // the Conn over which it asks
	requestHead []byte             // the params of a request as JSON, without the cursor and the last brace
	pages       int64              // how many pages were asked for, which is the id of the last request
	done        context.CancelFunc // ends Receive
}

// ask asks for the page at a cursor (raw JSON); nil: for the first one. The error is that of sending.
func (l *toolLister) ask(ctx context.Context, cursor []byte) error {
	params := bytes.Clone(l.requestHead)
	if cursor != nil {
		params = append(append(params, `,"cursor":`...), cursor...)
	}
	l.pages++
	return l.conn.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(l.pages), "tools/list", append(params, '}')))
}

// TrySend implements bridge.Sink. It takes everything but the page that was asked for, and drops what it takes.
func (l *toolLister) TrySend(m jsonrpc.Message) bool {
	return m.Kind() != jsonrpc.Response || m.ID() != jsonrpc.IntID(l.pages)
}

// Send implements bridge.Sink: when the page that was asked for comes, it asks for the next one, or ends
// Receive.
func (l *toolLister) Send(ctx context.Context, m jsonrpc.Message) error {
	if l.TrySend(m) {
		return nil
	}
	cursor := m.Lookup("result", "nextCursor")
	if _, more := jsonrpc.Text(cursor); more && l.pages < maxPages {
		return l.ask(ctx, cursor)
	}
	l.done()
	return nil
}
