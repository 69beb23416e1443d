package metrics

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// serverMetrics are the counters for messages of one server. To look labels up costs more than to count, so
// each counter is looked up once.
type serverMetrics struct {
	server   string
	messages [3][3][4]atomic.Pointer[messageCounters] // by hop, direction and kind

	mu                 sync.Mutex // of callHistograms
	callHistograms     map[operationKey]prometheus.Observer
	lastCallHistograms [3]atomic.Pointer[cachedCallHistogram] // by hop: most calls are like the one before
}

// messageCounters count the messages of one server, hop, direction and kind.
type messageCounters struct {
	count, bytes prometheus.Counter
	overhead     prometheus.Observer
}

// operationKey are the labels of a call, or (in cachedCallHistogram) the values that they were made of.
type operationKey struct {
	hop                                          observe.Hop
	method, tool, errorType, transport, revision string
}

// cachedCallHistogram is the histogram of calls with a key. The key has the values as peers have sent them, not yet made labels.
type cachedCallHistogram struct {
	key       operationKey
	histogram prometheus.Observer
}

// Message implements observe.Watcher.
func (m *Metrics) Message(p *observe.Passed) {
	kind := p.Message.Kind()
	s := m.forServer(p.Session.Server)
	c := s.messages[p.Hop][p.Dir][kind].Load()
	if c == nil {
		c = m.messageCountersOf(p)
		s.messages[p.Hop][p.Dir][kind].Store(c)
	}
	c.count.Inc()
	c.bytes.Add(float64(p.Message.Size()))
	if p.CauseSeq != 0 {
		c.overhead.Observe(p.TimeInBridge.Seconds())
	}
	// A response that the server owed, at either end; what the client owes takes as long as
	// its user.
	if kind == jsonrpc.Response && p.Call != nil && p.Call.Dir == observe.ToServer {
		m.callHistogramOf(s, p).Observe(p.Duration.Seconds())
	}
}

// forServer returns the serverMetrics of a server.
func (m *Metrics) forServer(server string) *serverMetrics {
	if last := m.lastServer.Load(); last != nil && last.server == server {
		return last
	}
	s := m.findOrAddServer(server)
	m.lastServer.Store(s)
	return s
}

// findOrAddServer is forServer without a look at the last one.
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
	s := &serverMetrics{server: server, callHistograms: map[operationKey]prometheus.Observer{}}
	all[server] = s
	m.perServer.Store(&all)
	return s
}

func (m *Metrics) messageCountersOf(p *observe.Passed) *messageCounters {
	dir := p.Dir.String()
	values := []string{p.Session.Server, p.Hop.String(), dir, kindName(p.Message.Kind())}
	return &messageCounters{m.messages.WithLabelValues(values...), m.messageBytes.WithLabelValues(values...), m.overhead.WithLabelValues(dir)}
}

// callHistogramOf returns the histogram for the duration of the call that a response ends.
func (m *Metrics) callHistogramOf(s *serverMetrics, p *observe.Passed) prometheus.Observer {
	transport, _ := p.Session.Network(p.Hop)
	call := operationKey{hop: p.Hop, method: p.Call.Method, errorType: errorTypeOf(p), transport: transport, revision: p.Session.Revision()}
	if m.toolLabels != nil && p.Call.Method == "tools/call" {
		call.tool = p.Call.Name
	}
	if last := s.lastCallHistograms[p.Hop].Load(); last != nil && last.key == call {
		return last.histogram
	}
	k := call
	k.method, k.revision = labelOrOther(knownMethods, call.method), labelOrOther(knownRevisions, call.revision)
	if call.tool != "" {
		k.tool = m.toolLabels.labelOf(call.tool)
	}
	t := m.callHistogram(s, p.Session.Server, k)
	s.lastCallHistograms[p.Hop].Store(&cachedCallHistogram{call, t})
	return t
}

// callHistogram returns the histogram with the labels k.
func (m *Metrics) callHistogram(s *serverMetrics, server string, k operationKey) prometheus.Observer {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.callHistograms[k]
	if t == nil {
		values := []string{k.method, k.errorType, k.transport, k.revision, server}
		if m.toolLabels != nil {
			values = append(values, k.tool)
		}
		t = m.callDurations[k.hop-1].WithLabelValues(values...)
		s.callHistograms[k] = t
	}
	return t
}
