package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// client is something that can be called: a session with a bridge over one of
// its transports, or a floor. It belongs to one goroutine.
type client interface {
	// call makes one call, waits for the answer and checks it.
	call(body []byte) error

	// notes makes a call that is answered with n notifications first, and
	// checks that none is missing.
	notes(n int) error

	// messageForm is how its requests are spelled.
	messageForm() messageForm

	// close ends the session, if there is one.
	close() error
}

// link is a connection for messages in both directions. One goroutine may
// send, and another receive, at the same time.
type link interface {
	// send writes one message. It may write behind the end of body, in its capacity.
	send(body []byte) error

	// recv returns the next message's length and up to headSize bytes from its
	// beginning, which are good until the next recv.
	recv() (head []byte, size int, err error)

	// close ends the connection.
	close() error
}

// headSize is enough of a message to see what it is.
const headSize = 64

// linkClient makes a client of a link.
type linkClient struct {
	link
	form messageForm // how its requests are spelled
}

// messageForm implements client: it returns how the requests are spelled.
func (c linkClient) messageForm() messageForm { return c.form }

// call implements client: it sends body, a request, and checks the next message as its answer.
func (c linkClient) call(body []byte) error {
	if err := c.send(body); err != nil {
		return err
	}
	head, size, err := c.recv()
	if err != nil {
		return err
	}
	return checkAnswer(head, size, body)
}

// notes implements client: it sends a request for n notifications, and counts those that come before the answer.
func (c linkClient) notes(n int) error {
	if err := c.send(c.form.requestNotes(n)); err != nil {
		return err
	}
	for got := 0; ; got++ {
		head, _, err := c.recv()
		switch {
		case err != nil:
			return err
		case isNote(head):
		case got != n:
			return fmt.Errorf("%d notifications arrived of %d", got, n)
		default:
			return nil
		}
	}
}

// initialize opens the session of a link.
func initialize(l link) error {
	if err := l.send([]byte(hello)); err != nil {
		return err
	}
	head, _, err := l.recv()
	if err != nil {
		return err
	}
	if bytes.Contains(head, []byte(`"error":`)) {
		return fmt.Errorf("initialize: %s", head)
	}
	return l.send([]byte(ready))
}

// checkAnswer returns an error unless an answer, of which head is the beginning and size
// the length, may be an echo of body: it is long enough, and no error. What belongs to an
// era need not come back.
func checkAnswer(head []byte, size int, body []byte) error {
	want := len(body) - 40
	if bytes.Contains(body[:min(len(body), 300)], []byte(meta)) {
		want -= len(meta)
	}
	if size < want || bytes.Contains(head, []byte(`"error":`)) {
		return fmt.Errorf("call: %d bytes back for %d: %s", size, len(body), head)
	}
	return nil
}

// isNote reports whether a message, of which text is the beginning, is one of the notifications that are counted.
func isNote(text []byte) bool { return bytes.Contains(text, []byte(`"notifications/progress"`)) }

// ids has the id of the last request that this process has made: each has its own.
var ids atomic.Int64

// messageForm is how the requests of an era are spelled.
type messageForm int

const (
	legacy messageForm = iota // as 2025-06-18 has it: there is a session
	modern                    // as 2026-07-28 has it: there is none, and each request says what the session knew
)

// meta is what a modern request says about itself.
const meta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`

// request spells a call of about size bytes, and of more by what its era wants
// said. Its capacity has room for more.
func (f messageForm) request(id int64, size int) []byte {
	const head, tail = `"method":"tools/call","params":{"name":"echo",`, `"}}}`
	const pad = `"arguments":{"pad":"`
	about := ""
	if f == modern {
		about = `"_meta":{` + meta + `},`
	}
	n := max(size-len(head)-len(pad)-len(tail)-30, 1)
	return fmt.Appendf(make([]byte, 0, size+len(about)+64), `{"jsonrpc":"2.0","id":%d,%s%s%s%s%s`, id, head, about, pad, strings.Repeat("x", n), tail)
}

// requestNotes spells a call that is answered with n notifications first.
func (f messageForm) requestNotes(n int) []byte {
	about := `"progressToken":"t"`
	if f == modern {
		about += "," + meta
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","_meta":{%s},"arguments":{"notes":%d}}}`, ids.Add(1), about, n)
}

// timeCalls returns the median time of n calls of size bytes, one after the other, after some more that do not count.
func timeCalls(c client, f messageForm, n, size int) (time.Duration, error) {
	times := make([]time.Duration, 0, n)
	warm := n/10 + 1
	for i := range n + warm {
		body := f.request(ids.Add(1), size)
		begin := time.Now()
		if err := c.call(body); err != nil {
			return 0, err
		}
		if i >= warm {
			times = append(times, time.Since(begin))
		}
	}
	return median(times), nil
}

// noteRate returns how many notifications a second arrive, when n are sent in answer to one call.
func noteRate(c client, n int) (float64, error) {
	begin := time.Now()
	err := c.notes(n)
	return float64(n) / time.Since(begin).Seconds(), err
}

// rate returns how many calls of 100 bytes a second the workers make together, at the same time, for d.
func rate(workers []client, d time.Duration) (float64, error) { return paced(workers, 0, d) }

// paced is rate with at most so many calls a second, of which each worker makes its share; 0: as many as it can.
func paced(workers []client, perSecond float64, d time.Duration) (float64, error) {
	var wg sync.WaitGroup
	var count atomic.Int64
	var failed atomic.Pointer[error]
	begin := time.Now()
	until := begin.Add(d)
	for i, c := range workers {
		wg.Go(func() {
			next := begin
			if perSecond > 0 {
				next = begin.Add(time.Duration(float64(i) / perSecond * 1e9))
			}
			for time.Now().Before(until) {
				if perSecond > 0 {
					time.Sleep(time.Until(next))
					next = next.Add(time.Duration(float64(len(workers)) / perSecond * 1e9))
				}
				if err := c.call(c.messageForm().request(ids.Add(1), 100)); err != nil {
					failed.Store(&err)
					return
				}
				count.Add(1)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(count.Load()) / time.Since(begin).Seconds(), nil
}

// linkRate returns how many calls a second are answered while inFlight calls are in the
// link, for d. Of those, senders are being written at a time: more than one where a send
// waits for something.
func linkRate(l linkClient, inFlight, senders int, d time.Duration) (float64, error) {
	slots := make(chan struct{}, inFlight)
	stop := make(chan struct{})
	sent := make(chan int)
	send := func() { // ends when stop is closed
		n := 0
		defer func() { sent <- n }()
		for {
			select {
			case slots <- struct{}{}:
				if l.send(l.form.request(ids.Add(1), 100)) != nil {
					return // recv finds out
				}
				n++
			case <-stop:
				return
			}
		}
	}
	for range senders {
		go send()
	}
	begin := time.Now()
	count, total := 0, -1
	for count != total {
		if total < 0 && time.Since(begin) > d {
			close(stop)
			total = 0
			for range senders {
				total += <-sent
			}
			if count == total {
				break
			}
		}
		if _, _, err := l.recv(); err != nil {
			return 0, err
		}
		<-slots
		count++
	}
	return float64(count) / time.Since(begin).Seconds(), nil
}

// linkRates returns the sum of the linkRates of the links, which are used at the same time for d, with
// one sender and inFlight calls each.
func linkRates(links []link, inFlight int, d time.Duration) (sum float64, err error) {
	rates, errs := make([]float64, len(links)), make([]error, len(links))
	var wg sync.WaitGroup
	for i, l := range links {
		wg.Go(func() { rates[i], errs[i] = linkRate(linkClient{link: l}, inFlight, 1, d) })
	}
	wg.Wait()
	for i := range links {
		sum, err = sum+rates[i], errors.Join(err, errs[i])
	}
	return sum, err
}

// lines is a link on which each message is one line.
type lines struct {
	w    io.Writer      // takes the lines that are sent
	r    *bufio.Reader  // has the lines that come
	end  func() error   // closes the link, for close
	head [headSize]byte // what recv has returned last
}

// newLines returns a link that reads lines from r and writes them to w. end closes it.
func newLines(r io.Reader, w io.Writer, end func() error) *lines {
	return &lines{w: w, r: bufio.NewReaderSize(r, 256<<10), end: end}
}

// startPipe starts a process that is called over its stdin and stdout.
func startPipe(cmd *exec.Cmd) (*lines, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	end := func() error {
		in.Close()
		return cmd.Wait()
	}
	return newLines(out, in, end), cmd.Start()
}

// close implements link: it ends the connection, or the process that was started for it.
func (l *lines) close() error { return l.end() }

// send implements link: it writes body as a line, and may write behind its end, in its capacity.
func (l *lines) send(body []byte) error {
	_, err := l.w.Write(append(body, '\n')) // request left room for it
	return err
}

// recv implements link: it reads a line, and returns its beginning, and its length with the line feed.
func (l *lines) recv() (head []byte, size int, err error) {
	text, err := l.r.ReadSlice('\n')
	head = l.head[:copy(l.head[:], text)]
	size = len(text)
	for err == bufio.ErrBufferFull {
		text, err = l.r.ReadSlice('\n')
		size += len(text)
	}
	return head, size, err
}

// median returns the middle one of v, which has one at least; of an even number the larger one of two.
func median[T cmp.Ordered](v []T) T {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
