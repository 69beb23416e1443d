package tests

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// modernToolCall calls a tool of a server of 2026-07-28, and returns the answer.
func modernToolCall(t *testing.T, ctx context.Context, c *modernTalker, tool string) string {
	t.Helper()
	answer, err := c.exchange(ctx, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+
		`","arguments":{},"_meta":{"`+metaVersion+`":"`+modernVersion+`","`+metaCaps+`":{}}}}`, func(string) {})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return answer
}

// A server that answers calls and then crashes is not one that ends before it answers (C2), however often it does so.
func TestCrashIsNoEarlyEnd(t *testing.T) {
	t.Parallel()
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--", childBin, "-speak", "modern")
	c := &modernTalker{s.site()}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	for range 3 {
		if answer := modernToolCall(t, ctx, c, "echo"); !strings.Contains(answer, `"result"`) {
			t.Errorf("the answer is %s", answer)
		}
		modernToolCall(t, ctx, c, "crash")
	}
	s.proc.stop()
	if n := strings.Count(s.Log(), "server process ended"); n < 3 || strings.Contains(s.Log(), "C2") {
		t.Errorf("%d processes have ended, and the log is\n%s", n, s.Log())
	}
}

// D.1: a client that crashes the server of 2026-07-28 that all share, again and again, keeps
// nobody else from it: another's calls are answered all the while.
func TestCrashLoopIsOnesOwn(t *testing.T) {
	t.Parallel()
	tokens := tokenFile(t, "ann "+annToken, "bob "+bobToken)
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--token-file", tokens, "--", childBin, "-speak", "modern")
	ann, bob := &modernTalker{s.site().bearer(annToken)}, &modernTalker{s.site().bearer(bobToken)}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	refused := 0
	for i := range 8 {
		answer := modernToolCall(t, ctx, ann, "crash")
		if !strings.Contains(answer, `"error"`) {
			t.Errorf("crash %d: %s", i, answer)
		}
		if strings.Contains(answer, "in a row") {
			refused++
		}
		began := time.Now()
		if answer := modernToolCall(t, ctx, bob, "echo"); !strings.Contains(answer, `"result"`) {
			t.Errorf("after crash %d bob is answered: %s", i, answer)
		}
		t.Logf("crash %d: bob's call took %v", i, time.Since(began))
	}
	if refused == 0 {
		t.Error("a server that one client crashes 8 times is started for it each time")
	}
}
