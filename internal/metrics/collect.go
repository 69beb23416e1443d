package metrics

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// serverCollector asks for the state of the servers when somebody wants the metrics. servers is Options.Servers; nil: there is nothing to tell.
type serverCollector struct{ servers func() []Server }

// The descriptions of the metrics: serverCollector tells the first three, and runningProcesses the others.
var (
	readyDesc         = prometheus.NewDesc("mcp_bridge_server_ready", "1: the server runs, or nothing speaks against starting it.", []string{"server"}, nil)
	callsInFlightDesc = prometheus.NewDesc("mcp_bridge_calls_in_flight", "Requests of clients that wait for their answers.", []string{"server"}, nil)
	oldestCallDesc    = prometheus.NewDesc("mcp_bridge_oldest_call_seconds", "The age of the request that has waited longest.", []string{"server"}, nil)
	childrenDesc      = prometheus.NewDesc("mcp_bridge_children", "Processes of servers that run.", []string{"server"}, nil)
	childMemoryDesc   = prometheus.NewDesc("mcp_bridge_child_resident_bytes", "Memory of a server's processes and their descendants (Linux).", []string{"server"}, nil)
	childCPUDesc      = prometheus.NewDesc("mcp_bridge_child_cpu_seconds", "CPU time of a server's processes that run, and of their descendants (Linux).", []string{"server"}, nil)
)

// Describe implements prometheus.Collector: it sends the descriptions of all that Collect tells.
func (s *serverCollector) Describe(all chan<- *prometheus.Desc) {
	all <- readyDesc
	all <- callsInFlightDesc
	all <- oldestCallDesc
}

// Collect implements prometheus.Collector: it tells whether each server is ready, how many calls are in flight there, and how old
// the oldest is.
func (s *serverCollector) Collect(all chan<- prometheus.Metric) {
	if s.servers == nil {
		return
	}
	for _, one := range s.servers() {
		ready := 0.0
		if one.Ready {
			ready = 1
		}
		all <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, ready, one.Name)
		all <- prometheus.MustNewConstMetric(callsInFlightDesc, prometheus.GaugeValue, float64(one.CallsInFlight), one.Name)
		all <- prometheus.MustNewConstMetric(oldestCallDesc, prometheus.GaugeValue, one.OldestCallAge.Seconds(), one.Name)
	}
}

// messageCollector gives client_golang the numbers that messages have changed.
type messageCollector struct {
	metrics         *Metrics            // has the numbers
	calls           [2]*prometheus.Desc // at the index Hop minus 1: descriptions of the histograms of how long calls took, as seen there
	messages, bytes *prometheus.Desc    // descriptions of the counters of messages, and of their bytes
	overhead        *prometheus.Desc    // description of the histogram of how long messages were inside the bridge
}

// newMessageCollector returns the collector of the numbers that m has of messages.
func newMessageCollector(m *Metrics) *messageCollector {
	labels := []string{"mcp_method_name", "error_type", "network_transport", "mcp_protocol_version", "server"}
	if m.toolLabels != nil {
		labels = append(labels, "gen_ai_tool_name")
	}
	message := []string{"server", "hop", "dir", "kind"}
	return &messageCollector{
		metrics: m,
		calls: [2]*prometheus.Desc{
			prometheus.NewDesc("mcp_server_operation_duration_seconds", "How long requests took, as the client has seen it.", labels, nil),
			prometheus.NewDesc("mcp_client_operation_duration_seconds", "How long requests took, as the bridge has seen it at the server.", labels, nil),
		},
		messages: prometheus.NewDesc("mcp_bridge_messages_total", "Messages at both ends of the bridge.", message, nil),
		bytes:    prometheus.NewDesc("mcp_bridge_message_bytes_total", "Bytes of messages at both ends of the bridge.", message, nil),
		overhead: prometheus.NewDesc("mcp_bridge_overhead_seconds", "How long messages were inside the bridge.", []string{"dir"}, nil),
	}
}

// Describe implements prometheus.Collector: it sends the descriptions of all that Collect tells.
func (c *messageCollector) Describe(all chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.calls[0], c.calls[1], c.messages, c.bytes, c.overhead} {
		all <- d
	}
}

// Collect implements prometheus.Collector: it tells how many messages passed, how large they were, how long they were in the
// bridge, and how long calls took.
func (c *messageCollector) Collect(all chan<- prometheus.Metric) {
	for i := range c.metrics.overhead {
		all <- c.metrics.overhead[i].metric(c.overhead, observe.Direction(i+1).String())
	}
	for _, s := range *c.metrics.perServer.Load() {
		c.collectMessages(s, all)
		c.collectCalls(s, all)
	}
}

// collectMessages collects how many messages of a server there were, and how large, for each hop, direction and kind that there was.
func (c *messageCollector) collectMessages(s *serverMetrics, all chan<- prometheus.Metric) {
	for hop := range s.messages {
		for dir := range s.messages[hop] {
			for kind := range s.messages[hop][dir] {
				count := &s.messages[hop][dir][kind]
				n := count.messages.Load()
				if n == 0 {
					continue
				}
				labels := []string{s.server, observe.Hop(hop + 1).String(), observe.Direction(dir + 1).String(), kindName(jsonrpc.Kind(kind))}
				all <- prometheus.MustNewConstMetric(c.messages, prometheus.CounterValue, float64(n), labels...)
				all <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, float64(count.bytes.Load()), labels...)
			}
		}
	}
}

// collectCalls collects how long calls of a server took.
func (c *messageCollector) collectCalls(s *serverMetrics, all chan<- prometheus.Metric) {
	s.mu.Lock()
	calls := maps.Clone(s.calls)
	s.mu.Unlock()
	for k, h := range calls {
		labels := []string{k.method, k.errorType, k.transport, k.revision, s.server}
		if c.metrics.toolLabels != nil {
			labels = append(labels, k.tool)
		}
		all <- h.metric(c.calls[k.hop-1], labels...)
	}
}

// runningProcesses is a collector of the number, memory and CPU time of the server processes that run.
type runningProcesses struct {
	mu          sync.Mutex     // guards serverByPID
	serverByPID map[int]string // by process id: the name of the server whose process it is
}

// newRunningProcesses returns a collector that knows of no process so far.
func newRunningProcesses() *runningProcesses { return &runningProcesses{serverByPID: map[int]string{}} }

// add notes that the process with this id runs, for the server with this name.
func (p *runningProcesses) add(server string, pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serverByPID[pid] = server
}

// remove notes that the process with this id has ended.
func (p *runningProcesses) remove(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.serverByPID, pid)
}

// Describe implements prometheus.Collector: it sends the descriptions of all that Collect tells.
func (p *runningProcesses) Describe(all chan<- *prometheus.Desc) {
	all <- childrenDesc
	all <- childMemoryDesc
	all <- childCPUDesc
}

// Collect implements prometheus.Collector: it tells how many processes of each server run, and on Linux their memory and CPU time.
func (p *runningProcesses) Collect(all chan<- prometheus.Metric) {
	running := map[string][]int{}
	p.mu.Lock()
	for pid, server := range p.serverByPID {
		running[server] = append(running[server], pid)
	}
	p.mu.Unlock()
	for server, pids := range running {
		all <- prometheus.MustNewConstMetric(childrenDesc, prometheus.GaugeValue, float64(len(pids)), server)
		if u, ok := supervisor.UsageOf(pids...); ok {
			all <- prometheus.MustNewConstMetric(childMemoryDesc, prometheus.GaugeValue, float64(u.Resident), server)
			all <- prometheus.MustNewConstMetric(childCPUDesc, prometheus.GaugeValue, u.CPU.Seconds(), server)
		}
	}
}
