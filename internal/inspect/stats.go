package inspect

import (
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	statsWindow         = time.Minute // how far back the numbers of lastMinute look
	maxAnswersPerServer = 4096        // how many answers of a server are kept for the numbers of lastMinute, the latest
)

// stats is an observe.Watcher that keeps, while somebody has a stream open, when the clients' latest calls were answered, how long they
// took, and which had errors.
type stats struct {
	mu      sync.Mutex                // guards servers
	servers map[string]*serverSamples // the answers of each server, by its name
}

// serverSamples are the latest answers of a server, in rings: three slices with an element for each answer.
type serverSamples struct {
	times     []time.Time     // when each answer came
	durations []time.Duration // how long each call took
	failed    []bool          // whether each answer was a JSON-RPC error; a result that says that a tool has failed is none
	nextIndex int             // the index of the oldest answer, which the next one replaces, once there are maxAnswersPerServer
	firstTime time.Time       // when the first answer came since somebody has a stream open
}

// lastMinute is what the API says of a server's answers in the last minute, or since the first one if somebody looks for less than
// that. All is 0 if there were none, or nobody has a stream open.
type lastMinute struct {
	Rate   float64 `json:"rate"`   // answers a second
	Failed float64 `json:"failed"` // errors a second
	P50    float64 `json:"p50"`    // the median of how long calls took, in milliseconds
	P99    float64 `json:"p99"`    // the time that 99 of 100 calls took at most, in milliseconds
}

// newStats returns stats without any answers.
func newStats() *stats { return &stats{servers: make(map[string]*serverSamples)} }

// Event implements observe.Watcher. It does nothing: only messages count.
func (s *stats) Event(observe.Event) {}

// Message implements observe.Watcher: it notes an answer to a client's call. Other messages do not count.
func (s *stats) Message(p *observe.Passed) {
	if p.Hop != observe.Downstream || p.Dir != observe.ToClient || p.Call == nil || p.Message.Kind() != jsonrpc.Response {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.servers[p.Session.Server]
	if of == nil {
		of = &serverSamples{firstTime: p.At()}
		s.servers[p.Session.Server] = of
	}
	if len(of.times) < maxAnswersPerServer {
		of.times, of.durations, of.failed = append(of.times, p.At()), append(of.durations, p.Duration), append(of.failed, p.Message.IsError())
		return
	}
	of.times[of.nextIndex], of.durations[of.nextIndex], of.failed[of.nextIndex] = p.At(), p.Duration, p.Message.IsError()
	of.nextIndex = (of.nextIndex + 1) % maxAnswersPerServer
}

// clear forgets everything, because nobody looks any more.
func (s *stats) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.servers)
}

// measure returns the numbers of a server's answers in the minute before now; zero: none are kept.
func (s *stats) measure(server string, now time.Time) (m lastMinute) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.servers[server]
	if all == nil {
		return m
	}
	var durations []time.Duration
	failed := 0
	oldest := now
	for i, at := range all.times {
		if now.Sub(at) > statsWindow {
			continue
		}
		durations = append(durations, all.durations[i])
		if all.failed[i] {
			failed++
		}
		if at.Before(oldest) {
			oldest = at
		}
	}
	if len(durations) == 0 {
		return m
	}
	over := min(statsWindow, now.Sub(all.firstTime))
	if len(durations) == maxAnswersPerServer {
		over = now.Sub(oldest) // there were more in the window than are kept
	}
	seconds := max(over, time.Second).Seconds()
	slices.Sort(durations)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return lastMinute{
		Rate: float64(len(durations)) / seconds, Failed: float64(failed) / seconds,
		P50: ms(durations[len(durations)/2]), P99: ms(durations[len(durations)*99/100]),
	}
}
