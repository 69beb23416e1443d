package eventlog

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// page is what was logged, without times.
type page struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// lines returns what was logged since it was last asked.
func (p *page) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := strings.TrimSuffix(p.text.String(), "\n")
	p.text.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// wants checks that what was logged are lines like these, regular expressions.
func (p *page) wants(t *testing.T, want ...string) {
	t.Helper()
	got := p.lines()
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !regexp.MustCompile("^" + want[i] + "$").MatchString(got[i]) {
			t.Errorf("the line is\n%s\nwant\n%s", got[i], want[i])
		}
	}
}

func logging(level hclog.Level) (*page, *observe.Observer, *Log) {
	p, o := new(page), new(observe.Observer)
	return p, o, New(hclog.New(&hclog.LoggerOptions{Output: p, Level: level, DisableTime: true}), o)
}

// Of the refusals by a rule the first one is told at once, the others once a minute.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o, l := logging(hclog.Info)
		refuse := func(rule string, status, times int) {
			for i := range times {
				o.Event(observe.Refused{Server: "files", Rule: rule, Status: status, Method: "GET", Path: fmt.Sprint("/", i), RemoteAddr: "10.0.0.1:99", Reason: "no"})
			}
		}
		refuse("LI4", 406, 3)
		refuse("LI5", 415, 1)
		p.wants(t, `\[WARN\]  request refused: server=files rule=LI4 status=406 method=GET path=/0 remote=10.0.0.1:99 reason=no`,
			`\[WARN\]  request refused: server=files rule=LI5 status=415 .*`)
		time.Sleep(time.Minute + time.Second)
		p.wants(t, `\[WARN\]  more requests were refused by the same rule: times=2 in=1m0s server=files rule=LI4 status=406 method=GET path=/2 .*`)
		refuse("LI4", 406, 1000)
		p.wants(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		p.wants(t, `\[WARN\]  more .*: times=1000 .*`)
		time.Sleep(2 * time.Minute)
		refuse("LI4", 406, 2)
		p.wants(t, `\[WARN\]  request refused: .*`)
		l.Close()
		p.wants(t, `\[WARN\]  more .*: times=1 .*`)
	})
}

// Tokens that are refused for different reasons are different refusals, though clients are told the same.
func TestRefusalCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o, l := logging(hclog.Info)
		defer l.Close()
		for _, cause := range []string{"expired", "audience", "expired", "expired"} {
			o.Event(observe.Refused{Rule: "A2", Status: 401, Method: "POST", Path: "/mcp", RemoteAddr: "10.0.0.1:99", Cause: cause, Reason: "it is not valid here"})
		}
		for _, why := range []string{"authentication is needed", "the token is not valid"} {
			o.Event(observe.Refused{Rule: "A2", Status: 401, Method: "POST", Path: "/mcp", RemoteAddr: "10.0.0.1:99", Reason: why})
		}
		p.wants(t, `\[WARN\]  request refused: rule=A2 status=401 .* cause=expired reason="it is not valid here"`,
			`\[WARN\]  request refused: rule=A2 status=401 .* cause=audience reason="it is not valid here"`,
			`.* reason="authentication is needed"`, `.* reason="the token is not valid"`)
		time.Sleep(time.Minute + time.Second)
		p.wants(t, `\[WARN\]  more requests were refused by the same rule: times=2 .* cause=expired .*`)
	})
}

// J13: that messages reach nobody is told once for each server and reason, and then how many it were in an hour; at
// debug each is.
func TestDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o, l := logging(hclog.Info)
		progress := jsonrpc.NewNotification("notifications/progress", []byte(`{"progressToken":null,"progress":1}`))
		drop := o.DroppedFunc("files")
		drop(jsonrpc.NewResult(jsonrpc.IntID(7), nil), "answers no request that is in progress")
		for range 3 {
			drop(progress, "progress of no request that is in progress")
		}
		o.DroppedFunc("other")(progress, "progress of no request that is in progress")
		p.wants(t, `\[INFO\]  message dropped: server=files reason="answers no request that is in progress" method="" id=7`,
			`\[INFO\]  message dropped: server=files reason="progress of no request that is in progress" method=notifications/progress id=""`,
			`\[INFO\]  message dropped: server=other .*`)
		time.Sleep(dropPeriod + time.Second)
		p.wants(t, `\[INFO\]  more messages were dropped for the same reason: times=2 in=1h0m0s server=files reason="progress of no request that is in progress" .*`)
		l.SetLevel(hclog.Debug)
		drop(progress, "progress of no request that is in progress")
		p.wants(t, `\[DEBUG\] message dropped: server=files .*`)
		l.Close()
		p.wants(t, `\[INFO\]  more .*: times=1 .*`)
	})
}

// Error responses whose sender could not read an id have null or no id, and answer nothing.
func TestDroppedResponseWithoutID(t *testing.T) {
	p, o, l := logging(hclog.Info)
	for server, id := range map[string]string{"null": `"id":null,`, "none": ""} {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0",` + id + `"error":{"code":-32700,"message":"Parse error"}}`))
		if err != nil {
			t.Fatal(err)
		}
		o.DroppedFunc(server)(m, "answers no request that is in progress")
	}
	l.Close()
	p.wants(t, `\[INFO\]  message dropped: server=(null|none) .*`, `\[INFO\]  message dropped: server=(null|none) .*`)
}

// What the log keeps of a message that was dropped, until it tells of all of them, is not the message itself.
func TestDroppedMessageIsNotKept(t *testing.T) {
	p, o, l := logging(hclog.Info)
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":"hunter22","result":{"text":"` + strings.Repeat("x", 1<<20) + `"}}`))
	if err != nil {
		t.Fatal(err)
	}
	l.SetRedact(func(text string) string { return strings.ReplaceAll(text, "hunter22", "[]") })
	for range 2 {
		o.DroppedFunc("files")(m, "it is late")
	}
	for _, k := range l.dropLimiter.kinds {
		if kept := k.lastSuppressed.(observe.Dropped).Message; kept.Size() > 1<<10 {
			t.Errorf("%d bytes are kept", kept.Size())
		}
	}
	l.Close()
	p.wants(t, `\[INFO\]  message dropped: server=files reason="it is late" method="" id=.*\[\].*`, `\[INFO\]  more .*: times=1 .* id=.*\[\].*`)
}

// Nor is a secret in what the log says of a request that waits.
func TestSecretInMethod(t *testing.T) {
	p, o, l := logging(hclog.Info)
	defer l.Close()
	l.SetRedact(func(text string) string { return strings.ReplaceAll(text, "hunter22", "[]") })
	o.Event(observe.CallLate{Server: "files", Method: "hunter22", ID: jsonrpc.StringID("hunter22"), Since: time.Now()})
	p.wants(t, `\[WARN\]  a request has no answer yet: server=files method=\[\] id=.*\[\].*`)
}

// Lines of stderr have a function of their own to take secrets out, which may wait.
func TestSecretInLine(t *testing.T) {
	p, o, l := logging(hclog.Info)
	defer l.Close()
	l.SetRedact(func(text string) string { return text })
	l.SetLineRedact(func(text string) string { return strings.ReplaceAll(text, "hunter22", "[]") })
	o.Event(observe.Stderr{Server: "files", PID: 7, Line: "hunter22"})
	p.wants(t, `\[INFO\]  stderr: server=files pid=7 line=\[\]`)
}

// A process that floods its stderr does not flood the log.
func TestStderrFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, o, l := logging(hclog.Info)
		defer l.Close()
		s := o.OpenSession("files", "stdio")
		flood := func(pid, lines int) {
			for range lines {
				o.Event(observe.Stderr{Server: "files", Session: s, PID: pid, Line: "noise"})
			}
		}
		flood(7, 1000)
		flood(8, 10)
		if got := len(p.lines()); got != 210 {
			t.Errorf("%d lines", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		p.wants(t, `\[INFO\]  stderr: lines were left out, there were too many: server=files session=s1 pid=7 lines=800`)
		flood(7, 201)
		p.lines()
		o.Event(observe.ProcessEnded{Server: "files", Session: s, PID: 7, Program: "cat", Err: errors.New("killed by signal SIGKILL"), Lasted: time.Hour})
		p.wants(t, `.* pid=7 lines=1`,
			`\[INFO\]  server process ended: server=files session=s1 pid=7 program=cat status="killed by signal SIGKILL" asked=false after=1h0m0s`)
	})
}

// What peers have chosen is one line, however it is made.
func TestForeignText(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                         "plain",
		"two\nlines\r\tand a tab":       `two\nlines\r\tand a tab`,
		"\x1b[31mred\u009b\u202e\u2028": `\u001b[31mred\u009b\u202e\u2028`,
		"bad \xff utf-8":                `bad \xff utf-8`,
		strings.Repeat("ä", 150):        strings.Repeat("ä", 100) + "...",
		"x" + strings.Repeat("ä", 150):  "x" + strings.Repeat("ä", 99) + "...",
	} {
		if got := clipPrintable(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// At the level debug, and only there, each exchange is told of; the level can be changed.
func TestLevel(t *testing.T) {
	p, o, l := logging(hclog.Info)
	defer l.Close()
	client, server := bridge.Pipe()
	c := o.OpenSession("files", "http").Conn(client, observe.Downstream)
	ask := func() {
		for _, text := range []string{
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"key":"canary"}}}`,
			`{"jsonrpc":"2.0","id":7,"result":{"isError":true,"content":"canary"}}`,
		} {
			m, err := jsonrpc.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if m.Kind() == jsonrpc.Request {
				sent := make(chan error, 1)
				go func() { sent <- server.Send(t.Context(), m) }()
				receiveOne(t, c)
				<-sent
				continue
			}
			taken := make(chan struct{})
			go func() {
				defer close(taken)
				receiveOne(t, server)
			}()
			if err := c.Send(t.Context(), m); err != nil {
				t.Error(err)
			}
			<-taken
		}
	}
	ask()
	p.wants(t)
	if o.IsWatched() {
		t.Error("messages are looked at")
	}
	if l.Toggle() != hclog.Debug {
		t.Error("not debug")
	}
	ask()
	const line = `\[DEBUG\] exchange: server=files session=s1 id=7 method=tools/call tool=add ms=[0-9.]+ asked_bytes=99 answer_bytes=69 status="tool error"`
	p.wants(t, `\[INFO\]  log level changed: level=debug`, line)
	l.SetLevel(hclog.Trace)
	ask()
	p.wants(t, line+` began=[0-9:.]+`)
	if l.Toggle() != hclog.Info || o.IsWatched() {
		t.Error("messages are still looked at")
	}
	ask()
	p.wants(t, `.*level=info`)
}

// receiveOne takes one message.
func receiveOne(t *testing.T, c bridge.Conn) {
	ctx, cancel := context.WithCancel(t.Context())
	_ = c.Receive(ctx, sink(cancel))
}

// sink is a Sink that takes a message, and then ends its Receive.
type sink func()

func (s sink) TrySend(jsonrpc.Message) bool {
	s()
	return true
}

// Send implements bridge.Sink.
func (s sink) Send(context.Context, jsonrpc.Message) error {
	s()
	return nil
}

// No secret is in the line of an exchange, nor half of one where a name is cut.
func TestSecretInName(t *testing.T) {
	p, o, l := logging(hclog.Debug)
	defer l.Close()
	l.SetRedact(func(text string) string { return strings.ReplaceAll(text, "hunter22", "[]") })
	c := o.OpenUnannounced("files", "http").Conn(takesAll{}, observe.Downstream)
	c.TrySend(jsonrpc.NewRequest(jsonrpc.IntID(7), "prompts/get", []byte(`{"name":"`+strings.Repeat("n", maxTextBytes-4)+`hunter22"}`)))
	_ = c.Close(nil)
	p.wants(t, `\[DEBUG\] exchange: .* prompt=n+\[\] by=server .* status="no answer"`)
}

// A call that its client cancels has its line then, and none at the end of the session.
func TestCancelled(t *testing.T) {
	p, o, l := logging(hclog.Debug)
	defer l.Close()
	s := o.OpenUnannounced("files", "http")
	c := s.Conn(takesAll{}, observe.Upstream)
	client, server := bridge.Pipe()
	down := s.Conn(client, observe.Downstream)
	for _, m := range []jsonrpc.Message{
		jsonrpc.NewRequest(jsonrpc.IntID(7), "ping", nil), jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":7}`)),
	} {
		sent := make(chan error, 1)
		go func() { sent <- server.Send(t.Context(), m) }()
		receiveOne(t, down)
		if err := <-sent; err != nil {
			t.Error(err)
		}
		c.TrySend(m)
	}
	p.wants(t, `\[DEBUG\] exchange: server=files session=q1 id=7 method=ping ms=[0-9.]+ asked_bytes=40 status=cancelled`)
	_ = down.Close(nil)
	_ = c.Close(nil)
	p.wants(t)
}

// takesAll is a Conn of a peer that says nothing.
type takesAll struct{ bridge.Conn }

func (takesAll) TrySend(jsonrpc.Message) bool { return true }
func (takesAll) Close(error) error            { return nil }

// No line has a secret, whoever has written it: what is said of the end of a session may quote the stderr of its server.
func TestLinesWithoutSecrets(t *testing.T) {
	p, o, l := logging(hclog.Debug)
	l.SetRedact(func(text string) string { return strings.ReplaceAll(text, "hush", "[redacted]") })
	s := o.OpenSession("files", "http")
	ended := errors.New("the server has ended; last stderr: cannot use hush")
	for _, e := range []observe.Event{
		observe.SessionFailed{Session: s, Err: ended},
		observe.SessionFailed{Session: s, Err: fmt.Errorf("%w: hush", bridge.ErrBusy)},
		observe.SessionEnded{Session: s, Err: ended},
		observe.Refused{Rule: "LI4", Path: "/hush", Host: "hush", Origin: "https://hush"},
		observe.Refused{Rule: "LI4", Path: "/hush", Host: "hush", Origin: "https://hush"},
		observe.Note{Code: "C3", Text: "it says hush"},
		observe.Note{Code: "C3", Text: "it says hush"},
		observe.Stream{Session: s, Action: "resumed", FromEventID: "hush"},
		observe.CallTimedOut{Session: s, Method: "hush"},
	} {
		o.Event(e)
	}
	l.Close()
	lines := p.lines()
	for _, line := range lines {
		if strings.Contains(line, "hush") || !strings.Contains(line, "[redacted]") {
			t.Error(line)
		}
	}
	if len(lines) != 10 {
		t.Errorf("%d lines: %s", len(lines), strings.Join(lines, "\n"))
	}
}
