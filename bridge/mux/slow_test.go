package mux_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// serverSaysAll sends so many messages of progress, of 64 KiB each, and then done.
func (x *muxed) serverSaysAll(token string, n int) (done <-chan struct{}) {
	pad, said := strings.Repeat("x", 64<<10), make(chan struct{})
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s"}}`
	go func() {
		defer close(said)
		for i := range n {
			if x.server.Send(context.Background(), parse(x.t, fmt.Sprintf(progress, token, i, pad))) != nil {
				return
			}
		}
	}()
	return said
}

// D.2: a client that reads fast enough (16 MiB a second) gets all of a flood, also when
// the bridge has things of its own to say to it meanwhile: each who waits for room in
// its queue judges it by what it reads in that time, and not by what is left of that
// since another has looked.
func TestMuxReaderIsNotSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{MaxUnreadBytes: 8 << 20})
		a, token := x.progressing()
		const n = 1500
		said := x.serverSaysAll(token, n)
		refused := make(chan struct{})
		stop := make(chan struct{})
		go func() {
			defer close(refused)
			m := parse(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`) // the id is in use
			for {
				select {
				case <-stop:
					return
				case <-time.After(7 * time.Millisecond):
					_ = a.Send(t.Context(), m)
				}
			}
		}()
		got, refusals := 0, 0
		for got < n {
			m, err := bridgetest.Recv(t.Context(), a)
			if err != nil {
				t.Errorf("%d of %d have come, and then %v", got, n, err)
				break
			}
			if m.Kind() == jsonrpc.Response {
				refusals++
			} else {
				got++
			}
			time.Sleep(4 * time.Millisecond)
		}
		if close(stop); refusals == 0 {
			t.Error("nothing was refused")
		}
		_ = a.Close(nil)
		<-said
		<-refused
	})
}

// D.2: a client that reads steadily, but less than its call brings, keeps nobody else
// waiting without end: while others have calls in progress it is waited for 5 s in a
// row, and then it is ended by name. One that is alone with the server may take its time.
func TestMuxSteadyReaderHoldsNobodyUp(t *testing.T) {
	for name, alone := range map[string]bool{"with another": false, "alone": true} {
		bubble(t, name, func(t *testing.T) {
			x := newMux(t, mux.Options{MaxUnreadBytes: 1 << 20})
			a, token := x.progressing()
			const n = 1200
			var b *muxClient
			if !alone {
				b = x.dial()
				b.says(call("1"))
				x.serverGets(call("2"))
			}
			began := time.Now()
			said := x.serverSaysAll(token, n)
			ended := make(chan error, 1)
			go func() {
				for range n {
					if _, err := bridgetest.Recv(t.Context(), a); err != nil {
						ended <- err
						return
					}
					time.Sleep(15 * time.Millisecond) // 4 MiB a second: 18 s for all
				}
				ended <- nil
			}()
			<-said // what b waits for comes behind this
			held := time.Since(began)
			if !alone {
				x.serverSays(`{"jsonrpc":"2.0","id":2,"result":{}}`)
				b.gets(`1 {"jsonrpc":"2.0","id":1,"result":{}}`)
			}
			switch err := <-ended; {
			case alone && err != nil:
				t.Errorf("ended after %v: %v", held, err)
			case !alone && err != bridge.ErrSlow:
				t.Errorf("ended with %v, want ErrSlow", err)
			case !alone && (held < 4*time.Second || held > 7*time.Second):
				t.Errorf("others were held up for %v", held)
			}
		})
	}
}

// vanishing is a server's Conn that ends while a message is being given to it.
type vanishing struct {
	bridge.Conn
	end  func() // returns when nobody does anything any more
	took *atomic.Int64
}

func (v *vanishing) TrySend(jsonrpc.Message) bool {
	v.end()
	return false
}

func (v *vanishing) Send(ctx context.Context, m jsonrpc.Message) error {
	err := v.Conn.Send(ctx, m)
	if err == nil {
		v.took.Add(1)
	}
	return err
}

// Nothing is dropped without a word: a notification that was sent without an error has
// reached the server's Conn, or is reported, whenever the server ends.
func TestMuxServerEndsAtNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took, dropped atomic.Int64
		x := mux.New(mux.Options{
			Backoff: 1,
			Dropped: func(jsonrpc.Message, string) { dropped.Add(1) },
			Dialer: dialFunc(func(context.Context) (bridge.Conn, error) {
				ours, theirs := bridge.Pipe()
				return &vanishing{Conn: ours, took: &took, end: func() {
					_ = theirs.Close(nil)
					synctest.Wait()
				}}, nil
			}),
		})
		c, err := x.Dial(t.Context())
		bridgetest.Must(t, err)
		note := parse(t, `{"jsonrpc":"2.0","method":"notifications/x"}`)
		sent := int64(0)
		for range 64 {
			switch err := c.Send(t.Context(), note); {
			case err == nil:
				sent++
			case !errors.Is(err, io.ErrClosedPipe):
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // failures are forgotten
		}
		synctest.Wait()
		if took, dropped := took.Load(), dropped.Load(); sent == 0 || sent != took+dropped {
			t.Errorf("%d were sent: %d have arrived, %d were reported, %d are lost", sent, took, dropped, sent-took-dropped)
		}
		_ = x.Close()
	})
}

// Whoever is told that a message has reached nobody may use the Mux meanwhile, or wait
// for others that do: no lock is held.
func TestMuxDroppedHoldsNoLock(t *testing.T) {
	servers := newServers()
	var x *mux.Mux
	told := make(chan error, 1)
	x = mux.New(mux.Options{Dialer: servers, MaxUnreadBytes: 100, Dropped: func(jsonrpc.Message, string) {
		done := make(chan error, 1)
		go func() {
			x.Load()
			c, err := x.Dial(t.Context())
			if err == nil {
				err = c.Close(nil)
			}
			done <- err
		}()
		select {
		case err := <-done:
			told <- err
		case <-time.After(patience):
			told <- errors.New("the Mux is locked")
		}
	}})
	a, err := x.Dial(t.Context())
	bridgetest.Must(t, err)
	bridgetest.Must(t, a.Send(t.Context(), parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":1}}}`)))
	server := <-servers.next
	m, err := bridgetest.Recv(t.Context(), server)
	bridgetest.Must(t, err)
	text := fmt.Sprintf(progressOf, m.ProgressToken(), 1)
	bridgetest.Must(t, server.Send(t.Context(), parse(t, strings.Replace(text, `"progress"`, `"message":"`+strings.Repeat("x", 1000)+`","progress"`, 1))))
	_ = server.Close(nil) // the call's error finds no room
	if err := <-told; err != nil {
		t.Error(err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// patience is how long a test that does not fail never has to wait.
const patience = 10 * time.Second
