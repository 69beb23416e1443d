package metrics

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// serverMetrics is what is counted for each message of a server. To look labels up costs more than to count, so
// that is done once.
type serverMetrics struct {
	name     string
	messages [3][3][4]atomic.Pointer[messageCounters] // by hop, direction and kind

	mu         sync.Mutex
	timers     map[operationKey]prometheus.Observer
	lastTimers [3]atomic.Pointer[cachedTimer] // by hop: most calls are like the one before
}

type messageCounters struct {
	count, bytes prometheus.Counter
	overhead     prometheus.Observer
}

// operationKey are the labels of a call. Those that peers choose are bounded.
type operationKey struct {
	hop                                          observe.Hop
	method, tool, errorType, transport, revision string
}

// cachedTimer is what times calls that are alike, and how: as they came, not as labels.
type cachedTimer struct {
	call  operationKey
	timer prometheus.Observer
}

// Message implements observe.Watcher.
func (m *Metrics) Message(p *observe.Passed) {
	kind := p.Message.Kind()
	s := m.forServer(p.Session.Server)
	c := s.messages[p.Hop][p.Dir][kind].Load()
	if c == nil {
		c = m.countersOf(p)
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
		m.timerOf(s, p).Observe(p.Duration.Seconds())
	}
}

// forServer returns what is counted of a server.
func (m *Metrics) forServer(server string) *serverMetrics {
	if last := m.lastServer.Load(); last != nil && last.name == server {
		return last
	}
	s := m.findServer(server)
	m.lastServer.Store(s)
	return s
}

func (m *Metrics) findServer(server string) *serverMetrics {
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
	s := &serverMetrics{name: server, timers: map[operationKey]prometheus.Observer{}}
	all[server] = s
	m.perServer.Store(&all)
	return s
}

func (m *Metrics) countersOf(p *observe.Passed) *messageCounters {
	dir := p.Dir.String()
	values := []string{p.Session.Server, p.Hop.String(), dir, kindName(p.Message.Kind())}
	return &messageCounters{m.messages.WithLabelValues(values...), m.messageBytes.WithLabelValues(values...), m.overhead.WithLabelValues(dir)}
}

// timerOf returns what the call of a response is timed with.
func (m *Metrics) timerOf(s *serverMetrics, p *observe.Passed) prometheus.Observer {
	transport, _ := p.Session.Network(p.Hop)
	call := operationKey{hop: p.Hop, method: p.Call.Method, errorType: errorTypeOf(p), transport: transport, revision: p.Session.Revision()}
	if m.tools != nil && p.Call.Method == "tools/call" {
		call.tool = p.Call.Name
	}
	if last := s.lastTimers[p.Hop].Load(); last != nil && last.call == call {
		return last.timer
	}
	k := call
	k.method, k.revision = labelOrOther(methodLabels, call.method), labelOrOther(revisionLabels, call.revision)
	if call.tool != "" {
		k.tool = m.tools.labelOf(call.tool)
	}
	t := m.timer(s, p.Session.Server, k)
	s.lastTimers[p.Hop].Store(&cachedTimer{call, t})
	return t
}

func (m *Metrics) timer(s *serverMetrics, server string, k operationKey) prometheus.Observer {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.timers[k]
	if t == nil {
		values := []string{k.method, k.errorType, k.transport, k.revision, server}
		if m.tools != nil {
			values = append(values, k.tool)
		}
		t = m.callDurations[k.hop-1].WithLabelValues(values...)
		s.timers[k] = t
	}
	return t
}
