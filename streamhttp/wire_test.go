package streamhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// A body that does not come in time is 408, and the connection is closed; also
// where the request is refused before its body is looked at.
func TestServerSlowBody(t *testing.T) {
	for _, c := range []struct {
		name, head string
		status     int
	}{
		{"sized", "Content-Length: 100\r\n\r\n{", http.StatusRequestTimeout},
		{"nothing of it", "Content-Length: 100\r\n\r\n", http.StatusRequestTimeout},
		{"large", "Content-Length: 3000000\r\n\r\n{", http.StatusRequestTimeout},
		{"chunked", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", http.StatusRequestTimeout},
		{"expected", "Expect: 100-continue\r\nContent-Length: 100\r\n\r\n", http.StatusRequestTimeout},
		{"refused for its Origin", "Origin: http://evil.example\r\nContent-Length: 100\r\n\r\n{", http.StatusForbidden},
		{"refused for its size", "Content-Length: 300000000\r\n\r\n{", http.StatusRequestEntityTooLarge},
	} {
		bubble(t, c.name, func(t *testing.T) {
			s := newSite(t, streamhttp.HandlerOptions{})
			u, p := s.open(r25c)
			start := time.Now()
			conn := s.raw()
			conn.write(u.posting() + c.head)
			resp, body := conn.reply()
			for resp.StatusCode == http.StatusContinue {
				resp, body = conn.reply()
			}
			if resp.StatusCode != c.status || !strings.HasPrefix(body, `{"jsonrpc":"2.0","id":null,"error"`) {
				t.Errorf("status %d, %s; want %d", resp.StatusCode, body, c.status)
			}
			conn.closed()
			if took := time.Since(start); took > 31*time.Second {
				t.Errorf("it took %v", took)
			}
			p.getsNothing()
		})
	}
	for _, method := range []string{"GET", "DELETE", "PUT"} {
		bubble(t, method, func(t *testing.T) {
			s := newSite(t, streamhttp.HandlerOptions{StallAfter: time.Minute})
			u, _ := s.open(r25c)
			conn := s.raw()
			conn.write(strings.Replace(u.posting(), "POST", method, 1) + "Content-Length: 100\r\n\r\n{")
			conn.reply()
			conn.closed()
		})
	}
	// The deadline is for the body only: the reply may take as long as it likes.
	bubble(t, "long reply", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		for _, size := range []int{1, 2 << 20} {
			r := u.post(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"p":"` + big(size) + `"}}`)
			p.gets()
			time.Sleep(time.Hour)
			p.says(result("1"))
			r.gets(result("1")).over()
		}
		get := u.request("GET", "{}")
		time.Sleep(time.Hour)
		p.says(listChanged)
		get.gets(listChanged).open()
	})
	bubble(t, "slow but in time", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		conn := s.raw()
		conn.write(u.posting() + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(note)))
		for _, b := range []byte(note) {
			time.Sleep(200 * time.Millisecond)
			conn.write(string(b))
		}
		p.getsText(note)
		if resp, _ := conn.reply(); resp.StatusCode != http.StatusAccepted {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
	bubble(t, "hangs up in the middle", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		for _, framing := range []string{"Content-Length: 100\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", "Transfer-Encoding: chunked\r\n\r\nzz\r\n"} {
			conn := s.raw()
			conn.write(u.posting() + framing)
			go io.Copy(io.Discard, conn)
			synctest.Wait()
			conn.Close()
		}
		p.getsNothing()
	})
}

// J9: the limit holds for what is said and for what comes.
func TestServerTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{MaxMessageSize: 5000})
		u, p := s.open(r25b)
		fits := `{"jsonrpc":"2.0","method":"x","params":{"p":""}}`
		fits = strings.Replace(fits, `""`, `"`+big(5000-len(fits))+`"`, 1)
		for _, chunked := range []bool{false, true} {
			for _, c := range []struct {
				body   string
				status int
			}{{fits, 202}, {fits + " ", 413}, {big(100_000), 413}, {big(1_000_000), 413}} {
				conn := s.raw()
				framing := sized(c.body)
				if chunked {
					framing = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(c.body), c.body)
				}
				go func() { _, _ = io.WriteString(conn, u.posting()+framing) }()
				synctest.Wait()
				if c.status == 202 {
					p.getsText(fits)
				}
				resp, body := conn.reply()
				if resp.StatusCode != c.status {
					t.Errorf("%d bytes, chunked %v: status %d, want %d", len(c.body), chunked, resp.StatusCode, c.status)
				}
				if c.status == 413 && !strings.Contains(body, "5000 bytes") {
					t.Errorf("the error does not name the limit: %s", body)
				}
				conn.Close()
			}
		}
		p.getsNothing()
	})
	bubble(t, "1 MiB exactly, and around", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		for _, size := range []int{1<<20 - 1, 1 << 20, 1<<20 + 1, 4 << 20} {
			body := `{"jsonrpc":"2.0","method":"x","params":{"p":"` + big(size-47) + `"}}`
			for _, framing := range []string{sized(body), fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)} {
				conn := s.raw()
				go func() { _, _ = io.WriteString(conn, u.posting()+framing) }()
				synctest.Wait()
				p.getsText(body)
				conn.reply()
				conn.Close()
			}
		}
	})
}

// A connection lives on after an error, also when the body was not read.
func TestServerKeepsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{StallAfter: time.Second})
		u, p := s.open(r25c)
		conn := s.raw()
		bad := strings.Replace(u.posting(), "application/json\r\n", "text/plain\r\n", 1)
		for range 3 {
			for _, c := range []struct {
				request string
				status  int
			}{
				{bad + sized(big(3000)), 415},
				{u.posting() + sized("nonsense"), 400},
				{u.posting() + "Mcp-Session-Id: x\r\n" + sized("{}}"), 400},
				{"GET /mcp HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n\r\n", 406},
				{"PUT /mcp HTTP/1.1\r\nHost: x\r\n" + sized("{}"), 405},
				{"DELETE /mcp HTTP/1.1\r\nHost: x\r\nMcp-Session-Id: x\r\n\r\n", 404},
			} {
				conn.write(c.request)
				resp, _ := conn.reply()
				if resp.StatusCode != c.status || resp.Close {
					t.Fatalf("status %d, close %v; want %d", resp.StatusCode, resp.Close, c.status)
				}
				// Neither deadline of one request strikes in the next.
				time.Sleep(time.Minute)
			}
			// A stream, and then plain requests on the same connection.
			conn.write(u.posting() + sized(`{"jsonrpc":"2.0","id":1,"method":"x"}`))
			p.gets()
			go func() {
				time.Sleep(time.Minute)
				_ = p.Send(t.Context(), message(result("1")))
			}()
			if resp, body := conn.reply(); resp.StatusCode != 200 || !strings.HasSuffix(body, "data: "+result("1")+"\n\n") {
				t.Fatalf("status %d, %q", resp.StatusCode, body)
			}
			time.Sleep(time.Minute)
			conn.write(u.posting() + sized(ping))
			p.gets()
			time.Sleep(20 * time.Millisecond)
			go func() { _ = p.Send(t.Context(), message(result("1"))) }()
			if resp, body := conn.reply(); resp.StatusCode != 200 || body != result("1") {
				t.Fatalf("status %d, %q", resp.StatusCode, body)
			}
		}
	})
}

// Clients of HTTP/1.0 have neither chunks nor a second request.
func TestServerHTTP10(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		old := strings.Replace(u.posting(), "HTTP/1.1", "HTTP/1.0", 1)
		conn := s.raw()
		conn.write(old + sized(ping))
		p.gets()
		go func() { _ = p.Send(t.Context(), message(result("1"))) }()
		if _, body := conn.reply(); body != result("1") {
			t.Errorf("got %q", body)
		}
		conn.closed()
		conn = s.raw()
		conn.write(old + sized(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
		p.gets()
		go func() {
			_ = p.Send(t.Context(), message(logLine("a")))
			time.Sleep(time.Second)
			_ = p.Send(t.Context(), message(result("1")))
		}()
		if _, body := conn.reply(); body != "id: 3_1\ndata: "+logLine("a")+"\n\nid: 3_2\ndata: "+result("1")+"\n\n" {
			t.Errorf("got %q", body)
		}
		conn.closed()
	})
}

// 20,000 notifications and then the result: all arrive, in order.
func TestServerManyNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		r := u.call("1")
		p.gets()
		const n = 20_000
		for i := range n {
			bridgetest.Must(t, p.Send(t.Context(), message(progress("1", i))))
		}
		p.says(result("1"))
		want := make([]string, n)
		for i := range want {
			want[i] = progress("1", i)
		}
		r.gets(append(want, result("1"))...).over()
	})
}

// 30 MB go both ways, as JSON and as a stream, byte for byte.
func TestServerHugeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{StallAfter: time.Second})
		u, p := s.open(r25b)
		text := big(30<<20) + `é\u00e9`
		call := `{"jsonrpc":"2.0","id":1,"method":"x","params":{"p":"` + text + `"}}`
		answer := `{"jsonrpc":"2.0","id":1,"result":{"p":"` + text + `"}}`
		r := u.post(call)
		p.getsText(call)
		p.says(answer)
		r.isJSON(answer)
		r = u.call("1")
		p.gets()
		time.Sleep(time.Second)
		p.says(answer)
		r.gets(answer).over()
	})
}

// A reader that takes nothing costs a bounded amount of memory, holds up its
// own session only, and is cut off.
func TestServerSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{StallAfter: 30 * time.Second})
		u, p := s.open(r25b)
		other, q := s.open(r25b)
		conn := s.raw()
		conn.write(u.posting() + sized(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":1}}}`))
		p.gets()
		start := time.Now()
		sent := 0
		line := strings.Replace(progress("1", 1), `"progress":`, `"message":"`+big(10_000)+`","progress":`, 1)
		for {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := p.Send(ctx, message(line))
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			if err != nil || sent > 1000 {
				t.Fatalf("%d messages were taken, %v", sent, err)
			}
			sent++
		}
		if size := sent * len(line); size > 1<<20 {
			t.Errorf("%d bytes wait for a reader that takes nothing", size)
		}
		r := other.post(ping)
		q.gets()
		q.says(result("1"))
		r.isJSON(result("1"))
		if err := p.Send(t.Context(), message(line)); err != nil { // waits until it is cut off
			t.Error(err)
		}
		if took := time.Since(start); took < 14*time.Second || took > 31*time.Second {
			t.Errorf("the reader was cut off after %v, want about 30s", took)
		}
		// The stream is there for it to come back.
		p.says(result("1"))
		again := u.get("Last-Event-ID: 2_1")
		events := again.isStream().events
		if len(events) == 0 || string(events[len(events)-1].Data) != result("1") {
			t.Errorf("%d events after the resumption", len(events))
		}
	})
	// One that reads slowly, but reads, is not cut off.
	bubble(t, "slow but alive", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{StallAfter: 30 * time.Second})
		u, p := s.open(r25b)
		conn := s.raw()
		conn.write(u.posting() + sized(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
		p.gets()
		answer := `{"jsonrpc":"2.0","id":1,"result":{"p":"` + big(5<<20) + `"}}`
		go func() {
			time.Sleep(time.Second)
			_ = p.Send(t.Context(), message(answer))
		}()
		var got strings.Builder
		buf := make([]byte, 64<<10)
		for {
			n, err := conn.Read(buf)
			got.Write(buf[:n])
			if err != nil || strings.HasSuffix(got.String(), "\r\n0\r\n\r\n") {
				break
			}
			time.Sleep(time.Second)
		}
		if !strings.Contains(got.String(), `"}}`) {
			t.Errorf("the answer was cut off after %d of %d bytes", got.Len(), len(answer))
		}
	})
	// A small reply that nobody takes does not hold its connection for ever.
	bubble(t, "small reply", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{StallAfter: 30 * time.Second})
		u, p := s.open(r25b)
		conns := []*rawConn{s.raw(), s.raw(), s.raw()}
		conns[0].write(u.posting() + sized("nonsense"))
		conns[1].write(u.posting() + sized(ping))
		p.gets()
		p.says(result("1"))
		conns[2].write(u.posting() + sized(request("2")))
		p.gets()
		p.says(`{"jsonrpc":"2.0","id":2,"result":{"p":"` + big(10_000) + `"}}`)
		time.Sleep(36 * time.Second)
		for i, c := range conns {
			if _, err := io.Copy(io.Discard, c); err != nil && err != io.ErrClosedPipe {
				t.Errorf("connection %d: %v", i, err)
			}
		}
	})
}

// Streams that nobody comes back for share one bounded buffer.
func TestServerDetachedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{ReplayBytes: 1 << 20})
		u, p := s.open(r25b)
		const streams = 50
		for i := range streams {
			r := u.call(fmt.Sprint(i))
			p.gets()
			p.says(progress(fmt.Sprint(i), 0))
			r.cut()
		}
		before := heap()
		for j := range 100 {
			for i := range streams {
				p.says(strings.Replace(progress(fmt.Sprint(i), j), `"progress":`, `"message":"`+big(10_000)+`","progress":`, 1))
			}
		}
		if grown := heap() - before; grown > 4<<20 {
			t.Errorf("%d bytes are kept for streams that nobody reads, want about 1 MiB", grown)
		}
	})
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Close lets the servers finish what they do, takes no new sessions
// meanwhile, and leaves nothing behind.
func TestServerClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		s.wait = make(chan struct{})
		u, p := s.open(r25c)
		idle, q := s.open(r25c)
		r, get := u.call("1"), idle.get()
		p.gets()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			if err := s.h.Close(); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		select {
		case <-p.ctx.Done():
		default:
			t.Error("the server was not told")
		}
		(&user{site: s}).post(initialize(r25c)).isError(http.StatusServiceUnavailable, -32603, `"init"`)
		p.says(result("1"))
		r.isJSON(result("1"))
		get.open()
		waiting := u.post(request("2"))
		close(s.wait)
		<-closed
		waiting.isError(http.StatusNotFound, -32600, "2")
		get.gets().over()
		p.gone()
		q.gone()
		u.post(ping).isError(http.StatusNotFound, -32600, "1")
		if s.h.Sessions() != 0 {
			t.Errorf("%d sessions are left", s.h.Sessions())
		}
		if err := s.h.Close(); err != nil { // again
			t.Error(err)
		}
	})
}

// Whatever clients do to their connections, each call is answered once, on its
// own stream, and notifications neither get lost nor come twice.
func TestServerStress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		var sessions sync.WaitGroup
		for range 4 {
			u, p := s.open(r25c)
			ctx, stop := context.WithCancel(t.Context())
			const calls, steps = 8, 30
			go func() { // each call gets its steps, mixed with those of others
				var wg sync.WaitGroup
				for range calls {
					m, err := bridgetest.Recv(ctx, p)
					if err != nil {
						return
					}
					id := m.ID().String()
					wg.Go(func() {
						for i := range steps {
							time.Sleep(time.Duration(1+len(id)*i%7) * time.Millisecond)
							_ = p.Send(ctx, message(progress(id, i)))
						}
						_ = p.Send(ctx, message(result(id)))
					})
				}
				wg.Wait()
			}()
			for i := range calls {
				sessions.Go(func() { u.unsteadyCall(fmt.Sprint(100*i), steps, time.Duration(i+3)*time.Millisecond) })
			}
			t.Cleanup(stop)
		}
		sessions.Wait()
	})
}

// unsteadyCall makes a call over connections that break again and again.
func (u *user) unsteadyCall(id string, steps int, life time.Duration) {
	var last string
	next := 0
	for attempt := 0; ; attempt++ {
		if attempt > 200 {
			u.t.Errorf("call %s: no end after %d attempts", id, attempt)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), life)
		if attempt == 0 {
			ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		}
		method, body := http.MethodGet, ""
		if last == "" {
			method, body = http.MethodPost, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"_meta":{"progressToken":`+id+`}}}`
		}
		r, _ := http.NewRequestWithContext(ctx, method, "http://127.0.0.1/mcp", strings.NewReader(body))
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Session-Id", u.id)
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		rep := &reply{t: u.t, cancel: cancel, done: make(chan struct{})}
		if attempt == 0 { // break after the first events
			go func() {
				time.Sleep(life)
				for rep.lastIDNow() == "" {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
		}
		rep.run(u.client, r)
		cancel()
		if rep.status != 0 && rep.status != http.StatusOK {
			u.t.Errorf("call %s: status %d: %s", id, rep.status, rep.body)
			return
		}
		for _, e := range rep.events {
			if len(e.Data) == 0 {
				continue
			}
			if string(e.Data) == result(id) {
				if next != steps {
					u.t.Errorf("call %s: the answer came after %d of %d steps", id, next, steps)
				}
				return
			}
			if want := progress(id, next); string(e.Data) != want {
				u.t.Errorf("call %s: got %s, want %s", id, e.Data, want)
				return
			}
			next++
		}
		if l := rep.lastIDNow(); l != "" {
			last = l
		}
	}
}

// Who has no session gets no memory for large bodies, and none is read.
func TestServerLargeBodyOutsideSession(t *testing.T) {
	head := func(u *user, id string) string {
		return strings.Replace(u.posting(), "Mcp-Session-Id: "+u.id+"\r\n", id, 1)
	}
	for _, tt := range []struct {
		name, header string
		status       int
	}{{"no session", "", http.StatusRequestEntityTooLarge}, {"unknown session", "Mcp-Session-Id: x\r\n", http.StatusNotFound}} {
		bubble(t, tt.name, func(t *testing.T) {
			s := newSite(t, streamhttp.HandlerOptions{})
			u, p := s.open(r25c)
			c := s.raw()
			c.write(head(u, tt.header) + "Content-Length: 1048577\r\n\r\n") // and not one byte of it
			if resp, body := c.reply(); resp.StatusCode != tt.status || !strings.Contains(body, `"code":-32600`) {
				t.Errorf("status %d: %s", resp.StatusCode, body)
			}
			c = s.raw()
			c.write(head(u, tt.header) + "Transfer-Encoding: chunked\r\n\r\n100001\r\n" + big(1<<20+1))
			if resp, body := c.reply(); resp.StatusCode != tt.status {
				t.Errorf("chunked: status %d: %s", resp.StatusCode, body)
			}
			large := `{"jsonrpc":"2.0","id":1,"method":"x","params":{"x":"` + big(2<<20) + `"}}`
			r := u.post(large)
			p.getsText(large)
			p.says(result("1"))
			r.isJSON(result("1"))
		})
	}
}

// stuck is a Sink that never takes anything.
type stuck struct{}

func (stuck) TrySend(jsonrpc.Message) bool { return false }

func (stuck) Send(ctx context.Context, _ jsonrpc.Message) error {
	<-ctx.Done()
	return ctx.Err()
}

// The memory for bodies that are being read, or wait for their server, is bounded,
// and counts as bytes arrive, not as they are promised.
func TestServerBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := budget.New(1_300_000)
		s := newSite(t, streamhttp.HandlerOptions{Budget: memory})
		u, p := s.open(r25c)
		large := func(id string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"method":"x","params":{"x":"` + big(300_000) + `"}}`
		}
		one := u.post(large("1")) // waits for the server
		two := u.post(large("2"))
		two.isError(http.StatusServiceUnavailable, -32603, "")
		if two.header.Get("Retry-After") == "" {
			t.Errorf("headers %v", two.header)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		go p.Receive(ctx, stuck{})
		synctest.Wait()
		u.post(large("2")).isError(http.StatusServiceUnavailable, -32603, "") // the server has not taken it yet
		giveUp()
		synctest.Wait()
		p.getsText(large("1"))
		two = u.post(large("2")) // the first counts no more, although it is not answered
		two.cut()                // nor what was given up
		half := s.raw()
		half.write(u.posting() + "Content-Length: 300000\r\n\r\n{")
		synctest.Wait()
		if n := memory.Taken(); n != 0 {
			t.Errorf("%d bytes count that were promised", n)
		}
		half.write(big(250_000))
		synctest.Wait()
		u.post(large("3")).isError(http.StatusServiceUnavailable, -32603, "")
		half.Close()
		synctest.Wait()
		three := u.post("[" + large("3") + "]")
		three.is(http.StatusBadRequest)
		note := strings.Replace(large("4"), `"id":4,`, "", 1)
		four := u.post(note)
		p.getsText(note)
		four.is(http.StatusAccepted)
		p.says(result("1"))
		one.isJSON(result("1"))
	})
}
