package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// A serverDeleter is a vector of counters or gauges. DeletePartialMatch deletes those of its series that have labels, perhaps beside
// others, and returns how many there were.
type serverDeleter interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

// noteServerVec adds v, which has these labels, to serverVecs if one of them is "server".
func (m *Metrics) noteServerVec(v serverDeleter, labels []string) {
	if slices.Contains(labels, "server") {
		m.serverVecs = append(m.serverVecs, v)
	}
}

// changeInProgress returns the server that an event is counted for, and by how much the event changes how many sessions, streams and
// processes the server has. ok is false if the event is counted for no server.
func changeInProgress(e observe.Event) (server string, change int, ok bool) {
	switch e := e.(type) {
	case observe.SessionOpened:
		return e.Session.Server, 1, true
	case observe.SessionEnded:
		return e.Session.Server, -1, true
	case observe.ProcessStarted:
		return e.Server, 1, true
	case observe.ProcessEnded:
		return e.Server, -1, true
	case observe.Stream:
		return e.Server, streamChange(e), true
	case observe.ProcessStopping:
		return e.Server, 0, true
	case observe.Stderr:
		return e.Server, 0, true
	case observe.Noise:
		return e.Server, 0, true
	case observe.Dropped:
		return e.Server, 0, true
	}
	return "", 0, false
}

// streamChange returns by how much an event changes how many streams there are between clients and bridge.
func streamChange(e observe.Stream) int {
	switch {
	case e.Hop != observe.Downstream:
		return 0
	case e.Action == "opened", e.Action == "resumed":
		return 1
	case e.Action == "closed":
		return -1
	}
	return 0
}

// endedServers returns the names of servers of which there are numbers, but which are not in use any more; nil: it is not known which
// are in use. The numbers of no server ("") are not among them.
func (m *Metrics) endedServers() map[string]bool {
	if m.namesInUse == nil {
		return nil
	}
	m.eventMu.Lock()
	names := slices.Collect(maps.Keys(m.inProgress))
	m.eventMu.Unlock()
	names = slices.AppendSeq(names, maps.Keys(*m.perServer.Load()))
	ended := newSet(names...)
	for _, name := range append(m.namesInUse(), "") { // asked last, so that a server that was added meanwhile is in use
		delete(ended, name)
	}
	return ended
}

// forget deletes all numbers of these servers, except of those that are in use by now, or still have a session, a stream or a process: its
// end is yet to be counted, and would make a gauge negative. An event or message that comes later, from a goroutine that has not heard of
// the end, begins with 0, and is forgotten after the next answer.
func (m *Metrics) forget(ended map[string]bool) {
	if len(ended) == 0 {
		return
	}
	for name := range m.endedServers() {
		if !ended[name] {
			continue
		}
		m.eventMu.Lock()
		if m.inProgress[name] <= 0 {
			delete(m.inProgress, name)
			for _, v := range m.serverVecs {
				v.DeletePartialMatch(prometheus.Labels{"server": name})
			}
			m.forgetMessages(name)
		}
		m.eventMu.Unlock()
	}
}
