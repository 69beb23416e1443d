package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func redactor(tb testing.TB, o redact.Options) *redact.Redactor {
	tb.Helper()
	d, err := redact.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// records reads lines.
func records(t *testing.T, lines [][]byte) (all []Record) {
	t.Helper()
	for _, line := range lines {
		r, err := Parse(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// brief is what a test asks of a record of a message.
func brief(r Record, at map[uint64]int) string {
	return fmt.Sprintf("%d<%d %s %s %s %s %s %s %s(%s) %s %d %s", at[r.Seq], at[r.CauseSeq], r.Session, r.Hop, r.Dir, r.Era, r.Transport, r.Kind, r.Method, r.Name, r.ID, r.Size, r.Body.Text)
}

// A call is written down at both ends, without its secrets, with what caused what, and the sessions around it.
func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		rec := NewRecorder(&o, redactor(t, redact.Options{Secrets: []string{"hunter22"}}))
		ring := NewRing(RingOptions{})
		release := rec.AddSink(ring)
		client, server := bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
		h := o.Serve("files", "http", bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
			observe.SessionOf(ctx).SetServerTransport("stdio")
			return bridge.Pump(ctx, c, observe.SessionOf(ctx).Conn(server, observe.Upstream), bridge.PumpOptions{})
		}))
		done := make(chan error, 1)
		go func() { done <- h.ServeConn(t.Context(), client) }()
		client.Says(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"inspector","version":"2.1"}}}`)
		server.Says(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
		client.Says(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":{"token":"the-tok"}}}`)
		time.Sleep(time.Second)
		server.Says(`{"jsonrpc":"2.0","id":7.0,"result":{"isError":true,"content":[{"type":"text","text":"hunter22"}]}}`)
		client.Says(`{"jsonrpc":"2.0","id":"hunter22","method":"tools/call","params":{"name":"hunter22"}}`)
		server.Says(`{"jsonrpc":"2.0","id":"hunter22","error":{"code":-32602,"message":"no"}}`)
		server.End <- errors.New("crashed by hunter22")
		<-done
		rec.Wait()
		all := records(t, ring.Follow(0).Ready(100))
		var have []string
		at := map[uint64]int{}
		for _, r := range all[5:9] {
			at[r.Seq] = len(at) + 1
			have = append(have, brief(r, at))
		}
		request := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read","arguments":{"token":"[redacted]"}}}`
		want := []string{
			"1<0 s1 down c2s legacy http request tools/call(read) 7 103 " + request,
			"2<1 s1 up c2s  stdio request tools/call(read) 7 103 " + request,
			`3<0 s1 up s2c  stdio response tools/call(read) 7.0 98 {"jsonrpc":"2.0","id":7.0,"result":{"isError":true,"content":[{"type":"text","text":"[redacted]"}]}}`,
			`4<3 s1 down s2c legacy http response tools/call(read) 7 96 {"jsonrpc":"2.0","id":7,"result":{"isError":true,"content":[{"type":"text","text":"[redacted]"}]}}`,
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
		}
		if r := all[7]; r.Duration != time.Second || !r.Failed || !slices.Equal(r.Redacted, []string{"result.content[0].text"}) || r.Server != "files" {
			t.Errorf("%+v", r)
		}
		if r := all[12]; r.Code != -32602 || r.ID != jsonrpc.StringID(redact.Placeholder) || r.Name != redact.Placeholder {
			t.Errorf("%+v", r)
		}
		if e := all[len(all)-1].Event; e.Action != "ended" || e.Calls != 3 || !strings.Contains(e.Err, "crashed by [redacted]") {
			t.Errorf("%+v", e)
		}
		if e := all[3].Event; e == nil || e.Action != "opened" || e.Client != "inspector" || e.Revision != "2025-11-25" {
			t.Errorf("%+v", all[3])
		}
		release()
		if o.IsWatched() {
			t.Error("watches for nobody")
		}
		rec.Wait()
	})
}

// What was taken out of a request because of its name is not in its answer under another one, nor, unless it is a
// word, in what else happens.
func TestRecorderLearns(t *testing.T) {
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{}))
	ring := NewRing(RingOptions{})
	defer rec.AddSink(ring)()
	s := o.OpenSession("files", "stdio")
	down := s.Conn(taker{}, observe.Downstream)
	send := func(c bridge.Conn, text string) {
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		c.TrySend(m.WithID(jsonrpc.IntID(1))) // late: its text is put together in memory that is used again
	}
	answered := &passing{}
	server := s.Conn(answered, observe.Upstream)
	_ = server.Receive(t.Context(), taker{})
	send(server, `{"jsonrpc":"2.0","id":7,"method":"login","params":{"password":"corr\u0065ct horse","token":"tok-123456"}}`)
	send(down, `{"jsonrpc":"2.0","id":8,"method":"other","params":{"password":"somebody else's"}}`)
	answered.sink.TrySend(jsonrpc.NewResult(jsonrpc.IntID(1), []byte(`{"text":"I know \"correct horse\""}`)))
	o.Event(observe.Stderr{Server: "files", Line: "got tok-123456, correct horse"})
	send(down, `{"jsonrpc":"2.0","id":9,"method":"x","params":{"a":"tok-12345\u0036"}}`)
	rec.SetRedactor(redactor(t, redact.Options{}))
	o.Event(observe.Stderr{Server: "files", Line: "still tok-123456"})
	rec.Wait()
	var have []string
	for _, r := range records(t, ring.Follow(0).Ready(100)) {
		have = append(have, string(r.Body.Text))
	}
	all := strings.Join(have, "\n")
	if strings.Contains(all, "tok-12") || strings.Count(all, "correct horse") != 1 || !strings.Contains(all, `"I know \"[redacted]\""`) || !strings.Contains(all, "got [redacted], correct") {
		t.Error(all)
	}
}

// passing is a Conn whose Sink a test has.
type passing struct {
	taker
	sink bridge.Sink
}

func (p *passing) Receive(_ context.Context, sink bridge.Sink) error {
	p.sink = sink
	return nil
}

// Each event becomes a record, and shows no secret.
func TestRecorderEvents(t *testing.T) {
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{Secrets: []string{"hunter22"}}))
	ring := NewRing(RingOptions{})
	defer rec.AddSink(ring)()
	s := o.OpenSession("files", "http")
	err := errors.New("it was hunter22")
	m := jsonrpc.NewNotification("notifications/x", []byte(`{"a":"hunter22"}`))
	events := []observe.Event{
		observe.SessionOpened{Session: s},
		observe.SessionEnded{Session: s, Err: err, Reason: "hunter22"},
		observe.SessionFailed{Session: s, Err: err},
		observe.CallLate{Server: "files", Method: "tools/call", ID: jsonrpc.StringID("hunter22"), Since: time.Now()},
		observe.CallTimedOut{Server: "files", Method: "hunter22"},
		observe.ProcessStarted{Server: "files", PID: 1, Program: "hunter22"},
		observe.ProcessStopping{Server: "files", PID: 1, Step: "kill"},
		observe.ProcessEnded{Server: "files", PID: 1, Err: err},
		observe.Stderr{Server: "files", PID: 1, Line: "the hunter22, \xff"},
		observe.Noise{Server: "files", PID: 1, Bytes: 7, Reason: "hunter22"},
		observe.Dropped{Server: "files", Message: m.WithMark(&jsonrpc.Mark{Seq: 99}), Reason: "hunter22"},
		observe.Refused{Server: "files", Path: "/hunter22", Reason: "hunter22", Host: "hunter22"},
		&observe.Exchange{
			Hop: observe.Downstream, URL: "/x?a=hunter22", Err: err, Reason: "hunter22", Session: s,
			RequestHeader: http.Header{"Authorization": {"Bearer hunter22"}, "X-A": {"hunter22"}}, ResponseHeader: http.Header{"Mcp-Session-Id": {"id-of-it"}},
		},
		observe.Stream{Server: "files", Session: s, Hop: observe.Downstream, Name: "g1", Action: "closed", Reason: "hunter22"},
		observe.Note{Server: "files", Code: "C3", Text: "hunter22"},
	}
	for _, e := range events {
		o.Event(e)
	}
	rec.Wait()
	lines := ring.Follow(0).Ready(100)
	var kinds []Kind
	for i, r := range records(t, lines) {
		kinds = append(kinds, r.Kind)
		if r.Kind == Drop && r.CauseSeq != 99 {
			t.Errorf("the message that was dropped is %d", r.CauseSeq)
		}
		if (r.Kind == Refused || r.Kind == HTTP) && !slices.Contains(r.Redacted, "http.url") {
			t.Errorf("that something is missing in the path is not said: %s", lines[i])
		}
		if r.Seq != uint64(i+1) || r.Time.IsZero() && r.Kind != HTTP || r.Server != "files" {
			t.Errorf("%s", lines[i])
		}
		if strings.Contains(string(lines[i]), "hunter22") || strings.Contains(string(lines[i]), "id-of-it") {
			t.Errorf("%s", lines[i])
		}
	}
	want := []Kind{Session, Session, Session, Note, Note, Process, Process, Process, Stderr, Noise, Drop, Refused, HTTP, Stream, Note}
	if !slices.Equal(kinds, want) {
		t.Errorf("%q, want %q", kinds, want)
	}
}

// Where the trace has secrets, the log and spans still do not: neither those that messages name.
func TestTextsWithoutSecrets(t *testing.T) {
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{Off: true}))
	rec.SetTextRedactor(redactor(t, redact.Options{}))
	ring := NewRing(RingOptions{})
	defer rec.AddSink(ring)()
	s := o.OpenUnannounced("files", "stdio")
	client, server := bridge.Pipe()
	defer client.Close(nil)
	request := jsonrpc.NewRequest(jsonrpc.IntID(1), "tools/call", []byte(`{"name":"login","arguments":{"password":"correct-horse-1"}}`))
	done := make(chan error, 1)
	go func() { done <- client.Send(t.Context(), request) }()
	ctx, cancel := context.WithCancel(t.Context())
	_ = s.Conn(server, observe.Downstream).Receive(ctx, bridgetest.SinkFunc(func(context.Context, jsonrpc.Message) error { cancel(); return nil }))
	bridgetest.Must(t, <-done)
	for range 2 { // what was learned stays when another secret is to be hidden
		if got := rec.RedactText("logged in with correct-horse-1"); got != "logged in with [redacted]" {
			t.Errorf("the text is %q", got)
		}
		rec.SetTextRedactor(redactor(t, redact.Options{Secrets: []string{"hunter22"}}))
	}
	rec.Wait()
	if line := string(ring.Follow(0).Ready(1)[0]); !strings.Contains(line, "correct-horse-1") {
		t.Errorf("the trace is redacted: %s", line)
	}
	if got := rec.RedactText("hunter22"); got != redact.Placeholder {
		t.Errorf("the text is %q", got)
	}
}

// lines is a Sink that keeps all.
type lines struct {
	mu   sync.Mutex
	most int
	all  [][]byte
}

func (l *lines) MaxText() int { return l.most }

func (l *lines) Put(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, slices.Clone(line))
}

func (l *lines) PutGap(n uint64) { l.Put(Append(nil, &Record{Kind: Gap, Lost: n})) }

// Each Sink gets as much of a text as it wants, cut between characters.
func TestRecorderCuts(t *testing.T) {
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{}))
	text := `{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"` + strings.Repeat("é", 1000) + `"}}`
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]*lines{}
	for _, most := range []int{-1, 0, 1, 2, 3, 4, 5, 99, 100, 101, 102, 103, 1000, len(text) - 1, len(text), len(text) + 1} {
		all[most] = &lines{most: most}
		defer rec.AddSink(all[most])()
	}
	rec.Message(&observe.Passed{Session: o.OpenSession("x", "http"), Hop: observe.Downstream, Dir: observe.ToServer, Message: m})
	rec.Wait()
	for most, l := range all {
		if len(l.all) != 1 {
			t.Fatalf("%d: %d lines", most, len(l.all))
		}
		r := records(t, l.all)[0]
		have := len(r.Body.Text) + len(r.Body.Tail)
		whole := most < 0 || most >= len(text)
		switch {
		case r.Size != len(text) || have+r.Body.OmittedBytes != len(text) || whole != (r.Body.OmittedBytes == 0) || most >= 0 && have > most:
			t.Errorf("%d: %d bytes, cut %d", most, have, r.Body.OmittedBytes)
		case !strings.HasPrefix(text, string(r.Body.Text)) || !strings.HasSuffix(text, string(r.Body.Tail)):
			t.Errorf("%d: %q %q", most, r.Body.Text, r.Body.Tail)
		case strings.Contains(string(l.all[0]), `"b64"`):
			t.Errorf("%d: cut inside of a character", most)
		case most >= 100 && !whole && have < most-4:
			t.Errorf("%d: only %d bytes", most, have)
		}
	}
}

// A record is one line, also of a message that has several.
func TestMessageOfSeveralLines(t *testing.T) {
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{}))
	ring := NewRing(RingOptions{})
	release := rec.AddSink(ring)
	const text = "{\r\n\"jsonrpc\":\"2.0\",\"id\":1,\"result\":[1,\n2]}"
	o.OpenUnannounced("files", "http").Conn(&passing{}, observe.Downstream).TrySend(bridgetest.Parse(text))
	release()
	rec.Wait()
	recorded := ring.Follow(0).Ready(10)
	if all := records(t, recorded); len(all) != 1 || string(all[0].Body.Text) != text || bytes.IndexByte(recorded[0], '\n') != len(recorded[0])-1 {
		t.Errorf("recorded: %q", recorded)
	}
}

// An error is one in the record, too, if its code is 0.
func TestErrorWithCodeZero(t *testing.T) {
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{}))
	ring := NewRing(RingOptions{})
	release := rec.AddSink(ring)
	conn := o.OpenUnannounced("files", "http").Conn(&passing{}, observe.Downstream)
	conn.TrySend(bridgetest.Parse(`{"jsonrpc":"2.0","id":1,"error":{"code":0,"message":"no"}}`))
	conn.TrySend(bridgetest.Parse(`{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no"}}`))
	conn.TrySend(bridgetest.Parse(`{"jsonrpc":"2.0","id":3,"result":{}}`))
	release()
	rec.Wait()
	for i, r := range records(t, ring.Follow(0).Ready(10)) {
		if want := []Outcome{{Failed: true}, {Code: -32602}, {}}[i]; r.Outcome != want {
			t.Errorf("%s: %+v, want %+v", r.Body.Text, r.Outcome, want)
		}
	}
}
