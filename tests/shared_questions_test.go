package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestSharedQuestions: B.1.8, C.4, D.2. Modern clients without names share a
// legacy process, and all call a tool that asks, at the same time. A question on
// stdio does not say whose it is; each client must get its own, and the server
// its answer.
func TestSharedQuestions(t *testing.T) {
	t.Parallel()
	srv := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--max-sessions", "1000", "--", childBin, "-speak", "legacy")
	s := srv.site()
	ctx := within(t, harness.Patience)
	const clients, calls = 20, 3
	errs := make([]error, clients)
	pids := make([]string, clients)
	var wg sync.WaitGroup
	for i := range clients {
		g := newGuest(fmt.Sprintf("client%02d", i), s, true, map[bool]string{true: "ws", false: "mcp"}[i%3 == 0])
		g.caps = `{"elicitation":{}}`
		g.talker = &modernTalker{s}
		if g.over == "ws" {
			c, err := s.openWS(ctx)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.close)
			g.talker = c
		}
		wg.Go(func() {
			for n := range calls {
				if err := g.answers(ctx, n); err != nil {
					errs[i] = fmt.Errorf("%s, call %d: %w", g.name, n, err)
					return
				}
			}
			answer, err := g.talker.exchange(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"seen","arguments":{},%s}}`, g.meta("")), nil)
			_, pids[i], _ = strings.Cut(answer, `"pid":`)
			pids[i], _, _ = strings.Cut(pids[i], ",")
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(tail(err.Error(), 4000))
	}
	for _, pid := range pids {
		if pid == "" || pid != pids[0] {
			t.Errorf("the clients were served by the processes %v, want one", pids)
			break
		}
	}
}

// answers makes a call that asks twice, and answers what it is asked.
func (g *slot) answers(ctx context.Context, n int) error {
	question := func(round int) string {
		return fmt.Sprintf(`[{"method":"elicitation/create","params":{"message":"%s/%d/%d","requestedSchema":{"type":"object","properties":{}}}}]`, g.name, n, round)
	}
	arguments := fmt.Sprintf(`{"rounds":[%s,%s]}`, question(0), question(1))
	more := ""
	for round := 0; ; round++ {
		answer, err := g.talker.exchange(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"ask","arguments":%s%s,%s}}`, n%3, arguments, more, g.meta("1")), nil)
		if err != nil {
			return err
		}
		var m struct {
			ID     int
			Result struct {
				ResultType    string
				RequestState  string
				InputRequests map[string]struct{ Params struct{ Message string } }
				Content       json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(answer), &m); err != nil || m.ID != n%3 {
			return fmt.Errorf("it was answered with %.500s (%v)", answer, err)
		}
		if m.Result.ResultType != "input_required" {
			for r := range 2 {
				if mine := fmt.Sprintf(`%s/%d/%d`, g.name, n, r); strings.Count(string(m.Result.Content), mine) != 1 {
					return fmt.Errorf("after %d rounds the server has %.500s, want the answer %s", round, answer, mine)
				}
			}
			return nil
		}
		var responses []string
		for key, q := range m.Result.InputRequests {
			if want := fmt.Sprintf("%s/%d/%d", g.name, n, round); q.Params.Message != want {
				return fmt.Errorf("it was asked %q, want %q", q.Params.Message, want)
			}
			responses = append(responses, fmt.Sprintf(`%q:{"action":"accept","content":{"text":%q}}`, key, q.Params.Message))
		}
		more = fmt.Sprintf(`,"inputResponses":{%s},"requestState":%q`, strings.Join(responses, ","), m.Result.RequestState)
	}
}
