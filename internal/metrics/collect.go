package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// serverCollector asks for the state of the servers when somebody wants the metrics. servers is Options.Servers; nil: there is nothing to tell.
type serverCollector struct{ servers func() []Server }

var (
	readyDesc         = prometheus.NewDesc("mcp_bridge_server_ready", "1: the server runs, or nothing speaks against starting it.", []string{"server"}, nil)
	callsInFlightDesc = prometheus.NewDesc("mcp_bridge_calls_in_flight", "Requests of clients that wait for their answers.", []string{"server"}, nil)
	oldestCallDesc    = prometheus.NewDesc("mcp_bridge_oldest_call_seconds", "The age of the request that has waited longest.", []string{"server"}, nil)
	childrenDesc      = prometheus.NewDesc("mcp_bridge_children", "Processes of servers that run.", []string{"server"}, nil)
	childMemoryDesc   = prometheus.NewDesc("mcp_bridge_child_resident_bytes", "Memory of a server's processes and their descendants (Linux).", []string{"server"}, nil)
	childCPUDesc      = prometheus.NewDesc("mcp_bridge_child_cpu_seconds", "CPU time of a server's processes that run, and of their descendants (Linux).", []string{"server"}, nil)
)

// Describe implements prometheus.Collector.
func (s *serverCollector) Describe(all chan<- *prometheus.Desc) {
	all <- readyDesc
	all <- callsInFlightDesc
	all <- oldestCallDesc
}

// Collect implements prometheus.Collector.
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

// runningProcesses is a collector of the number, memory and CPU time of the server processes that run.
type runningProcesses struct {
	mu          sync.Mutex
	serverByPID map[int]string // the name of the server
}

func newRunningProcesses() *runningProcesses { return &runningProcesses{serverByPID: map[int]string{}} }

func (p *runningProcesses) add(server string, pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serverByPID[pid] = server
}

func (p *runningProcesses) remove(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.serverByPID, pid)
}

// Describe implements prometheus.Collector.
func (p *runningProcesses) Describe(all chan<- *prometheus.Desc) {
	all <- childrenDesc
	all <- childMemoryDesc
	all <- childCPUDesc
}

// Collect implements prometheus.Collector.
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
