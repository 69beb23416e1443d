package trace

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// stuck is a Sink that takes its first line only when it is told to.
type stuck struct {
	lines
	first chan struct{} // closed when the first line has come
	goOn  chan struct{}
}

func newStuck() *stuck {
	return &stuck{lines: lines{most: -1}, first: make(chan struct{}), goOn: make(chan struct{})}
}

func (s *stuck) Put(line []byte) {
	s.mu.Lock()
	isFirst := len(s.all) == 0
	s.mu.Unlock()
	if isFirst {
		close(s.first)
		<-s.goOn
	}
	s.lines.Put(line)
}

// long returns a request of more than longTextSize bytes, which has a member "token".
func long(id int, more int, token string) jsonrpc.Message {
	return bridgetest.Parse(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m","params":{"pad":%q,"token":%q}}`, id, strings.Repeat("x", longTextSize+more), token))
}

// The traffic does not wait for a long message to be looked through. What comes meanwhile is written down after it,
// because what is found in it is taken out of that, too.
func TestLongMessages(t *testing.T) {
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{}))
	sink := newStuck()
	release := rec.AddSink(sink)
	s := o.OpenUnannounced("files", "http")
	c := &passing{}
	server := s.Conn(c, observe.Upstream)
	bridgetest.Must(t, server.Receive(t.Context(), taker{}))
	server.TrySend(long(1, 0, "geheim-123"))
	<-sink.first
	c.sink.TrySend(bridgetest.Parse(`{"jsonrpc":"2.0","id":1,"result":{"x":"geheim-123"}}`))
	o.Event(observe.Stderr{Server: "files", Line: "I know geheim-123"})
	o.Event(observe.SessionOpened{Session: s})
	server.TrySend(bridgetest.Parse(`{"jsonrpc":"2.0","method":"n"}`))
	close(sink.goOn)
	release()
	rec.Wait()
	var kinds []Kind
	var last uint64
	for _, r := range records(t, sink.all) {
		kinds = append(kinds, r.Kind)
		if r.Seq <= last {
			t.Errorf("%d comes after %d", r.Seq, last)
		}
		last = r.Seq
	}
	if want := []Kind{Request, Response, Stderr, Session, Notification}; !slices.Equal(kinds, want) {
		t.Errorf("%q, want %q", kinds, want)
	}
	if all := fmt.Sprintf("%s", sink.all); strings.Contains(all, "geheim") {
		t.Error("a secret is shown")
	}
}

// What waits is bounded: more is left out, and the Sinks are told how much.
func TestLongMessagesAreBounded(t *testing.T) {
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{}))
	rec.backlog.maxBytes = 32 * longTextSize
	sink := newStuck()
	f, err := NewFile(filepath.Join(t.TempDir(), "trace"), FileOptions{})
	bridgetest.Must(t, err)
	releases := []func(){rec.AddSink(sink), rec.AddSink(f)}
	server := o.OpenUnannounced("files", "http").Conn(&passing{}, observe.Upstream)
	send := func(m jsonrpc.Message) { server.TrySend(m) }
	note := bridgetest.Parse(`{"jsonrpc":"2.0","method":"n"}`)
	send(long(1, 0, "x"))
	<-sink.first
	send(long(2, 20*longTextSize, "x"))
	send(long(3, 20*longTextSize, "x")) // left out
	for range maxBacklog {              // the last one is left out
		send(note)
	}
	close(sink.goOn)
	rec.Wait()
	send(note)
	for _, release := range releases {
		release()
	}
	rec.Wait()
	bridgetest.Must(t, f.Close())
	all := records(t, sink.all)
	var gaps []uint64
	for _, r := range all {
		if r.Kind == Gap {
			gaps = append(gaps, r.Lost)
		}
	}
	if !slices.Equal(gaps, []uint64{1, 1}) || len(all) != 1+1+maxBacklog-1+2+1 || all[len(all)-1].Kind != Notification {
		t.Errorf("%d records, gaps of %d", len(all), gaps)
	}
	if f.Lost() != 2 {
		t.Errorf("the file lacks %d", f.Lost())
	}
}

// A line of a server process that comes after a long message is shown without what that names, though nobody has looked
// through it so far.
func TestLineAfterLongMessage(t *testing.T) {
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{}))
	sink := newStuck()
	release := rec.AddSink(sink)
	server := o.OpenUnannounced("files", "http").Conn(&passing{}, observe.Upstream)
	server.TrySend(long(1, 0, "geheim-123"))
	<-sink.first
	server.TrySend(long(2, 0, "geheim-456"))
	line := make(chan string)
	go func() { line <- rec.RedactLine("I know geheim-456") }()
	close(sink.goOn)
	if text := <-line; strings.Contains(text, "geheim") {
		t.Errorf("shown: %s", text)
	}
	release()
	rec.Wait()
}

// What clients choose in events that wait behind a long message counts, too.
func TestEventsAreBounded(t *testing.T) {
	text := strings.Repeat("x", longTextSize)
	for _, e := range []observe.Event{
		&observe.Exchange{Hop: observe.Downstream, Method: "GET", URL: "/", RequestHeader: http.Header{"Accept": {text}}}, observe.Refused{Method: "GET", Path: "/" + text},
	} {
		t.Run(fmt.Sprintf("%T", e), func(t *testing.T) { testBounded(t, e) })
	}
}

func testBounded(t *testing.T, e observe.Event) {
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{}))
	rec.backlog.maxBytes = maxUncounted*520 + 4*longTextSize
	sink := newStuck()
	release := rec.AddSink(sink)
	o.OpenUnannounced("files", "http").Conn(&passing{}, observe.Upstream).TrySend(long(1, 0, "x"))
	<-sink.first
	for range maxUncounted + 5 {
		o.Event(e)
	}
	close(sink.goOn)
	release()
	rec.Wait()
	if all := records(t, sink.all); all[len(all)-1].Kind != Gap {
		t.Errorf("%d records, and the last one is a %s", len(all), all[len(all)-1].Kind)
	}
}

// timed is a Sink that notes when each line comes.
type timed struct {
	lines
	at []time.Time
}

func (s *timed) Put(line []byte) {
	s.lines.Put(line)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
}

// count returns how many lines have come.
func (s *timed) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// Records are made at once when many wait, and else soon: whether one alone waits, or more come all the time.
func TestRecordsAreMadeSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		rec := NewRecorder(&o, redactor(t, redact.Options{}))
		sink := &timed{}
		release := rec.AddSink(sink)
		for range batchSize - 1 {
			o.Event(observe.Note{Code: "C3"})
		}
		synctest.Wait()
		if n := sink.count(); n != 0 {
			t.Errorf("%d records are made before a batch is there", n)
		}
		o.Event(observe.Note{Code: "C3"})
		synctest.Wait()
		if n := sink.count(); n != batchSize {
			t.Errorf("%d records are made at once, want %d", n, batchSize)
		}
		var told []time.Time
		for range 10 {
			time.Sleep(3 * recordDelay / 10)
			told = append(told, time.Now())
			o.Event(observe.Note{Code: "C3"})
		}
		time.Sleep(time.Second)
		told = append(told, time.Now())
		o.Event(observe.Note{Code: "C3"})
		time.Sleep(time.Second)
		if n := sink.count(); n != batchSize+len(told) {
			t.Fatalf("%d records, want %d", n, batchSize+len(told))
		}
		for i, at := range told {
			if took := sink.at[batchSize+i].Sub(at); took > recordDelay {
				t.Errorf("record %d is made after %v", i, took)
			}
		}
		release()
		rec.Wait()
	})
}

// Records come in the order in which things were told, whatever the size of the messages.
func TestLongMessageAmongShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		rec := NewRecorder(&o, redactor(t, redact.Options{}))
		sink := &lines{most: -1}
		release := rec.AddSink(sink)
		server := o.OpenUnannounced("files", "http").Conn(&passing{}, observe.Upstream)
		var want []string
		for id := range 9 {
			if want = append(want, fmt.Sprint(id)); id%4 == 2 {
				server.TrySend(long(id, 0, "x"))
			} else {
				server.TrySend(bridgetest.Parse(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, id)))
			}
		}
		release()
		rec.Wait()
		var ids []string
		for _, r := range records(t, sink.all) {
			ids = append(ids, r.ID.String())
		}
		if !slices.Equal(ids, want) {
			t.Errorf("the order is %s", ids)
		}
	})
}

// Wait awaits what was told before, not what is told meanwhile.
func TestWaitUnderTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		rec := NewRecorder(&o, redactor(t, redact.Options{}))
		sink := &timed{}
		release := rec.AddSink(sink)
		stop := make(chan struct{})
		traffic := make(chan struct{})
		go func() {
			defer close(traffic)
			for range 1000 {
				o.Event(observe.Note{Code: "C3"})
				select {
				case <-time.After(recordDelay / 2):
				case <-stop:
					return
				}
			}
		}()
		time.Sleep(10*recordDelay + recordDelay/2 + 1) // the last one waits
		const told = 22
		began := time.Now()
		rec.Wait()
		if took := time.Since(began); took > recordDelay {
			t.Errorf("Wait takes %v", took)
		}
		if n := sink.count(); n < told {
			t.Errorf("%d records, want %d", n, told)
		}
		close(stop)
		<-traffic
		release()
		rec.Wait()
		synctest.Wait()
		if len(sink.at) != told {
			t.Errorf("%d records in the end, want %d", len(sink.at), told)
		}
	})
}

// What RunBetween runs finds the records of all that was told before it, and none of what is told later.
func TestBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		rec := NewRecorder(&o, redactor(t, redact.Options{}))
		sink := newStuck()
		release := rec.AddSink(sink)
		tell := func(text string) { o.Event(observe.Note{Code: "C3", Text: text}) }
		found := func() (all []string) {
			for _, r := range records(t, sink.all) {
				all = append(all, r.Event.Text)
			}
			return all
		}
		tell("one")
		<-sink.first
		tell("two")
		asked := time.Now()
		before := make(chan []string, 1)
		later := make(chan time.Time)
		go func() { later <- rec.RunBetween(func() { before <- found() }) }()
		synctest.Wait()
		time.Sleep(time.Second)
		tell("three")
		close(sink.goOn)
		if all := <-before; !slices.Equal(all, []string{"one", "two"}) {
			t.Errorf("it finds %q", all)
		}
		if at := <-later; !at.Equal(asked) {
			t.Errorf("later begins %v after it was called", at.Sub(asked))
		}
		time.Sleep(time.Second)
		var all []string
		if at := rec.RunBetween(func() { all = found() }); !at.Equal(time.Now()) || len(all) != 3 {
			t.Errorf("when nothing waits it finds %q", all)
		}
		release()
		rec.Wait()
	})
}

// The copies without secrets of the messages that wait count, too.
func TestCopiesAreBounded(t *testing.T) {
	const size = longTextSize / 2
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{}))
	rec.backlog.maxBytes = 5 * size
	sink := newStuck()
	release := rec.AddSink(sink)
	server := o.OpenUnannounced("files", "http").Conn(&passing{}, observe.Upstream)
	server.TrySend(bridgetest.Parse(`{"jsonrpc":"2.0","method":"n"}`))
	<-sink.first
	for id := range 3 {
		server.TrySend(bridgetest.Parse(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m","params":{"pad":%q,"token":"geheim-123"}}`, id, strings.Repeat("x", size))))
	}
	close(sink.goOn)
	release()
	rec.Wait()
	if all := records(t, sink.all); len(all) != 4 || all[3].Kind != Gap {
		t.Errorf("%d records, and the last one is a %s", len(all), all[len(all)-1].Kind)
	}
}

// Memory that a burst has needed is used again as long as much comes, and given up when little does.
func TestMemoryAfterBurst(t *testing.T) {
	var b backlog
	const most = maxSpareRecords
	for _, c := range []struct {
		used, had int
		kept      bool
	}{{most, most, true}, {most / 10, most, true}, {1, most, false}, {1, minSpareRecords, true}, {2 * most, 2 * most, false}} {
		b.spare = nil
		if b.giveBack(make([]pendingRecord, c.used, c.had)); (b.spare != nil) != c.kept {
			t.Errorf("memory for %d records, after %d: kept is %v", c.had, c.used, b.spare != nil)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f := open(t, filepath.Join(t.TempDir(), "trace"), FileOptions{})
		defer closed(t, f)
		hold := func(size int) int {
			f.Put(make([]byte, size))
			time.Sleep(2 * batchDelay)
			synctest.Wait()
			return max(cap(f.queuedLines), cap(f.spareBuffer))
		}
		if n := hold(3 << 20); n < 3<<20 {
			t.Errorf("there is memory for %d bytes of lines in a burst", n)
		}
		hold(1)
		if n := hold(1); n > minSpareBytes {
			t.Errorf("there is memory for %d bytes of lines after a burst", n)
		}
	})
}
