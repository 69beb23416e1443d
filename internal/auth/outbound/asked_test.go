package outbound

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A chance is a conversation in which both sides do anything in any order.
type chance struct {
	*talk
	*rand.Rand
	requests, answers map[string]int // of the client, by id
	cancelled         map[string]bool
	open, late        map[string]bool // at the server; those that were cancelled while they were answered
	states            []string        // of questions
	asked, fresh      int
}

var requestState = regexp.MustCompile(`"requestState":"([^"]+)"`)

// id returns one that is new, or was used before.
func (c *chance) id() string {
	if c.fresh == 0 || c.IntN(4) > 0 {
		c.fresh++
		return strconv.Itoa(c.fresh)
	}
	return strconv.Itoa(1 + c.IntN(c.fresh))
}

// request has the client send a call; with a state it is a retry.
func (c *chance) request(id, state string) {
	c.requests[id]++
	more := ""
	if state != "" {
		more = fmt.Sprintf(`"inputResponses":{"sign-in":{"action":%q}},"requestState":%q,`, []string{"accept", "accept", "decline", "cancel", "?"}[c.IntN(5)], state)
	}
	c.client.Says(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"t",%s"_meta":{"progressToken":%d,%s}}}`, id, more, c.IntN(5), caps)
}

// answer has the server answer a call, if there is one with this id.
func (c *chance) answer(id string) {
	if c.open[id] || c.late[id] {
		delete(c.open, id)
		delete(c.late, id)
		c.talk.answers(strings.Replace([]string{result, missing}[c.IntN(2)], `"id":1`, `"id":`+id, 1))
	}
}

// step is one thing that happens.
func (c *chance) step() {
	switch c.IntN(7) {
	case 0, 1:
		c.request(c.id(), "")
	case 2:
		if len(c.states) > 0 {
			c.request(c.id(), c.states[c.IntN(len(c.states))])
		}
	case 3:
		id := c.id()
		c.cancelled[id] = true
		c.client.Says("%s", cancels([]string{id, id, id, "null", "{}"}[c.IntN(5)]))
	case 4:
		if c.asked++; c.asked < maxEndedCalls { // beyond that some are forgotten
			c.AskClient("https://h/mcp", client.SignInRequired{URL: "https://as.example/" + strconv.Itoa(c.asked)})
		}
	case 5:
		c.talk.answers(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + strconv.Itoa(c.IntN(5)) + `,"progress":1}}`)
	case 6:
		c.answer(c.id())
	}
	c.look()
}

// look sees what has come to either side. The server refuses an id that is in use, as the Pump does in its place.
func (c *chance) look() {
	for synctest.Wait(); len(c.server.Out)+len(c.client.Out) > 0; synctest.Wait() {
		select {
		case m := <-c.client.Out:
			if m.Kind() == jsonrpc.Response {
				c.answers[m.ID().String()]++
			}
			if state := requestState.FindSubmatch(m.Bytes()); state != nil {
				c.states = append(c.states, string(state[1]))
			}
		case m := <-c.server.Out:
			id, ended := m.ID().String(), m.CancelledID().String()
			switch {
			case c.open[id]:
				c.talk.answers(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32600,"message":"in use"}}`)
			case m.Kind() == jsonrpc.Request:
				c.open[id] = true
				delete(c.late, id)
			case c.open[ended]:
				delete(c.open, ended)
				c.late[ended] = true
			}
		}
	}
}

// Whatever both sides do, in whatever order, a request is answered once, if it is not cancelled, and never twice.
func TestOneAnswer(t *testing.T) {
	for seed := range uint64(300) {
		talking(t, func(t *testing.T, x *talk) {
			c := &chance{talk: x, Rand: rand.New(rand.NewPCG(seed, 0)), requests: map[string]int{}, answers: map[string]int{},
				cancelled: map[string]bool{}, open: map[string]bool{}, late: map[string]bool{}}
			x.client.Out, x.server.Out = bridgetest.NewPeer(t, 1000).Out, bridgetest.NewPeer(t, 1000).Out
			for range 80 {
				c.step()
			}
			for _, state := range append(c.states, "") { // what is still open comes to its end
				if c.fresh++; state != "" {
					c.request(strconv.Itoa(c.fresh), state)
				}
				c.look()
				for id := range c.fresh {
					c.answer(strconv.Itoa(id + 1))
					c.look()
				}
			}
			for id, n := range c.requests {
				if c.answers[id] > n || c.answers[id] < n && !c.cancelled[id] {
					t.Errorf("seed %d: %d requests with the id %s have %d answers", seed, n, id, c.answers[id])
				}
			}
		})
	}
}
