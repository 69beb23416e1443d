package tests

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// D.1: a client that crashes the server of 2026-07-28 that all share, again and again, keeps
// nobody else from it: another's calls are answered all the while.
func TestCrashLoopIsOnesOwn(t *testing.T) {
	t.Parallel()
	tokens := tokenFile(t, "ann "+annToken, "bob "+bobToken)
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--token-file", tokens, "--", childBin, "-speak", "modern")
	ann, bob := &modernTalker{s.site().bearer(annToken)}, &modernTalker{s.site().bearer(bobToken)}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	call := func(c *modernTalker, tool string) string {
		t.Helper()
		answer, err := c.exchange(ctx, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+
			`","arguments":{},"_meta":{"`+metaVersion+`":"`+modernVersion+`","`+metaCaps+`":{}}}}`, func(string) {})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		return answer
	}
	refused := 0
	for i := range 8 {
		answer := call(ann, "crash")
		if !strings.Contains(answer, `"error"`) {
			t.Errorf("crash %d: %s", i, answer)
		}
		if strings.Contains(answer, "in a row") {
			refused++
		}
		began := time.Now()
		if answer := call(bob, "echo"); !strings.Contains(answer, `"result"`) {
			t.Errorf("after crash %d bob is answered: %s", i, answer)
		}
		t.Logf("crash %d: bob's call took %v", i, time.Since(began))
	}
	if refused == 0 {
		t.Error("a server that one client crashes 8 times is started for it each time")
	}
}
