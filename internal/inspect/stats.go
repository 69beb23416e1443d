package inspect

import (
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// statsWindow is how far back stats looks. maxAnswersPerServer is how many answers it keeps of a server.
const (
	statsWindow         = time.Minute
	maxAnswersPerServer = 4096
)

// stats is an observe.Watcher that keeps when the clients' latest calls were answered, how long they took, and which had errors.
type stats struct {
	mu      sync.Mutex
	servers map[string]*serverSamples
}

// serverSamples are the latest answers of a server, in a ring.
type serverSamples struct {
	times     []time.Time
	durations []time.Duration
	failed    []bool    // answers that are errors; a failed tool is none
	nextIndex int       // that the next answer replaces, once there are maxAnswersPerServer
	firstTime time.Time // of the first answer since somebody looks
}

// lastMinute is what the API says of the last minute.
type lastMinute struct {
	Rate   float64 `json:"rate"`   // answers a second
	Failed float64 `json:"failed"` // errors a second
	P50    float64 `json:"p50"`    // of the durations, in milliseconds
	P99    float64 `json:"p99"`    // likewise
}

func newStats() *stats { return &stats{servers: make(map[string]*serverSamples)} }

// Event implements observe.Watcher.
func (s *stats) Event(observe.Event) {}

// Message implements observe.Watcher.
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

// measure returns what was counted of a server in the last minute; zero: nothing.
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
