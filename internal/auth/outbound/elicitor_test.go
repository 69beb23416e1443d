package outbound

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
)

// A talk is a conversation of a client with what lies behind a SignInElicitor.
type talk struct {
	*SignInElicitor
	client *bridgetest.Peer
	behind bridge.Conn // to the client
	server *bridgetest.Peer
}

// talking runs f in a bubble.
func talking(t *testing.T, f func(*testing.T, *talk)) {
	synctest.Test(t, func(t *testing.T) {
		x := &talk{SignInElicitor: new(SignInElicitor), client: bridgetest.NewPeer(t, 10), server: bridgetest.NewPeer(t, 10)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		h := x.WrapHandler(bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
			x.behind = c
			return c.Receive(ctx, x.server)
		}))
		go func() {
			defer close(ended)
			_ = h.ServeConn(ctx, x.client)
		}()
		synctest.Wait()
		f(t, x)
		cancel()
		<-ended
	})
}

// answers has the client get a message from behind.
func (x *talk) answers(text string) {
	if err := x.behind.Send(context.Background(), bridgetest.Parse(text)); err != nil {
		panic(err)
	}
}

// refuses reports whether nobody waits for a sign-in at an address.
func (x *talk) refuses(t *testing.T, addr string) bool {
	_, end, refused := x.beginWait(t.Context(), addr)
	end()
	return refused
}

const (
	caps    = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}}`
	call    = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"a",` + caps + `}}}`
	retry   = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","inputResponses":{"sign-in":{"action":"ACTION"}},"requestState":"STATE","_meta":{"progressToken":"b",` + caps + `}}}`
	again   = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"b",` + caps + `}}}`
	result  = `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`
	missing = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"m","data":{"reason":"authorization_required"}}}`
)

var need = client.SignInRequired{URL: "https://as.example/a?b=c", Reason: "why", UserCode: "AB-CD"}

// asks shows the client an address, and returns the retry that says what the person has done.
func (x *talk) asks(t *testing.T, action string) string {
	t.Helper()
	x.client.Says(call)
	x.server.Gets(call)
	x.AskClient("https://h/mcp?key=canary", need)
	m := <-x.client.Out
	text := string(m.Bytes())
	want := `{"resultType":"input_required","inputRequests":{"sign-in":{"method":"elicitation/create","params":{"mode":"url","message":"Sign in to https://h/mcp, with the code AB-CD: why","url":"https://as.example/a?b=c"}}},"requestState":`
	state := regexp.MustCompile(`"requestState":"([^"]+)"`).FindStringSubmatch(text)
	if m.ID().String() != "1" || state == nil || !strings.Contains(text, want) {
		t.Fatalf("asked was %s", text)
	}
	x.AskClient("https://h/mcp", need) // once is enough
	x.client.Gets()
	return strings.NewReplacer("ACTION", action, "STATE", state[1]).Replace(retry)
}

// The outcome of a call that was answered with a question is for its retry, whichever comes first. What the server says of
// its progress meanwhile is for the retry, too.
func TestRetry(t *testing.T) {
	const progressOf = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"TOKEN","progress":1}}`
	outcome := strings.Replace(result, `"id":1`, `"id":2`, 1)
	for name, f := range map[string]func(*talk, string){
		"first the retry": func(x *talk, retry string) {
			x.answers(strings.Replace(progressOf, "TOKEN", "a", 1))
			x.client.Says("%s", retry)
			x.answers(strings.Replace(progressOf, "TOKEN", "a", 1))
			x.answers(result)
			x.client.Gets(strings.Replace(progressOf, "TOKEN", "b", 1), outcome)
			x.server.Gets()
		},
		"first the outcome": func(x *talk, retry string) {
			x.answers(result)
			x.client.Gets()
			x.client.Says("%s", retry)
			x.client.Gets(outcome)
			x.server.Gets()
		},
		"too late": func(x *talk, retry string) {
			x.answers(missing)
			x.client.Says("%s", retry)
			x.client.Gets()
			x.server.Gets(again)
			x.answers(outcome)
			x.client.Gets(outcome)
		},
		"the retry is cancelled": func(x *talk, retry string) {
			x.client.Says("%s", retry)
			x.client.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
			x.server.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		},
		"the call is cancelled": func(x *talk, retry string) {
			x.client.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			x.server.Gets() // it has its answer
			x.client.Says("%s", retry)
			x.answers(result)
			x.client.Gets(outcome)
		},
		"a state of somebody else": func(x *talk, _ string) {
			x.client.Says("%s", retry)
			x.server.Gets(retry)
		},
	} {
		t.Run(name, func(t *testing.T) { talking(t, func(t *testing.T, x *talk) { f(x, x.asks(t, "accept")) }) })
	}
}

// Who does not want to sign in is not kept waiting, and neither is who asks afterwards.
func TestDeclined(t *testing.T) {
	talking(t, func(t *testing.T, x *talk) {
		retry := x.asks(t, "decline")
		ctx, end, _ := x.beginWait(t.Context(), "")
		defer end()
		x.client.Says("%s", retry)
		x.server.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		x.client.Gets(`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the person has not wanted to sign in","data":{"reason":"authorization_required","status":401}}}`)
		if context.Cause(ctx) != client.ErrSignInTimeout || !x.refuses(t, need.URL) || x.refuses(t, "https://as.example/other") {
			t.Errorf("the wait has ended: %v, refused: %v", context.Cause(ctx), x.refuses(t, need.URL))
		}
	})
}

// The status that who declines is told is the server's own; of a server that was not asked it is 401 (TestDeclined).
func TestDeclinedStatus(t *testing.T) {
	for _, status := range []int{401, 403} {
		talking(t, func(t *testing.T, x *talk) {
			request := context.WithValue(t.Context(), statusNoterKey{}, &statusNoter{status: status})
			_, end, _ := x.beginWait(request, "")
			defer end()
			x.client.Says("%s", x.asks(t, "decline"))
			if m := <-x.client.Out; string(m.Lookup("error", "data", "status")) != strconv.Itoa(status) {
				t.Errorf("the server had answered %d; the client is told %s", status, m.Bytes())
			}
			x.server.Gets(cancels("1"))
		})
	}
}

// Where the server has answered the requests that wait with different statuses, whichever came last, who declines is told 401: 403
// would say that somebody has signed in. A request that waits no more does not count.
func TestDeclinedStatusOfMany(t *testing.T) {
	for _, test := range []struct{ first, second, over, want int }{{401, 403, 401, 401}, {403, 401, 401, 401}, {0, 403, 401, 401}, {403, 403, 401, 403}, {401, 401, 403, 401}} {
		talking(t, func(t *testing.T, x *talk) {
			for i, status := range []int{test.first, test.second, test.over} {
				request := context.WithValue(t.Context(), statusNoterKey{}, &statusNoter{status: status})
				if _, end, _ := x.beginWait(request, ""); i == 2 {
					end()
				} else {
					defer end()
				}
			}
			x.client.Says("%s", x.asks(t, "decline"))
			if m := <-x.client.Out; string(m.Lookup("error", "data", "status")) != strconv.Itoa(test.want) {
				t.Errorf("%+v: the client is told %s", test, m.Bytes())
			}
			x.server.Gets(cancels("1"))
		})
	}
}

// A call that is answered meanwhile, or whose client cannot show addresses, is not asked; the next one is.
func TestAskedLater(t *testing.T) {
	talking(t, func(t *testing.T, x *talk) {
		x.client.Says(call)
		x.answers(result)
		x.client.Gets(result)
		x.AskClient("https://h/mcp", need)
		x.client.Says("%s", strings.ReplaceAll(call, `"url":{}`, ``))
		x.AskClient("https://h/mcp", need)
		x.client.Gets()
		x.client.Says(call)
		x.AskClient("https://h/mcp", need)
		if m := <-x.client.Out; m.ID().String() != "1" {
			t.Errorf("asked was %s", m.Bytes())
		}
	})
}

// A cancellation that names no request goes to the server as it came, and ends no call.
func TestCancelledNothing(t *testing.T) {
	for _, params := range []string{``, `,"params":{}`, `,"params":[]`, `,"params":null`, `,"params":{"requestId":null}`, `,"params":{"requestId":{}}`, `,"params":{"requestId":1.5}`} {
		note := `{"jsonrpc":"2.0","method":"notifications/cancelled"` + params + `}`
		t.Run(note, func(t *testing.T) {
			talking(t, func(t *testing.T, x *talk) {
				x.client.Says(call)
				x.client.Says("%s", note)
				x.server.Gets(call, note)
				x.answers(result)
				x.client.Gets(result)
			})
			talking(t, func(t *testing.T, x *talk) { // while its question is open
				retry := x.asks(t, "accept")
				x.client.Says("%s", note)
				x.server.Gets(note)
				x.client.Says("%s", retry)
				x.answers(result)
				x.client.Gets(strings.Replace(result, `"id":1`, `"id":2`, 1))
			})
		})
	}
}

// cancels is a client's notifications/cancelled.
func cancels(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

// A request has one answer: the outcome of a call that was answered with a question reaches nobody when its retry was
// cancelled or declined, also if it was on its way to the client already.
func TestOutcomeTooLate(t *testing.T) {
	t.Run("cancelled", func(t *testing.T) {
		talking(t, func(t *testing.T, x *talk) {
			x.client.Says("%s", x.asks(t, "accept"))
			x.client.Says("%s", cancels("2"))
			x.server.Gets(cancels("1"))
			x.answers(result)
			x.client.Gets()
		})
	})
	t.Run("declined", func(t *testing.T) {
		talking(t, func(t *testing.T, x *talk) {
			x.client.Says("%s", x.asks(t, "decline"))
			x.server.Gets(cancels("1"))
			if m := <-x.client.Out; m.ID().String() != "2" || !m.IsError() {
				t.Errorf("the answer is %s", m.Bytes())
			}
			x.answers(result)
			x.client.Gets()
		})
	})
}

// While a call waits for its outcome, its id and that of its retry stand for nothing else.
func TestIDInUse(t *testing.T) {
	const inUse = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32600,"message":"a request with this id is already in progress"}}`
	outcome := strings.Replace(result, `"id":1`, `"id":2`, 1)
	for name, again := range map[string]string{"a call": call, "a ping": `{"jsonrpc":"2.0","id":1,"method":"ping"}`} {
		t.Run(name, func(t *testing.T) {
			talking(t, func(t *testing.T, x *talk) {
				retry := x.asks(t, "accept")
				x.client.Says("%s", again)
				x.client.Gets(strings.Replace(inUse, "ID", "1", 1))
				x.client.Says("%s", retry)
				x.client.Says("%s", strings.Replace(again, `"id":1`, `"id":2`, 1))
				x.client.Gets(strings.Replace(inUse, "ID", "2", 1))
				x.server.Gets()
				x.answers(result)
				x.client.Gets(outcome)
			})
		})
	}
	t.Run("before the question", func(t *testing.T) {
		talking(t, func(t *testing.T, x *talk) {
			x.client.Says(call)
			x.client.Says(call)
			x.client.Gets(strings.Replace(inUse, "ID", "1", 1))
			x.server.Gets(call)
			x.AskClient("https://h/mcp", need)
			if m := <-x.client.Out; m.ID().String() != "1" || m.IsError() {
				t.Errorf("asked was %s", m.Bytes())
			}
		})
	})
	t.Run("the retry has the id of another call", func(t *testing.T) {
		talking(t, func(t *testing.T, x *talk) {
			retry := x.asks(t, "accept")
			x.client.Says("%s", strings.Replace(call, `"id":1`, `"id":2`, 1))
			x.client.Says("%s", retry)
			x.client.Gets(strings.Replace(inUse, "ID", "2", 1))
			x.answers(outcome)
			x.client.Gets(outcome)
		})
	})
	t.Run("the retry has the id of its call", func(t *testing.T) {
		talking(t, func(t *testing.T, x *talk) {
			x.client.Says("%s", strings.Replace(x.asks(t, "accept"), `"id":2`, `"id":1`, 1))
			x.answers(result)
			x.client.Gets(result)
		})
	})
}

// asksAt has the client call, and shows it an address; it returns the retry.
func (x *talk) asksAt(t *testing.T, id, addr, action string) string {
	t.Helper()
	made := strings.Replace(call, `"id":1`, `"id":`+id, 1)
	x.client.Says("%s", made)
	x.server.Gets(made)
	x.AskClient("https://h/mcp", client.SignInRequired{URL: addr})
	m := <-x.client.Out
	state := regexp.MustCompile(`"requestState":"([^"]+)"`).FindSubmatch(m.Bytes())
	if m.ID().String() != id || state == nil {
		t.Fatalf("asked was %s", m.Bytes())
	}
	return strings.NewReplacer("ACTION", action, "STATE", string(state[1]), `"id":2`, `"id":"retry of `+id+`"`).Replace(retry)
}

// Outcomes whose retries do not come are kept for the newest calls.
func TestOldestForgotten(t *testing.T) {
	talking(t, func(t *testing.T, x *talk) {
		var retries []string
		for i := range maxEndedCalls + 2 {
			id := strconv.Itoa(i)
			retries = append(retries, x.asksAt(t, id, "https://as.example/"+id, "accept"))
			x.answers(strings.Replace(result, `"id":1`, `"id":`+id, 1))
		}
		x.client.Gets()
		for i, retry := range retries {
			x.client.Says("%s", retry)
			if i < 2 {
				x.server.Gets(retry)
				continue
			}
			x.client.Gets(strings.Replace(result, `"id":1`, `"id":"retry of `+strconv.Itoa(i)+`"`, 1))
		}
		x.server.Gets()
	})
}

// Who does not want to open an address is still waited for at another, and not at that one, whenever the wait begins.
func TestDeclinedAddress(t *testing.T) {
	talking(t, func(t *testing.T, x *talk) {
		const a, b = "https://as.example/a", "https://as.example/b"
		first, second := x.asksAt(t, "1", a, "decline"), x.asksAt(t, "3", b, "decline")
		ctx, end, _ := x.beginWait(t.Context(), b)
		defer end()
		x.client.Says("%s", first)
		if ctx.Err() != nil || x.refuses(t, b) {
			t.Errorf("declined was %s: the wait for %s has ended: %v, refused: %v", a, b, ctx.Err(), x.refuses(t, b))
		}
		x.client.Says("%s", second)
		if context.Cause(ctx) != client.ErrSignInTimeout {
			t.Errorf("the wait has ended: %v", context.Cause(ctx))
		}
		if late, end, refused := x.beginWait(t.Context(), b); !refused || context.Cause(late) != client.ErrSignInTimeout {
			t.Errorf("a wait after that: refused %v, ended: %v", refused, context.Cause(late))
		} else {
			end()
		}
		for range 2 {
			<-x.client.Out // the errors
		}
	})
}

// A legacy client that is asked to show another address is told first that the one before is settled, unless it knows.
func TestAskedAgain(t *testing.T) {
	for action, want := range map[string]string{"": methodCancelled, "accept": methodElicitComplete, "decline": "", "cancel": ""} {
		t.Run(action, func(t *testing.T) {
			talking(t, func(t *testing.T, x *talk) {
				x.client.Says(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{"elicitation":{"url":{}}}}}`)
				x.answers(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
				<-x.client.Out
				x.answers(`{"jsonrpc":"2.0","error":{"code":-32700,"message":"the answer to no initialize"}}`)
				<-x.client.Out
				x.AskClient("https://h/mcp", client.SignInRequired{URL: "https://as.example/a"})
				synctest.Wait()
				first := <-x.client.Out
				if action != "" {
					x.client.Says(`{"jsonrpc":"2.0","id":%s,"result":{"action":%q}}`, first.ID(), action)
				}
				x.AskClient("https://h/mcp", client.SignInRequired{URL: "https://as.example/b"})
				if want != "" {
					if m := <-x.client.Out; m.Method() != want || !strings.Contains(string(m.Params()), first.ID().String()) {
						t.Errorf("told was %s, want %s of %s", m.Bytes(), want, first.ID())
					}
				}
				second := <-x.client.Out
				if second.Method() != methodElicit || !strings.Contains(string(second.Params()), `"https://as.example/b"`) {
					t.Errorf("asked was %s", second.Bytes())
				}
				x.settlePrompt()
				if m := <-x.client.Out; m.Method() != methodCancelled || m.CancelledID() != second.ID() {
					t.Errorf("told was %s", m.Bytes())
				}
				x.client.Gets()
			})
		})
	}
}
