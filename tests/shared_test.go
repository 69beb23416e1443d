package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// crowd is how long many clients use a shared server: SHARED_TIME, or not long.
func crowd(t testing.TB) time.Duration {
	if text := os.Getenv("SHARED_TIME"); text != "" {
		d, err := time.ParseDuration(text)
		bridgetest.Must(t, err)
		return d
	}
	if testing.Short() {
		return 2 * time.Second
	}
	return 3 * time.Second
}

// principals returns flags for two principals and their tokens: access tokens of an issuer, or static ones.
func principals(t testing.TB, access bool) (flags []string, tokens [2]string) {
	t.Helper()
	if !access {
		return []string{"--token-file", tokenFile(t, "ann "+annToken, "bob "+bobToken)}, [2]string{annToken, bobToken}
	}
	i := newIssuer(t)
	secret := filepath.Join(t.TempDir(), "secret")
	writeFile(t, secret, authtest.IntrospectionClientSecret)
	flags = []string{
		"--oidc-issuer", i.URL, "--public-url", publicURL,
		"--introspect", i.URL + "/introspect", "--introspect-client-id", "bridge", "--introspect-secret-file", secret,
	}
	return flags, [2]string{i.token("ann", nil), i.token("bob", nil)}
}

// share starts a bridge for two principals, and returns their sites.
func share(t testing.TB, b *brain, flags ...string) (srv *server, ann, bob *site) {
	t.Helper()
	who, tokens := principals(t, b.access)
	argv := append([]string{bridgeBin, "serve", "--listen", "127.0.0.1:0", "--max-sessions", "1000", "--grace", "2s"}, append(who, flags...)...)
	srv = serveArgv(t, nil, append(argv, b.target...)...)
	s := srv.site()
	return srv, s.bearer(tokens[0]), s.bearer(tokens[1])
}

// TestSharedCrowd: D1 to D3, D7, J3, J12, J13. 200 clients of two principals,
// in both eras and over both transports, share one process. All use the same
// ids and tokens, at the same time. Nothing reaches the wrong one, nothing is
// lost, nothing comes twice, and a cancelled call is nobody else's.
func TestSharedCrowd(t *testing.T) {
	for name, modern := range map[string]bool{"modern server": true, "legacy server": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // with each other, and with no other test
			b := newBrain(t, modern)
			_, ann, bob := share(t, b, "--isolation", "shared")
			var clients []*slot
			for i := range 200 {
				who := ann
				if i%2 == 1 {
					who = bob
				}
				kind := i / 2 % 5 // two of five are legacy clients
				g := newGuest(fmt.Sprintf("slot%d", i), who, kind < 3, map[bool]string{true: "ws", false: "mcp"}[kind%2 == 1])
				clients = append(clients, g)
			}
			ctx := within(t, crowd(t)+2*harness.Patience)
			each := func(do func(g *slot) error) {
				t.Helper()
				errs := make([]error, len(clients))
				var wg sync.WaitGroup
				for i, g := range clients {
					wg.Go(func() { errs[i] = do(g) })
				}
				wg.Wait()
				if err := errors.Join(errs...); err != nil {
					t.Fatal(tail(err.Error(), 4000))
				}
			}
			each(func(g *slot) error { return g.open(ctx) })
			t.Cleanup(func() {
				for _, g := range clients {
					g.close()
				}
			})
			for _, g := range clients {
				if g.listens() {
					b.await(t, "the subscription of "+g.name, func() bool { return b.wanted(g.uri()) })
				}
			}
			end := time.Now().Add(crowd(t))
			each(func(g *slot) error {
				for time.Now().Before(end) {
					var err error
					switch n := rand.IntN(20); {
					case n == 0:
						err = g.abandon(ctx, b)
					case n == 1:
						_, err = g.call(ctx, "fail")
					case n < 12:
						_, err = g.call(ctx, "progress")
					default:
						_, err = g.call(ctx, "echo")
					}
					if err != nil {
						return err
					}
					if g.listens() && rand.IntN(4) == 0 {
						b.touch(g.uri())
					}
				}
				return nil
			})
			calls := 0
			each(func(g *slot) error {
				if !g.listens() {
					return nil
				}
				b.mu.Lock()
				sent := b.updates[g.uri()]
				b.mu.Unlock()
				return g.caughtUp(ctx, sent)
			})
			for _, g := range clients {
				calls += g.n
				for n := 1; n <= g.n; n++ {
					if got := b.calls[(errand{Who: g.name, N: n}).key()]; got != 1 {
						t.Errorf("call %d of %s reached the server %d times", n, g.name, got)
					}
				}
				b.mu.Lock()
				if sent := b.updates[g.uri()]; g.updates() != sent {
					t.Errorf("%s heard of %d updates of %d", g.name, g.updates(), sent)
				}
				b.mu.Unlock()
			}
			if n := len(b.workers()); n != 1 {
				t.Errorf("%d processes have worked, want one", n)
			}
			t.Logf("%d calls of %d clients in %v", calls, len(clients), crowd(t))
		})
	}
}

// deaf is a client that asks for a flood and reads nothing of it.
func deaf(t testing.TB, s *site, over string) net.Conn {
	t.Helper()
	host := strings.TrimPrefix(s.base, "http://")
	host, _, _ = strings.Cut(host, "/")
	conn, err := net.Dial("tcp", host)
	bridgetest.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	g := newGuest("deaf", s, true, over)
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"who":"deaf","n":1,"do":"flood"},%s}}`, g.meta("0"))
	head := fmt.Sprintf("Host: %s\r\nAuthorization: %s\r\n", host, s.header.Get("Authorization"))
	if over == "mcp" {
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\n%sConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: %s\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\nContent-Length: %d\r\n\r\n%s",
			head, modernVersion, len(call), call)
		return conn
	}
	fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\n%sConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", head)
	frame := []byte{0x81, 0x80 | 126, byte(len(call) >> 8), byte(len(call)), 0, 0, 0, 0}
	if _, err := conn.Write(append(frame, call...)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestSharedSlow: D11. A client that does not read what is meant for it is
// ended, its call is cancelled, and the log says so; meanwhile nobody waits.
func TestSharedSlow(t *testing.T) {
	for _, modern := range []bool{true, false} {
		for _, over := range []string{"mcp", "ws"} {
			t.Run(fmt.Sprintf("modern server %t over %s", modern, over), func(t *testing.T) {
				t.Parallel()
				b := newBrain(t, modern)
				srv, ann, bob := share(t, b, "--isolation", "shared")
				ctx := within(t, harness.Patience)
				g := newGuest("other", bob, true, over)
				bridgetest.Must(t, g.open(ctx))
				t.Cleanup(g.close)
				slow := deaf(t, ann, over)
				bridgetest.Must(t, b.hears(ctx, "deaf/1", b.calls))
				for ended := false; !ended; { // as long as it lasts
					if _, err := g.call(ctx, "progress"); err != nil {
						t.Fatal(err)
					}
					b.mu.Lock()
					ended = b.stopped["deaf/1"] > 0
					b.mu.Unlock()
				}
				_ = slow.SetReadDeadline(time.Now().Add(harness.Patience))
				if err := drain(slow); errors.Is(err, os.ErrDeadlineExceeded) { // its connection has an end
					t.Error(err)
				}
				srv.waitLog(regexp.MustCompile(`the client does not read what it is sent`))
				if _, err := g.call(ctx, "progress"); err != nil {
					t.Error(err)
				}
				if n := len(b.workers()); n != 1 {
					t.Errorf("%d processes have worked, want one", n)
				}
			})
		}
	}
}

// TestSharedKilled: ST9, ST12. The shared process dies while calls of many are
// under way: each gets an error, and the next works, in a new process.
// Subscriptions go on, and who has one is told that something may have changed.
func TestSharedKilled(t *testing.T) {
	for _, modern := range []bool{true, false} {
		t.Run(fmt.Sprintf("modern server %t", modern), func(t *testing.T) {
			t.Parallel()
			b := newBrain(t, modern)
			_, ann, bob := share(t, b, "--isolation", "shared")
			ctx := within(t, harness.Patience)
			var clients []*slot
			for i, kind := range []struct {
				modern bool
				over   string
			}{{true, "mcp"}, {true, "ws"}, {false, "ws"}, {false, "mcp"}} {
				clients = append(clients, newGuest(fmt.Sprintf("ann%d", i), ann, kind.modern, kind.over), newGuest(fmt.Sprintf("bob%d", i), bob, kind.modern, kind.over))
			}
			for _, g := range clients {
				bridgetest.Must(t, g.open(ctx))
				t.Cleanup(g.close)
				if g.listens() {
					b.await(t, "the subscription of "+g.name, func() bool { return b.wanted(g.uri()) })
				}
			}
			for round := range 3 {
				owed := make([]error, len(clients))
				var wg sync.WaitGroup
				for i, g := range clients {
					wg.Go(func() {
						answer, err := g.call(ctx, "hang")
						if err == nil && !strings.Contains(answer, `"code":-32603`) {
							err = fmt.Errorf("%s: the call that was under way was answered with %.300s", g.name, answer)
						}
						owed[i] = err
					})
				}
				for _, g := range clients {
					key := errand{Who: g.name, N: round*100 + 1}.key()
					b.await(t, "the call of "+g.name, func() bool { return b.calls[key] > 0 })
				}
				before := make([]int, len(clients))
				for i, g := range clients {
					before[i] = g.updates()
				}
				workers := b.workers()
				workers[len(workers)-1].kill(t)
				wg.Wait()
				bridgetest.Must(t, errors.Join(owed...))
				for i, g := range clients {
					bridgetest.Must(t, g.again(ctx, "echo"))
					if !g.listens() {
						continue
					}
					if err := g.caughtUp(ctx, before[i]+1); err != nil { // something may have changed
						t.Error(err)
					}
					b.await(t, "the subscription of "+g.name, func() bool { return b.wanted(g.uri()) })
					have := g.updates()
					b.touch(g.uri())
					if err := g.caughtUp(ctx, have+1); err != nil {
						t.Error(err)
					}
				}
				if n := len(b.workers()); n != round+2 {
					t.Errorf("%d processes have worked after %d deaths", n, round+1)
				}
				for _, g := range clients {
					g.n = (round + 1) * 100
				}
			}
		})
	}
}

// again calls until the bridge has seen that the server is back: until then it
// may refuse, but leaves no call without an answer.
func (g *slot) again(ctx context.Context, do string) error {
	for {
		answer, err := g.call(ctx, do)
		if err == nil || !strings.Contains(answer, `"code":-32603`) {
			return err
		}
	}
}

// who returns the process that serves a client.
func (g *slot) who(t testing.TB, ctx context.Context) string {
	t.Helper()
	answer, err := g.call(ctx, "echo")
	pid := regexp.MustCompile(`"pid":[0-9]+`).FindString(answer)
	if err != nil || pid == "" {
		t.Fatalf("%v %s", err, answer)
	}
	return pid
}

// TestSharedByPrincipal: D.1, D13, A6. With --isolation principal, which is
// what modern clients of a legacy server have anyway, two principals have two
// processes; who is the same and can do the same shares one; who can do
// something else has another. What one was asked the other cannot answer.
func TestSharedByPrincipal(t *testing.T) {
	for i, flags := range [][]string{{"--isolation", "principal"}, nil} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			b := newBrain(t, false)
			b.access = i == 0
			_, ann, bob := share(t, b, flags...)
			ctx := within(t, harness.Patience)
			open := func(name string, s *site, over, caps string) *slot {
				t.Helper()
				g := newGuest(name, s, true, over)
				g.caps = caps
				bridgetest.Must(t, g.open(ctx))
				t.Cleanup(g.close)
				return g
			}
			const some = `{"roots":{},"sampling":{}}`
			pids := []string{
				open("a1", ann, "mcp", some).who(t, ctx), open("a2", ann, "ws", some).who(t, ctx),
				open("a3", ann, "mcp", `{ "sampling":{}, "roots" : {} }`).who(t, ctx), // means the same
				open("b1", bob, "mcp", some).who(t, ctx), open("b2", bob, "ws", some).who(t, ctx),
				open("a4", ann, "mcp", `{}`).who(t, ctx), open("b3", bob, "mcp", `{}`).who(t, ctx),
			}
			if pids[0] != pids[1] || pids[1] != pids[2] || pids[3] != pids[4] {
				t.Errorf("clients of one principal with the same capabilities are served by %v", pids)
			}
			apart := []string{pids[0], pids[3], pids[5], pids[6]}
			slices.Sort(apart)
			if len(slices.Compact(apart)) != 4 {
				t.Errorf("clients that have nothing to do with one another are served by %v", pids)
			}

			mine, other := open("a5", ann, "mcp", some), open("b5", bob, "mcp", some)
			retry := askAndRetry(t, ctx, mine)
			if answer := retry(other, 50); !strings.Contains(answer, `"code":-32602`) {
				t.Errorf("another principal's retry was answered with %s", answer)
			}
			if answer := retry(mine, 51); !strings.Contains(answer, `"answer":{"roots":[]}`) {
				t.Errorf("the retry was answered with %s", answer)
			}
		})
	}
}

// askAndRetry makes a call of one client in which the server asks it something. It returns what retries that call as a client, which
// may be another one, with a request of this id, and returns the answer.
func askAndRetry(t *testing.T, ctx context.Context, mine *slot) (retry func(g *slot, id int) (answer string)) {
	t.Helper()
	asked, err := mine.call(ctx, "ask")
	bridgetest.Must(t, err)
	state := regexp.MustCompile(`"requestState":("[^"]*")`).FindStringSubmatch(asked)
	key := regexp.MustCompile(`"inputRequests":{("[^"]*"):`).FindStringSubmatch(asked)
	if state == nil || key == nil {
		t.Fatalf("a call that asks was answered with %s", asked)
	}
	return func(g *slot, id int) string {
		t.Helper()
		answer, err := g.talker.exchange(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":{"who":%q,"n":1,"do":"ask"},"inputResponses":{%s:{"roots":[]}},"requestState":%s,%s}}`, id, mine.name, key[1], state[1], g.meta("1")), nil)
		bridgetest.Must(t, err)
		return answer
	}
}
