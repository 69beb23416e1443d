// Package metrics counts what an observe.Observer tells, for Prometheus.
//
// Labels are bounded: a method, a protocol version or an error code that is not in a fixed
// list is "_other", and nothing else that a client or server says becomes a label, except the
// names of tools where Options ask for them.
package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// Options tune Metrics. The zero value works.
type Options struct {
	// Servers returns the state of each server, when somebody asks for the metrics. nil: none
	// is told.
	Servers func() []Server

	// NamesInUse returns the names of the servers, and of those that were removed and have not ended yet. The series of all
	// other names are deleted (see Handler). nil: no series is deleted.
	NamesInUse func() []string

	// ToolLabels makes the name of a tool a label of its calls. After 200 names, all others are "_other", as each name above 128
	// bytes is.
	ToolLabels bool
}

// Server is the state of one server.
type Server struct {
	Name          string        // the name of the server
	Ready         bool          // it runs, or nothing is known to prevent its start
	CallsInFlight int           // how many requests of clients wait for an answer
	OldestCallAge time.Duration // the age of the oldest of these, in whole seconds; 0: there is none, or it has not waited for a second
}

// Metrics is an observe.Watcher that counts what it is told, and has the numbers for Prometheus (Handler). Its methods may be called
// concurrently.
type Metrics struct {
	registry   *prometheus.Registry // has all collectors; Handler serves what they tell
	toolLabels *nameLimiter         // chooses which names of tools are labels; nil: none is
	namesInUse func() []string      // Options.NamesInUse: which servers keep their series; nil: all do

	sessions         *prometheus.GaugeVec   // how many sessions of clients are open, by transport, era and server
	sessionDuration  prometheus.Histogram   // how long sessions that have ended lasted
	sessionsEnded    *prometheus.CounterVec // how many sessions have ended, by reason
	requestsRefused  *prometheus.CounterVec // how many requests of clients were refused, by rule and status
	messagesDropped  *prometheus.CounterVec // how many messages reached nobody, by server
	streams          *prometheus.GaugeVec   // how many event streams and WebSockets of clients are open, by server
	streamsResumed   prometheus.Counter     // how many event streams of clients were resumed
	processes        *runningProcesses      // tells of the processes of servers that run
	processStarts    *prometheus.CounterVec // how many processes were started, by server
	processExits     *prometheus.CounterVec // how many processes have ended, by server and how
	processStopSteps *prometheus.CounterVec // how many steps were taken to stop processes, by server and step
	processLifetime  prometheus.Histogram   // how long processes that have ended lived
	stderrLines      *prometheus.CounterVec // how many lines processes wrote to stderr, by server
	noiseLines       *prometheus.CounterVec // how many times a process wrote to stdout what is no message, by server
	notes            *prometheus.CounterVec // how many remarks about traffic there were (observe.Note), by code

	eventMu    sync.Mutex      // held while an event of a server is counted, and while servers are forgotten; guards inProgress
	inProgress map[string]int  // by the name of a server of which there were events: how many sessions, streams and processes it has now
	serverVecs []serverDeleter // the counters and gauges with the label "server"; set by New

	mu        sync.Mutex                                // held while perServer is replaced
	perServer atomic.Pointer[map[string]*serverMetrics] // the numbers about messages, by the name of the server; the map is never changed, but replaced

	lastServer atomic.Pointer[serverMetrics] // the element of perServer for the last message: most often the next one is of the same server; nil: there was none
	overhead   [2]histogram                  // at the index Direction minus 1: how long messages were inside the bridge
}

// callBounds are the upper bounds of the buckets for what takes long: requests, sessions, processes. They are what the OpenTelemetry
// conventions for MCP recommend.
var callBounds = [boundCount]time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute}

// overheadBounds are the upper bounds of the buckets for the time that messages are inside the bridge.
var overheadBounds = [boundCount]time.Duration{10 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond,
	500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	500 * time.Millisecond, time.Second}

// New returns Metrics that count nothing until an Observer tells them.
func New(o Options) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), namesInUse: o.NamesInUse, inProgress: map[string]int{}}
	m.perServer.Store(&map[string]*serverMetrics{})
	for i := range m.overhead {
		m.overhead[i].bounds = &overheadBounds
	}
	if o.ToolLabels {
		m.toolLabels = newNameLimiter(200)
	}
	m.sessions = m.registerGauge("mcp_bridge_sessions", "Sessions of clients that have said who they are.", "transport", "era", "server")
	m.sessionDuration = m.registerHistogram("mcp_server_session_duration_seconds", "How long sessions of clients lasted.").WithLabelValues().(prometheus.Histogram)
	m.sessionsEnded = m.registerCounter("mcp_bridge_sessions_ended_total", "Sessions of clients that have ended, and how.", "reason")
	m.requestsRefused = m.registerCounter("mcp_bridge_refused_total", "Requests of clients that were refused, by the rule.", "rule", "status")
	m.messagesDropped = m.registerCounter("mcp_bridge_dropped_total", "Messages that reached nobody.", "server")
	m.streams = m.registerGauge("mcp_bridge_streams", "Event streams and WebSockets of clients that are open.", "server")
	m.streamsResumed = m.registerCounter("mcp_bridge_stream_resumes_total", "Event streams that were resumed.").WithLabelValues()
	m.processStarts = m.registerCounter("mcp_bridge_child_starts_total", "Processes of servers that were started.", "server")
	m.processExits = m.registerCounter("mcp_bridge_child_exits_total", "Processes of servers that have ended, and how.", "server", "how")
	m.processStopSteps = m.registerCounter("mcp_bridge_child_stop_steps_total", "What it took to stop processes of servers.", "server", "step")
	m.processLifetime = m.registerHistogram("mcp_bridge_child_life_seconds", "How long processes of servers lived.").WithLabelValues().(prometheus.Histogram)
	m.stderrLines = m.registerCounter("mcp_bridge_stderr_lines_total", "Lines that servers wrote to their stderr.", "server")
	m.noiseLines = m.registerCounter("mcp_bridge_noise_lines_total", "Output of servers that is no message.", "server")
	m.notes = m.registerCounter("mcp_bridge_notes_total", "Remarks about traffic that looks wrong, by the code of the diagnosis.", "code")
	m.processes = newRunningProcesses()
	m.registry.MustRegister(newMessageCollector(m), m.processes, &serverCollector{servers: o.Servers}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registerGauge("mcp_bridge_build_info", "Which build of mcp-bridge this is.", "version").WithLabelValues(buildinfo.Version()).Set(1)
	return m
}

// registerCounter makes a counter with these labels, and registers it.
func (m *Metrics) registerCounter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	m.noteServerVec(v, labels)
	return v
}

// registerGauge makes a gauge with these labels, and registers it.
func (m *Metrics) registerGauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	m.noteServerVec(v, labels)
	return v
}

// registerHistogram makes a histogram with these labels and the buckets callBounds, and registers it. None has the label "server":
// it would not be forgotten with a server.
func (m *Metrics) registerHistogram(name, help string, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds(callBounds[:])}, labels)
	m.registry.MustRegister(v)
	return v
}

// seconds returns durations in seconds.
func seconds(all []time.Duration) []float64 {
	f := make([]float64, len(all))
	for i, d := range all {
		f[i] = d.Seconds()
	}
	return f
}

// Handler returns what answers a request with all numbers, in the text format of Prometheus. A server whose name is not in use any
// more is forgotten once its last numbers were in an answer; if it comes back, it begins with 0.
func (m *Metrics) Handler() http.Handler {
	answer := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ended := m.endedServers()
		answer.ServeHTTP(w, r)
		m.forget(ended)
	})
}

// Watch has Metrics count what o tells, until stop is called.
func (m *Metrics) Watch(o *observe.Observer) (stop func()) {
	return o.WatchFor(m, observe.Needs{Names: m.toolLabels != nil})
}

// Event implements observe.Watcher: it counts what events tell of sessions, processes, refusals and other things beside messages.
func (m *Metrics) Event(e observe.Event) {
	if server, change, ok := changeInProgress(e); ok {
		m.eventMu.Lock()
		defer m.eventMu.Unlock()
		m.inProgress[server] += change
	}
	switch e := e.(type) {
	case observe.SessionOpened:
		m.sessions.WithLabelValues(e.Session.Transport, e.Session.Era(), e.Session.Server).Inc()
	case observe.SessionEnded:
		m.sessions.WithLabelValues(e.Session.Transport, e.Session.Era(), e.Session.Server).Dec()
		m.sessionDuration.Observe(e.Lasted.Seconds())
		m.sessionsEnded.WithLabelValues(sessionEndReason(e.Err)).Inc()
	case observe.ProcessStarted:
		m.processStarts.WithLabelValues(e.Server).Inc()
		m.processes.add(e.Server, e.PID)
	case observe.ProcessStopping:
		m.processStopSteps.WithLabelValues(e.Server, e.Step).Inc()
	case observe.ProcessEnded:
		m.processExits.WithLabelValues(e.Server, exitReason(e)).Inc()
		m.processLifetime.Observe(e.Lasted.Seconds())
		m.processes.remove(e.PID)
	case observe.Stderr:
		m.stderrLines.WithLabelValues(e.Server).Inc()
	case observe.Noise:
		m.noiseLines.WithLabelValues(e.Server).Inc()
	case observe.Dropped:
		m.messagesDropped.WithLabelValues(e.Server).Inc()
	case observe.Refused:
		m.requestsRefused.WithLabelValues(e.Rule, strconv.Itoa(e.Status)).Inc()
	case observe.Stream:
		m.countStream(e)
	case observe.Note:
		m.notes.WithLabelValues(e.Code).Inc()
	}
}

// countStream counts a stream between a client and the bridge that was opened, resumed or closed; one with a server does not count.
func (m *Metrics) countStream(e observe.Stream) {
	change := streamChange(e)
	if change == 0 {
		return
	}
	m.streams.WithLabelValues(e.Server).Add(float64(change))
	if e.Action == "resumed" {
		m.streamsResumed.Inc()
	}
}
