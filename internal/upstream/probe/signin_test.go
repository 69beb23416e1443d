package probe

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// waitsConn is a Conn on whose first message somebody has to sign in.
type waitsConn struct {
	bridge.Conn
	wait time.Duration
}

func (c *waitsConn) Send(ctx context.Context, m jsonrpc.Message) error {
	select {
	case <-time.After(c.wait):
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.Conn.Send(ctx, m)
}

// A server over a connection is found to be modern also if somebody has to sign in first; if nobody does, it is not taken for a legacy
// one: clients hear where to sign in. Without a sign-in nothing is waited for.
func TestSignInBeforeProbe(t *testing.T) {
	for name, one := range map[string]struct {
		longer, wait time.Duration
		answer       func(id jsonrpc.ID) jsonrpc.Message
		modern       bool
		data         string
	}{
		"signed in": {longer: 55 * time.Second, wait: 40 * time.Second, modern: true,
			answer: func(id jsonrpc.ID) jsonrpc.Message {
				return jsonrpc.NewResult(id, []byte(`{"supportedVersions":["2026-07-28"]}`))
			}},
		"nobody does": {longer: 55 * time.Second, wait: 45 * time.Second, data: `{"reason":"authorization_required","url":"https://a"}`,
			answer: func(id jsonrpc.ID) jsonrpc.Message {
				return jsonrpc.NewError(id, -32603, "Sign-in needed", []byte(`{"reason":"authorization_required","url":"https://a"}`))
			}},
		"a legacy server": {longer: 55 * time.Second, wait: 40 * time.Second,
			answer: func(id jsonrpc.ID) jsonrpc.Message { return jsonrpc.NewError(id, -32601, "no", nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var wg sync.WaitGroup
				defer wg.Wait()
				p := New(Options{
					Protocol: era.Auto, MinTimeout: one.longer, Logger: hclog.NewNullLogger(), Context: t.Context(),
					Spawn: func(f func()) error { wg.Go(f); return nil }, OnEraFound: func(bool) {}, OnFailed: func(string) {},
					Dial: func(ctx context.Context, _ *TransferableHolder, placed func()) (bridge.Conn, error) {
						placed()
						near, far := bridge.Pipe()
						wg.Go(func() {
							if m, err := bridgetest.Recv(t.Context(), far); err == nil {
								_ = far.Send(t.Context(), one.answer(m.ID()))
							}
						})
						return &waitsConn{near, one.wait}, nil
					},
				})
				defer p.Close()
				modern, err := p.Modern(t.Context())
				data := ""
				if e, ok := err.(interface{ PublicData() []byte }); ok {
					data = string(e.PublicData())
				}
				if modern != one.modern || data != one.data || (err != nil) != (one.data != "") {
					t.Errorf("modern %v, data %s, error %v", modern, data, err)
				}
			})
		})
	}
}

// Where the client's initialize has waited for a sign-in in vain, nobody waits for another one to ask for the server's era; where it has
// waited for the identity provider, nobody asks.
func TestSignInWaitsOnce(t *testing.T) {
	for reason, want := range map[string]string{"authorization_required": "without a sign-in", "authorization_server": ""} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var wg sync.WaitGroup
				defer wg.Wait()
				asked := ""
				p := New(Options{
					Protocol: era.Auto, Logger: hclog.NewNullLogger(), Context: t.Context(),
					Spawn: func(f func()) error { wg.Go(f); return nil }, OnEraFound: func(bool) {}, OnFailed: func(string) {},
					Discover: func(ctx context.Context) (jsonrpc.Message, error) {
						if asked = "with a sign-in"; httpdial.IsUnattended(ctx) {
							asked = "without a sign-in"
						}
						return jsonrpc.Message{}, errors.New("401")
					},
				})
				defer p.Close()
				near, far := bridge.Pipe()
				defer far.Close(nil)
				dial := dialFunc(func(context.Context) (bridge.Conn, error) { return near, nil })
				c, err := (&Fallback{Prober: p, Legacy: dial, Modern: dial, Sessionless: func() bool { return false }}).Dial(t.Context())
				bridgetest.Must(t, err)
				defer c.Close(nil)
				initialize := jsonrpc.NewRequest(jsonrpc.IntID(1), "initialize", []byte(`{"protocolVersion":"2025-06-18"}`))
				bridgetest.Must(t, c.Send(t.Context(), initialize))
				wg.Go(func() {
					_, _ = bridgetest.Recv(t.Context(), far)
					_ = far.Send(t.Context(), jsonrpc.NewError(jsonrpc.IntID(1), -32603, "no", []byte(`{"reason":"`+reason+`"}`)))
				})
				m, err := bridgetest.Recv(t.Context(), c)
				synctest.Wait()
				if err != nil || !m.IsError() || asked != want {
					t.Errorf("the answer is %s, %v, and the server was asked %q, want %q", m.Bytes(), err, asked, want)
				}
			})
		})
	}
}

// Who waits for a sign-in until it is known what the server speaks is told what is waited for, everyone once, and nothing more when
// its request is over.
func TestSignInIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		tell := make(chan func(string))
		p := New(Options{
			Protocol: era.Auto, Logger: hclog.NewNullLogger(), Context: t.Context(),
			Spawn: func(f func()) error { wg.Go(f); return nil }, OnEraFound: func(bool) {}, OnFailed: func(string) {},
			Discover: func(ctx context.Context) (jsonrpc.Message, error) {
				tell <- httpdial.ProgressOf(ctx)
				<-tell
				return jsonrpc.Message{}, errors.New("401")
			},
		})
		defer p.Close()
		leaving, leave := context.WithCancel(t.Context())
		defer leave()
		var told [3]string // by client; the second one leaves, the last one has not asked for progress
		for i := range told {
			wg.Go(func() {
				ctx := t.Context()
				if i == 1 {
					ctx = leaving
				}
				if i < 2 {
					ctx = httpdial.WithProgress(ctx, func(text string) { told[i] += text })
				}
				_, _ = p.Modern(ctx)
			})
		}
		say := <-tell
		synctest.Wait()
		say("waiting")
		leave()
		synctest.Wait()
		say(", still waiting")
		close(tell)
		wg.Wait()
		if told != [3]string{"waiting, still waiting", "waiting"} {
			t.Errorf("told was %q", told)
		}
	})
}
