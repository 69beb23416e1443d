package metrics

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// serverMetrics are the numbers about the messages of one server.
type serverMetrics struct {
	server   string                           // the name of the server
	messages [2][2][messageKinds]messageCount // counts its messages; the indexes are the Hop minus 1, the Direction minus 1, and the Kind

	lastCalls [2]atomic.Pointer[cachedCalls] // at the index Hop minus 1: the histogram that was used last, since most calls are like the one before; nil: there was none

	isForgotten atomic.Bool // the server has ended, and these numbers are not told any more

	mu    sync.Mutex                  // guards calls
	calls map[operationKey]*histogram // how long calls took, by their labels
}

// messageKinds is how many kinds of messages there are: that is one more than the largest jsonrpc.Kind.
const messageKinds = 4

// operationKey are the labels of a call, or (in cachedCalls) the values that they were made of.
type operationKey struct {
	hop                                          observe.Hop // at which end of the bridge the call was seen
	method, tool, errorType, transport, revision string      // the values of the labels; "": there is none; tool is "" without Options.ToolLabels
}

// cachedCalls is the histogram of calls with a key.
type cachedCalls struct {
	key       operationKey // the values as peers have sent them, not yet made labels
	histogram *histogram   // how long such calls took: one of serverMetrics.calls
}

// Message implements observe.Watcher: it counts a message that passes, how long it was in the bridge, and, if it is the response to
// a client's request, how long the call took.
func (m *Metrics) Message(p *observe.Passed) {
	kind := p.Message.Kind()
	s := m.forServer(p.Session.Server)
	c := &s.messages[p.Hop-1][p.Dir-1][kind]
	c.messages.Add(1)
	c.bytes.Add(uint64(p.Message.Size()))
	if p.HasCause {
		m.overhead[p.Dir-1].observe(p.TimeInBridge)
	}
	// A response that the server owed, at either end; what the client owes takes as long as
	// its user.
	if kind == jsonrpc.Response && p.Call != nil && p.Call.Dir == observe.ToServer {
		m.histogramOf(s, p).observe(p.Duration)
	}
}

// forServer returns the serverMetrics of a server, new ones if there are none.
func (m *Metrics) forServer(server string) *serverMetrics {
	if last := m.lastServer.Load(); last != nil && last.server == server && !last.isForgotten.Load() {
		return last
	}
	s := m.findOrAddServer(server)
	m.lastServer.Store(s)
	return s
}

// findOrAddServer returns the serverMetrics that perServer has of a server, and adds new ones if there are none.
func (m *Metrics) findOrAddServer(server string) *serverMetrics {
	if s := (*m.perServer.Load())[server]; s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.perServer.Load()
	if s := old[server]; s != nil {
		return s
	}
	all := make(map[string]*serverMetrics, len(old)+1)
	maps.Copy(all, old)
	s := &serverMetrics{server: server, calls: map[operationKey]*histogram{}}
	all[server] = s
	m.perServer.Store(&all)
	return s
}

// forgetMessages deletes the serverMetrics of a server. Who has them already may still count in them; that is lost.
func (m *Metrics) forgetMessages(server string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(*m.perServer.Load())
	if s := all[server]; s != nil {
		delete(all, server)
		m.perServer.Store(&all)
		s.isForgotten.Store(true)
	}
}

// histogramOf returns the histogram for the duration of the call that a response ends.
func (m *Metrics) histogramOf(s *serverMetrics, p *observe.Passed) *histogram {
	transport, _ := p.Session.Network(p.Hop)
	call := operationKey{hop: p.Hop, method: p.Call.Method, errorType: errorTypeOf(p), transport: transport, revision: p.Session.Revision()}
	if m.toolLabels != nil && p.Call.Method == "tools/call" {
		call.tool = p.Call.Name
	}
	if last := s.lastCalls[p.Hop-1].Load(); last != nil && last.key == call {
		return last.histogram
	}
	k := call
	k.method, k.revision = labelOrOther(knownMethods, call.method), labelOrOther(knownRevisions, call.revision)
	if call.tool != "" {
		k.tool = m.toolLabels.labelOf(call.tool)
	}
	h := s.findOrAddHistogram(k)
	s.lastCalls[p.Hop-1].Store(&cachedCalls{call, h})
	return h
}

// findOrAddHistogram returns the histogram of the calls with labels k, a new one if there is none.
func (s *serverMetrics) findOrAddHistogram(k operationKey) *histogram {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.calls[k]
	if h == nil {
		h = &histogram{bounds: &callBounds}
		s.calls[k] = h
	}
	return h
}
