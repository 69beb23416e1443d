package streamhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// TestPostQueueExactlyOnce: what accept has accepted reaches the receiver once, what it has not
// never does, and one client's messages stay in order, whoever does the receiver's
// work and whoever gives up meanwhile.
func TestPostQueueExactlyOnce(t *testing.T) {
	const clients, each = 8, 300
	s := newTestSession()
	var mu sync.Mutex
	got := make([][]int, clients)
	note := func(m jsonrpc.Message) {
		if m.Method() == "last" {
			return
		}
		var client, n int
		if _, err := fmt.Sscanf(m.Method(), "%d/%d", &client, &n); err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		got[client] = append(got[client], n)
		mu.Unlock()
	}
	var receiving sync.WaitGroup
	receiving.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 1))
		for {
			if s.Receive(context.Background(), unreliable{rnd, note}) == errSessionEnded {
				return
			}
		}
	})
	want := make([][]int, clients)
	var posting sync.WaitGroup
	for client := range clients {
		posting.Go(func() {
			rnd := rand.New(rand.NewPCG(2, uint64(client)))
			for n := range each {
				ctx, cancel := context.WithCancel(context.Background())
				if rnd.IntN(4) == 0 {
					go cancel()
				}
				if s.offerAndWait(ctx, jsonrpc.NewNotification(fmt.Sprintf("%d/%d", client, n), nil), nil) == nil {
					want[client] = append(want[client], n)
				}
				cancel()
			}
		})
	}
	posting.Wait()
	// What a POST has left to the queue, while the sink refused it, ends with the session: the last message comes after it.
	if err := s.offerAndWait(t.Context(), jsonrpc.NewNotification("last", nil), nil); err != nil {
		t.Error(err)
	}
	s.end("the test is over")
	receiving.Wait()
	for client := range clients {
		if fmt.Sprint(got[client]) != fmt.Sprint(want[client]) {
			t.Errorf("of client %d came\n%v, accepted were\n%v", client, got[client], want[client])
		}
	}
}

// unreliable is a Sink that often cannot take a message at once, or at all.
type unreliable struct {
	rnd  *rand.Rand
	note func(m jsonrpc.Message)
}

func (u unreliable) TrySend(m jsonrpc.Message) bool {
	if u.rnd.IntN(3) == 0 {
		return false
	}
	u.note(m)
	return true
}

func (u unreliable) Send(_ context.Context, m jsonrpc.Message) error {
	if u.rnd.IntN(3) == 0 {
		return errors.New("not now")
	}
	u.note(m)
	return nil
}

// TestPostQueueEnd: a session that has ended takes nothing any more, also of what waits.
func TestPostQueueEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSession()
		m := jsonrpc.NewNotification("n", nil)
		waiting := make(chan error, 1)
		go func() { waiting <- s.offerAndWait(t.Context(), m, nil) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		held := s.posts.offer(m, nil)
		s.end("the test wants it")
		if err := <-waiting; err != errSessionEnded {
			t.Errorf("what waited: %v", err)
		}
		if err := s.offerAndWait(t.Context(), m, nil); err != errSessionEnded {
			t.Errorf("what came later: %v", err)
		}
		for _, ctx := range []context.Context{ctx, t.Context()} {
			if err := s.Receive(ctx, nil); err != errSessionEnded {
				t.Errorf("Receive gives %v", err)
			}
		}
		if _, ok := s.posts.takeBack(held); !ok {
			t.Error("a message that was held out is said to be taken")
		}

		s = newTestSession()
		go func() {
			waiting <- s.Receive(t.Context(), nil)
		}()
		synctest.Wait()
		s.end("the test wants it")
		if err := <-waiting; err != errSessionEnded {
			t.Errorf("Receive that waits gives %v", err)
		}
	})
}

// TestCommitTimes: LI7. Each reply becomes a stream when its own time has come,
// although one timer is for all of a session's.
func TestCommitTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSession()
		begin, after := time.Now(), s.opts.CommitAfter
		call := func(id int64, opens bool) (*stream, *reader) {
			st, rd, _, err := s.openPostStream([]jsonrpc.Message{jsonrpc.NewRequest(jsonrpc.IntID(id), "x", nil)})
			bridgetest.Must(t, err)
			s.scheduleCommit(st, opens)
			return st, rd
		}
		streams := func(st *stream) bool {
			_, stream := s.jsonAnswer(st)
			return stream
		}
		opening, openingReader := call(0, true)
		first, firstReader := call(1, false)
		time.Sleep(after / 2)
		second, secondReader := call(2, false)
		answered, _ := call(3, false)
		bridgetest.Must(t, s.Send(t.Context(), jsonrpc.NewResult(jsonrpc.IntID(3), []byte("{}"))))
		unset, _, _, err := s.openPostStream([]jsonrpc.Message{jsonrpc.NewRequest(jsonrpc.IntID(4), "x", nil)})
		bridgetest.Must(t, err)
		if streams(first) || streams(second) {
			t.Error("a reply is a stream too early")
		}
		<-firstReader.wake
		if d := time.Since(begin); d != after || !streams(first) || streams(second) {
			t.Errorf("the first was woken after %v, is a stream: %v, the second: %v", d, streams(first), streams(second))
		}
		<-secondReader.wake
		if d := time.Since(begin); d != after*3/2 || !streams(second) {
			t.Errorf("the second was woken after %v, is a stream: %v", d, streams(second))
		}
		if streams(answered) || streams(unset) || streams(opening) {
			t.Error("a reply is a stream that was answered before, or whose time has not begun, or that initialize is")
		}
		<-openingReader.wake
		if d := time.Since(begin); d != initializeCommitAfter || !streams(opening) {
			t.Errorf("initialize was woken after %v, is a stream: %v", d, streams(opening))
		}
		third, thirdReader := call(5, false) // the timer has stood still
		<-thirdReader.wake
		if d := time.Since(begin); d != initializeCommitAfter+after || !streams(third) {
			t.Errorf("the third was woken after %v, is a stream: %v", d, streams(third))
		}
		s.end("the test is over")
	})
}

// TestPOSTAnsweredAtOnce: a server that takes a request and answers it before the
// POST has looked again leaves nobody waiting.
func TestPOSTAnsweredAtOnce(t *testing.T) {
	h := NewHandler(bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		for {
			m, err := bridgetest.Recv(ctx, client)
			if err == nil {
				err = client.Send(ctx, jsonrpc.NewResult(m.ID(), []byte("{}")))
			}
			if err != nil {
				return nil
			}
		}
	}), HandlerOptions{CommitAfter: time.Hour}) // on a machine that stalls, too, the answer is no stream
	defer h.Close()
	session := ""
	for id := range 20_000 {
		method := "x"
		if session == "" {
			method = "initialize"
		}
		r := httptest.NewRequest("POST", "http://127.0.0.1/", strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r) // a client that waits for ever is found by the test's time limit
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id)
		if got := w.Body.String(); w.Code != http.StatusOK || got != want {
			t.Fatalf("the client got %d %q, want %s", w.Code, got, want)
		}
		session = cmp.Or(session, w.Header().Get("Mcp-Session-Id"))
	}
}

// Who brings an answer writes it, unless so many calls are open that the next answer
// would wait for that; then the exchange's own goroutine does.
func TestInlineCalls(t *testing.T) {
	s := newTestSession()
	defer s.Close(nil)
	readers := make([]*reader, maxInlineCalls+1)
	wrote := make([]bool, len(readers))
	for i := range readers {
		_, rd, _, err := s.openPostStream([]jsonrpc.Message{jsonrpc.NewRequest(jsonrpc.IntID(int64(i)), "tools/call", nil)})
		bridgetest.Must(t, err)
		readers[i] = rd
		rd.setInlineAnswer(func() bool { wrote[i] = true; return true })
	}
	for i, rd := range readers {
		if !s.TrySend(jsonrpc.NewResult(jsonrpc.IntID(int64(i)), nil)) {
			t.Fatalf("answer %d is not taken", i)
		}
		<-rd.wake
		if wrote[i] != (i > 0) {
			t.Errorf("with %d calls open, the answer was written by who has brought it: %v", len(readers)-i, wrote[i])
		}
	}
}
