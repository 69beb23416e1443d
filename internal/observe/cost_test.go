package observe

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// The transport is not asked for the stream of a message while no Watcher needs exchanges.
func TestStreamOfMessageIsNotAsked(t *testing.T) {
	var o Observer
	var skips streamsTold
	defer o.WatchFor(&skips, Needs{})()
	c := o.OpenUnannounced("x", "http").Conn(&several{broken{answer: jsonrpc.NewRequest(id(t, "7"), "ping", nil)}}, Downstream)
	pass := func() {
		_ = c.Receive(t.Context(), takes{})
		c.TrySend(jsonrpc.NewNotification("n", nil))
	}
	pass()
	var shows streamsTold
	stop := o.Watch(&shows)
	pass()
	stop()
	pass()
	if want := []string{"", "", "ping in", "n out", "", ""}; !slices.Equal(skips, want) {
		t.Errorf("the streams are %q, want %q", skips, want)
	}
}

// failures lists what Failed says of each message, asked twice.
type failures []bool

func (w *failures) Message(p *Passed) { *w = append(*w, p.Failed(), p.Failed()) }
func (w *failures) Event(Event)       {}

// handsOn is a Sink that sends what it gets to a Conn, changed.
type handsOn struct {
	to     bridge.Conn
	change func(jsonrpc.Message) jsonrpc.Message
}

func (h handsOn) TrySend(m jsonrpc.Message) bool { return h.to.TrySend(h.change(m)) }
func (h handsOn) Send(ctx context.Context, m jsonrpc.Message) error {
	return h.to.Send(ctx, h.change(m))
}

// Whether a tool has failed is known of the response that comes and of the one that is sent, also if that is another one.
func TestFailed(t *testing.T) {
	failed, worked := jsonrpc.NewResult(id(t, "1"), []byte(`{"isError":true}`)), jsonrpc.NewResult(id(t, "1"), []byte(`{"isError":false}`))
	for name, c := range map[string]struct {
		answer jsonrpc.Message
		change func(jsonrpc.Message) jsonrpc.Message
		want   failures
	}{
		"failed":     {failed, func(m jsonrpc.Message) jsonrpc.Message { return m.WithID(id(t, "22")) }, failures{true, true, true, true}},
		"worked":     {worked, func(m jsonrpc.Message) jsonrpc.Message { return m }, failures{false, false, false, false}},
		"changed":    {failed, func(m jsonrpc.Message) jsonrpc.Message { return worked.WithMark(m.Mark()) }, failures{true, true, false, false}},
		"no result":  {jsonrpc.NewRequest(id(t, "1"), "isError", nil), func(m jsonrpc.Message) jsonrpc.Message { return m }, failures{false, false, false, false}},
		"by a third": {worked, func(jsonrpc.Message) jsonrpc.Message { return failed }, failures{false, false, true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var o Observer
			var w failures
			defer o.Watch(&w)()
			s := o.OpenUnannounced("x", "http")
			client := s.Conn(&several{}, Downstream)
			_ = s.Conn(&broken{answer: c.answer}, Upstream).Receive(t.Context(), handsOn{client, c.change})
			if !slices.Equal(w, c.want) {
				t.Errorf("failed is %v, want %v", w, c.want)
			}
		})
	}
}

// calledNames lists the name that each Passed has.
type calledNames []string

func (w *calledNames) Message(p *Passed) { *w = append(*w, p.Call.Name) }
func (w *calledNames) Event(Event)       {}

// skippedNames lists Call.Name and what Name returns, and needs the latter only.
type skippedNames struct{ inCalls, found []string }

func (w *skippedNames) Message(p *Passed) {
	w.inCalls, w.found = append(w.inCalls, p.Call.Name), append(w.found, p.Name())
}
func (*skippedNames) Event(Event) {}

// The name of a tool is not looked for while no Watcher needs names, and is found for who asks for that of a request. Who
// comes later and wants it is told it, also of a request that has come before and is sent on after.
func TestSkippedNames(t *testing.T) {
	var o Observer
	var skips skippedNames
	defer o.WatchFor(&skips, Needs{})()
	session := o.OpenUnannounced("x", "http")
	client, server := &several{broken{answer: jsonrpc.NewRequest(id(t, "7"), "tools/call", []byte(`{"name":"add"}`))}}, &several{}
	down, up := session.Conn(client, Downstream), session.Conn(server, Upstream)
	same := func(m jsonrpc.Message) jsonrpc.Message { return m }
	_ = down.Receive(t.Context(), handsOn{up, same})
	down.TrySend(jsonrpc.NewResult(id(t, "7"), []byte(`{}`)))
	var wants calledNames
	var stop func()
	_ = down.Receive(t.Context(), handsOn{up, func(m jsonrpc.Message) jsonrpc.Message { stop = o.Watch(&wants); return m }})
	stop()
	_ = down.Receive(t.Context(), handsOn{up, same})
	if want := []string{"", "", "", "", "add", "", ""}; !slices.Equal(skips.inCalls, want) {
		t.Errorf("the names of calls are %q, want %q", skips.inCalls, want)
	}
	if want := []string{"add", "add", "", "add", "add", "add", "add"}; !slices.Equal(skips.found, want) {
		t.Errorf("the names found are %q, want %q", skips.found, want)
	}
	if want := []string{"add"}; !slices.Equal(wants, want) {
		t.Errorf("who wants names is told %q, want %q", wants, want)
	}
}

// Names are told as they were sent, however many there are and however they are spelled; one that comes again costs no memory.
func TestNames(t *testing.T) {
	var o Observer
	var got calledNames
	defer o.Watch(&got)()
	c := o.OpenUnannounced("x", "http").Conn(&several{}, Upstream)
	var want calledNames
	for range 2 {
		for _, n := range []struct{ raw, name string }{
			{`"a"`, "a"}, {`"\\n"`, `\n`}, {`"\n"`, "\n"}, {`""`, ""}, {`7`, ""}, {`"ü"`, "ü"}, {`"abcd"`, "abcd"}, {`"aBcd"`, "aBcd"}, {`"abCd"`, "abCd"},
			{`"` + strings.Repeat("n", 300) + `"`, strings.Repeat("n", 300)},
		} {
			c.TrySend(jsonrpc.NewRequest(id(t, "1"), "tools/call", []byte(`{"name":`+n.raw+`}`)))
			want = append(want, n.name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the names are %q, want %q", got, want)
	}
	for i := range o.internedNames { // what one name becomes may be how another one is spelled
		before := `\n`
		o.internedNames[i].Store(&before)
	}
	if got := o.internedNames.intern([]byte(`"\n"`)); got != "\n" {
		t.Errorf("a line break is %q", got)
	}
	raw := []byte(`"abcd"`)
	if n := testing.AllocsPerRun(100, func() { o.shortText(o.internedNames.intern(raw)) }); n != 0 {
		t.Errorf("%v allocations for a name that has come before", n)
	}
}

// Whether a tool has failed is found out however its result spells it, and however long that is.
func TestFailedResults(t *testing.T) {
	long := strings.Repeat("x", 4096)
	for text, want := range map[string]bool{
		`{"isError":true}`: true, `{"isError":false}`: false, `{}`: false, `{"a":"isError"}`: false, `{"a":{"isError":true}}`: false,
		`{"is\u0045rror":true}`: true, `{"a":"\n","isError":true}`: true, `{"a":"\n"}`: false,
		`{"a":"` + long + `","isError":true}`: true, `{"a":"` + long + `"}`: false,
	} {
		p := &Passed{Message: jsonrpc.NewResult(id(t, "1"), []byte(text))}
		if p.Failed() != want {
			t.Errorf("%.50s: failed is %v", text, !want)
		}
	}
}

// causes lists Seq, CauseSeq and HasCause of each message.
type causes []struct {
	seq, cause uint64
	hasCause   bool
}

func (w *causes) Message(p *Passed) {
	*w = append(*w, struct {
		seq, cause uint64
		hasCause   bool
	}{p.Seq, p.CauseSeq, p.HasCause})
}
func (*causes) Event(Event) {}

// Messages have no numbers while no Watcher needs them. That a message was made of another one is told nevertheless.
func TestNumbers(t *testing.T) {
	var o Observer
	var skips causes
	defer o.WatchFor(&skips, Needs{})()
	session := o.OpenUnannounced("x", "http")
	down, up := session.Conn(&several{broken{answer: jsonrpc.NewRequest(id(t, "7"), "ping", nil)}}, Downstream), session.Conn(&several{}, Upstream)
	pass := func(change func(jsonrpc.Message) jsonrpc.Message) { _ = down.Receive(t.Context(), handsOn{up, change}) }
	same := func(m jsonrpc.Message) jsonrpc.Message { return m }
	pass(same)
	var needs causes
	stop := o.Watch(&needs)
	pass(same)
	stop()
	pass(same)
	pass(func(m jsonrpc.Message) jsonrpc.Message { stop = o.Watch(&needs); return m })
	stop()
	if want := (causes{{0, 0, false}, {0, 0, true}, {1, 0, false}, {2, 1, true}, {0, 0, false}, {0, 0, true}, {0, 0, false}, {3, 0, true}}); !slices.Equal(skips, want) {
		t.Errorf("told %v, want %v", skips, want)
	}
	if want := (causes{{1, 0, false}, {2, 1, true}, {3, 0, true}}); !slices.Equal(needs, want) {
		t.Errorf("who needs numbers was told %v, want %v", needs, want)
	}
}
