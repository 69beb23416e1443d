package streamhttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

const note = `{"jsonrpc":"2.0","method":"notifications/x"}`

func request(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` }

// LI8, LI11, J7: arrays belong to 2025-03-26, and the negotiated version decides.
func TestServerBatchRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		for _, version := range []string{"2024-11-05", r25b, r25c} {
			u, p := s.open(version)
			for _, header := range []string{"", r25a, version} {
				want := "null"
				if header == r25c {
					want = ""
				}
				u.post("["+note+"]", "Mcp-Protocol-Version: "+header).isError(http.StatusBadRequest, -32600, want)
			}
			p.getsNothing()
		}
		u, p := s.open(r25a)
		r := u.post("\ufeff [" + note + "]")
		p.getsText(note)
		r.is(http.StatusAccepted)
		r = u.post("["+note+"]", "Mcp-Protocol-Version: "+r25c)
		p.getsText(note)
		r.is(http.StatusAccepted)
		none := &user{site: s}
		none.post("["+note+"]").isError(http.StatusBadRequest, -32600, "null")
	})
}

// LI9: which arrays are taken.
func TestServerBatchShape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{MaxBatch: 5})
		u, p := s.open(r25a)
		many := strings.TrimSuffix(strings.Repeat(note+",", 6), ",")
		for body, code := range map[string]int{
			"[]":                                     -32600,
			" [ ] ":                                  -32600,
			"[" + initialize(r25a) + "]":             -32600,
			"[" + note + "," + initialize("x") + "]": -32600,
			"[" + many + "]":                         -32600,
			"[" + note:                               -32700,
			"[" + note + ",]":                        -32700,
			"[" + note + "] []":                      -32700,
			"[" + request("1") + "," + request("1") + "]": -32600, // J3
		} {
			id := "null"
			if strings.Contains(body, "ping") {
				id = "1"
			}
			u.post(body).isError(http.StatusBadRequest, code, id)
		}
		p.getsNothing() // nothing of a refused batch has arrived
		r := u.post("[" + note + "," + note + "]")
		p.getsText(note)
		p.getsText(note)
		if got := r.is(http.StatusAccepted); got != "" {
			t.Errorf("202 with %q", got)
		}
		r = u.post(`[` + result("7") + `,{"jsonrpc":"2.0","id":8,"error":{"code":1,"message":""}}]`)
		p.getsText(result("7"))
		p.gets()
		r.is(http.StatusAccepted)
	})
}

// LI9, LI10: in JSON one array, in the order of the requests; mixed is fine.
func TestServerBatchJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25a)
		r := u.post("[" + request("1") + "," + note + "," + request(`"1"`) + "," + result("5") + "," + request("3") + "]")
		p.getsText(request("1"))
		p.getsText(note)
		p.getsText(request(`"1"`))
		p.getsText(result("5"))
		p.getsText(request("3"))
		p.says(result("3"), result("1"))
		time.Sleep(40 * time.Millisecond)
		p.says(result(`"1"`))
		r.isJSON("[" + result("1") + "," + result(`"1"`) + "," + result("3") + "]")
		r = u.post("[" + request("1") + "," + note + "]")
		p.gets()
		p.gets()
		p.says(result("1"))
		r.isJSON("[" + result("1") + "]")
	})
}

// LI10: a stream has one event for each answer and ends after the last.
func TestServerBatchStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25a)
		r := u.post("[" + request("1") + "," + request("2") + "," + request("3") + "]")
		for range 3 {
			p.gets()
		}
		p.says(result("2"))
		time.Sleep(time.Second)
		r.gets(result("2"))
		p.says(result("3"))
		r.gets(result("3")).open()
		u.post(request("1")).isError(http.StatusBadRequest, -32600, "1") // J3: still in flight
		p.says(result("1"))
		r.gets(result("1")).over()
	})
	// LI16, LI17: and it can be resumed like any other.
	bubble(t, "resume", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25a)
		r := u.post("[" + request("1") + "," + request("2") + "]")
		p.gets()
		p.gets()
		time.Sleep(time.Second)
		p.says(result("2"))
		r.gets(result("2"))
		r.cut()
		p.says(result("1"))
		again := u.get("Last-Event-ID: " + r.lastID())
		again.gets(result("1")).over()
	})
}

// LI12: an invalid element is answered for itself, the others go their way.
func TestServerBatchInvalidElement(t *testing.T) {
	const badOne = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid message: a message must be an object at byte 0"}}`
	const noMethod = `{"jsonrpc":"2.0","id":9,"error":{"code":-32600,"message":"invalid message: neither a method nor a result nor an error in the object at byte 0"}}`
	bubble(t, "with a request", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25a)
		r := u.post(`[1,` + request("1") + `,{"jsonrpc":"2.0","id":9},[]]`)
		p.getsText(request("1"))
		p.says(result("1"))
		elements, err := jsonrpc.SplitBatch([]byte(r.is(http.StatusOK)), 0)
		if err != nil || len(elements) != 4 || string(elements[0]) != result("1") ||
			string(elements[1]) != badOne || string(elements[2]) != noMethod {
			t.Errorf("got %s", r.body)
		}
	})
	bubble(t, "alone", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25a)
		if got := u.post("[1]").is(http.StatusBadRequest); got != "["+badOne+"]" {
			t.Errorf("got %s", got)
		}
		r := u.post(`[1,` + note + `]`)
		p.getsText(note)
		if got := r.is(http.StatusBadRequest); got != "["+badOne+"]" {
			t.Errorf("got %s", got)
		}
	})
}

// A batch whose session ends in the middle has each request answered, once.
func TestServerBatchSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25a)
		r := u.post("[" + request("1") + "," + note + "," + request("2") + "]")
		p.gets()
		u.request("DELETE", "").is(http.StatusNoContent)
		elements, err := jsonrpc.SplitBatch([]byte(r.is(http.StatusOK)), 0)
		if err != nil || len(elements) != 2 {
			t.Fatalf("got %s", r.body)
		}
		for i, id := range []string{"1", "2"} {
			if m, err := jsonrpc.Parse(elements[i]); err != nil || !m.IsError() || m.ID().String() != id {
				t.Errorf("element %d is %s", i, elements[i])
			}
		}
	})
	bubble(t, "the client hangs up in the middle", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25a)
		r := u.post("[" + request("1") + "," + request("2") + "]")
		p.gets()
		r.cut()
		p.getsNothing() // 2 was not accepted; 1 was, and goes on
		r = u.post(request("2"))
		p.gets()
		p.says(result("2"))
		r.isJSON(result("2"))
		u.post(request("1")).isError(http.StatusBadRequest, -32600, "1")
		p.says(result("1")) // to nobody
		r = u.post(request("1"))
		p.gets()
		p.says(result("1"))
		r.isJSON(result("1"))
	})
	// LI28 within a batch.
	bubble(t, "cancels its own request", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25a)
		const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
		r := u.post("[" + request("1") + "," + cancel + "," + request("2") + "]")
		p.gets()
		p.getsText(cancel)
		p.gets()
		p.says(result("2"))
		r.isJSON(`[{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"cancelled","data":{"reason":"cancelled"}}},` + result("2") + `]`)
	})
}

// A batch that is cut off before the server has taken all of it leaves no
// requests behind: the ids can be used again, and the session can end.
func TestServerBatchCutOff(t *testing.T) {
	for _, taken := range []int{0, 1} {
		bubble(t, fmt.Sprint(taken), func(t *testing.T) {
			s := newSite(t, streamhttp.HandlerOptions{})
			u, p := s.open(r25a)
			const request, note = `{"jsonrpc":"2.0","id":%d,"method":"tools/call"}`, `{"jsonrpc":"2.0","method":"x"}`
			r := u.post("[" + note + "," + note + "," + fmt.Sprintf(request, 1) + "," + fmt.Sprintf(request, 2) + "]")
			for range taken {
				p.getsText(note)
			}
			r.cut()
			for range taken { // the server has begun to take it: it gets the other one, too
				p.getsText(note)
			}
			p.getsNothing()
			for id := 1; id <= 2; id++ {
				again := u.post(fmt.Sprintf(request, id))
				p.getsText(fmt.Sprintf(request, id))
				p.says(result(fmt.Sprint(id)))
				again.isJSON(result(fmt.Sprint(id)))
			}
		})
	}
}

// A batch whose requests are answered becomes a stream in time, too, when the
// server does not take the rest of it (LI7).
func TestServerBatchRest(t *testing.T) {
	for name, opts := range map[string]streamhttp.HandlerOptions{"time": {}, "end": {CommitAfter: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, opts)
				u, p := s.open(r25a)
				r := u.post("[" + request("1") + "," + note + "]")
				p.getsText(request("1"))
				p.says(result("1"))
				time.Sleep(time.Second)
				if name == "time" {
					r.gets(result("1"))
					return
				}
				u.request("DELETE", "").is(http.StatusNoContent)
				time.Sleep(time.Hour)
				synctest.Wait()
				r.isJSON("[" + result("1") + "]")
			})
		})
	}
}

// LI9: what stands behind the requests of a batch gets to the server also when the
// last of them is answered before, or the client hangs up: another call may wait
// for it.
func TestServerBatchTail(t *testing.T) {
	for _, name := range []string{"answered", "answered late", "hung up", "hung up before the reply"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, streamhttp.HandlerOptions{})
				u, p := s.open(r25a)
				answer := `{"jsonrpc":"2.0","id":"q","result":{}}`
				u.post(request("2"))
				p.getsText(request("2"))
				p.says(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
				r := u.post("[" + request("1") + "," + note + "," + answer + "]")
				p.getsText(request("1"))
				switch name {
				case "answered":
					time.Sleep(time.Second) // the reply is a stream
					p.says(result("1"))
					r.gets(result("1"))
				case "answered late":
					p.says(result("1"))
					time.Sleep(time.Second)
					r.gets(result("1"))
				case "hung up":
					time.Sleep(time.Second)
					r.cut()
				default:
					r.cut()
				}
				synctest.Wait()
				p.getsText(note)
				p.getsText(answer)
			})
		})
	}
}
