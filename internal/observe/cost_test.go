package observe

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// noExchanges is streamsTold that needs no exchanges.
type noExchanges struct{ streamsTold }

func (*noExchanges) SkipsExchanges() {}

// The transport is not asked for the stream of a message while all Watchers skip exchanges.
func TestStreamOfMessageIsNotAsked(t *testing.T) {
	var o Observer
	var skips noExchanges
	defer o.Watch(&skips)()
	c := o.OpenUnannounced("x", "http").Conn(&several{broken{answer: jsonrpc.NewRequest(id(t, "7"), "ping", nil)}}, Down)
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
	if want := []string{"", "", "ping in", "n out", "", ""}; !slices.Equal(skips.streamsTold, want) {
		t.Errorf("the streams are %q, want %q", skips.streamsTold, want)
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
			client := s.Conn(&several{}, Down)
			_ = s.Conn(&broken{answer: c.answer}, Up).Receive(t.Context(), handsOn{client, c.change})
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

// Names are told as they were sent, however many there are and however they are spelled; one that comes again costs no memory.
func TestNames(t *testing.T) {
	var o Observer
	var got calledNames
	defer o.Watch(&got)()
	c := o.OpenUnannounced("x", "http").Conn(&several{}, Up)
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
	for i := range o.names { // what one name becomes may be how another one is spelled
		before := `\n`
		o.names[i].Store(&before)
	}
	if got := o.names.intern([]byte(`"\n"`)); got != "\n" {
		t.Errorf("a line break is %q", got)
	}
	raw := []byte(`"abcd"`)
	if n := testing.AllocsPerRun(100, func() { o.shortText(o.names.intern(raw)) }); n != 0 {
		t.Errorf("%v allocations for a name that has come before", n)
	}
}
