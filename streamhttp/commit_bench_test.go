package streamhttp

import (
	"strconv"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// BenchmarkLate is one look for calls whose replies are to become streams, with
// so many of them open: it costs the same with many.
func BenchmarkLate(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := newSession(&HandlerOptions{CommitAfter: time.Hour}, "", "", time.Now())
			defer func() { s.commits.timer.Stop() }()
			for i := range n {
				st, _, _, err := s.openPostStream([]jsonrpc.Message{jsonrpc.NewRequest(jsonrpc.IntID(int64(i)), "x", nil)})
				if err != nil {
					b.Fatal(err)
				}
				s.scheduleCommit(st, false)
			}
			for b.Loop() {
				s.markDueStreams()
			}
		})
	}
}
