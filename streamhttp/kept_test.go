package streamhttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// LI16: what all sessions of a client keep for resumption is bounded together:
// more sessions do not keep more. What was kept first can be resumed no longer, what
// was kept last can, and the end of a session gives everything back.
func TestServerKeptTogether(t *testing.T) {
	for _, read := range []bool{true, false} {
		t.Run(fmt.Sprintf("read %t", read), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const total, sessions, events, size = 1 << 20, 8, 40, 10_000
				kept := budget.New(total)
				s := newSite(t, streamhttp.HandlerOptions{ResumeBudget: kept, ReplayBytes: 512 << 10})
				var users []*user
				var first []string
				for range sessions {
					u, p := s.open(r25c)
					r := u.call("1")
					p.gets()
					p.says(progress("1", 0))
					r.gets(progress("1", 0))
					if !read {
						r.cut()
					}
					for i := range events {
						event := strings.Replace(progress("1", i+1), `"progress":`, `"message":"`+big(size)+`","progress":`, 1)
						p.says(event)
						if read {
							r.gets(event)
						}
					}
					if read {
						r.cut()
					}
					users, first = append(users, u), append(first, r.lastID())
				}
				synctest.Wait()
				if taken := kept.Taken(); taken > total/2+sessions*budget.UncountedBytes || taken < total/4 {
					t.Errorf("%d bytes are kept for one client, which may have about half of %d", taken, total)
				}
				if !read {
					u := users[0] // came first, and so found room
					u.get("Last-Event-ID: " + first[0]).open()
				}
				for _, u := range users {
					u.request(http.MethodDelete, "").is(http.StatusNoContent)
				}
				synctest.Wait()
				if taken := kept.Taken(); taken != 0 {
					t.Errorf("%d bytes are kept for sessions that have ended", taken)
				}
			})
		})
	}
}

// Requests of 2026-07-28 are shared out: a client that has many open has no more
// than it leaves to others.
func TestServerModernShares(t *testing.T) {
	tokens, err := access.ParseTokens("ann " + strings.Repeat("a", 40) + "\nbob " + strings.Repeat("b", 40))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s, ann := newModern(t, streamhttp.HandlerOptions{MaxExchanges: 40, Guard: access.Policy{Tokens: tokens}})
		bob := &user{site: ann.site}
		const asAnn, asBob = "Authorization: Bearer aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "Authorization: Bearer bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
		open := func(u *user, as string) (n int) {
			for n < 100 {
				r := u.ask26(fmt.Sprint(n), "tools/call", `"name":"t"`, as)
				synctest.Wait()
				if r.finished() {
					r.isError(http.StatusServiceUnavailable, -32603, fmt.Sprint(n))
					return n
				}
				s.server()
				n++
			}
			return n
		}
		if n := open(ann, asAnn); n < 20 || n > 21 {
			t.Errorf("one client has %d of 40 requests open, want half", n)
		}
		if n := open(bob, asBob); n < 9 || n > 11 {
			t.Errorf("the next has %d, want half of those that are left", n)
		}
	})
}
