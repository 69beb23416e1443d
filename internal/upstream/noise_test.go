package upstream

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

func TestNoiseIsRare(t *testing.T) {
	var n noiseLimiter
	now := time.Unix(1700000000, 0)
	var got []string
	hear := func(times int, gap time.Duration) {
		for range times {
			if lines, bytes, due := n.add(now, 10); due {
				got = append(got, fmt.Sprintf("%d/%d", lines, bytes))
			}
			now = now.Add(gap)
		}
	}
	want := func(what string, texts ...string) {
		t.Helper()
		if !slices.Equal(got, texts) {
			t.Errorf("%s: warnings %v, want %v", what, got, texts)
		}
		got = nil
	}
	hear(5, 0)
	want("the first", "1/10", "1/10", "1/10", "1/10", "1/10")
	hear(2500, time.Millisecond)
	want("a flood", "1001/10010", "1000/10000")
	now = now.Add(2 * time.Second)
	hear(1, 0)
	want("the rest of it", "500/5000")
	now = now.Add(noiseResetAfter)
	hear(7, 0)
	want("after a calm", "1/10", "1/10", "1/10", "1/10", "1/10")
}

// TestFloodOfNoise: ST4. A command that prints lines without end costs the log a few.
func TestFloodOfNoise(t *testing.T) {
	const flood = "UPSTREAM_TEST_FLOOD"
	if os.Getenv(flood) != "" {
		fmt.Print(strings.Repeat("no message\n", 20_000))
		os.Exit(0)
	}
	self, err := os.Executable()
	bridgetest.Must(t, err)
	var log bytes.Buffer
	s, err := New(Spec{
		Name:    "noisy",
		Command: supervisor.Spec{Path: self, Args: []string{"-test.run=^TestFloodOfNoise$"}, Env: append(os.Environ(), flood+"=1")},
		Logger:  hclog.New(&hclog.LoggerOptions{Output: &log}),
	})
	bridgetest.Must(t, err)
	defer s.Close()
	begin := time.Now()
	dialed, err := s.commandDialer().Dial(t.Context())
	bridgetest.Must(t, err)
	conn := dialed
	if _, err := bridgetest.Recv(t.Context(), conn); err == nil {
		t.Error("a message came")
	}
	conn.Close(nil)
	most := noiseFirstWarnings + 1 + int(time.Since(begin)/noiseInterval)
	if n := strings.Count(log.String(), "output of the server skipped"); n < noiseFirstWarnings || n > most {
		t.Errorf("%d warnings, want %d to %d:\n%.2000s", n, noiseFirstWarnings, most, log.String())
	}
}
