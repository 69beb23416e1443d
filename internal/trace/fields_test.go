package trace

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Headers are written as they came, also if they have come before, and without what has become a secret meanwhile.
func TestHeadersAgain(t *testing.T) {
	var o observe.Observer
	rec := NewRecorder(&o, redactor(t, redact.Options{}))
	ring := NewRing(RingOptions{})
	defer rec.AddSink(ring)()
	f := ring.FollowNew()
	one, other := strings.Repeat("1", 30), strings.Repeat("2", 30)
	long := strings.Repeat("l", 1000)
	headers := []http.Header{
		{"A": {one}, "B": {one}}, {"A": {other}, "B": {one}}, {"A": {one, other}}, {"A": {one, one}}, {"A": {one}}, {"A": {""}, "B": {}},
		{"A": {"\x01\""}, "L": {long}}, {"Name": {"1a1"}}, {"Name": {"1b1"}}, {"Name": {"1b1", "x"}}, {"Mcp-Session-Id": {"the-session"}, "A": {"tok-1234567"}, "X-Api-Key": {"k"}},
	}
	pass := func() (all []Record) {
		for range 3 {
			for _, h := range headers {
				o.Event(&observe.Exchange{Hop: observe.Downstream, RequestHeader: h, ResponseHeader: h})
			}
		}
		rec.Wait()
		if all = records(t, f.Ready(100)); len(all) != 3*len(headers) {
			t.Fatalf("%d records of %d", len(all), 3*len(headers))
		}
		return all
	}
	taken := []string{"http.req.Mcp-Session-Id", "http.req.X-Api-Key", "http.resp.Mcp-Session-Id", "http.resp.X-Api-Key"}
	check := func(a string, taken []string) {
		for i, r := range pass() {
			want := headers[i%len(headers)].Clone()
			delete(want, map[bool]string{true: "B"}[len(want["B"]) == 0])
			var redacted []string
			if want.Get("Mcp-Session-Id") != "" {
				want = http.Header{"Mcp-Session-Id": {redact.Placeholder}, "A": {a}, "X-Api-Key": {redact.Placeholder}}
				redacted = taken
			}
			if !reflect.DeepEqual(r.HTTP.RequestHeader, want) || !reflect.DeepEqual(r.HTTP.ResponseHeader, want) || !slices.Equal(r.Redacted, redacted) {
				t.Errorf("%v, %v, without %v; want %v without %v", r.HTTP.RequestHeader, r.HTTP.ResponseHeader, r.Redacted, want, redacted)
			}
		}
	}
	check("tok-1234567", taken)
	c := o.OpenUnannounced("x", "http").Conn(taker{}, observe.Upstream)
	c.TrySend(jsonrpc.NewRequest(jsonrpc.IntID(1), "m", []byte(`{"token":"tok-1234567"}`)))
	rec.Wait()
	f.Ready(1)
	check(redact.Placeholder, slices.Sorted(slices.Values(append(taken, "http.req.A", "http.resp.A"))))
}

// What is learned while headers are written is taken out of all that are written after that, also if they have come before.
func TestLearnedAmongHeaders(t *testing.T) {
	t.Parallel()
	d := redactor(t, redact.Options{})
	var m recordMaker
	for round := range 100 {
		value := fmt.Sprintf("tok-%08d", round)
		h := http.Header{"Zz": {value}} // the last one
		m.headerJSON(d, h, inRequest)
		for i := range 300 {
			h[fmt.Sprintf("A%03d", i)] = []string{value, value} // never kept
		}
		learned := make(chan struct{})
		go func() {
			defer close(learned)
			d.Message([]byte(`{"token":"`+value+`"}`), nil)
		}()
		m.headers = m.headers[:0]
		text := string(m.headerJSON(d, h, inRequest))
		<-learned
		if strings.Contains(text, redact.Placeholder) && strings.Contains(text, `"Zz":"`+value+`"`) {
			t.Fatalf("round %d: the last header has what was taken out of one before it", round)
		}
	}
}

// However long names and values are, what is kept of them is bounded.
func TestUsualHeadersAreBounded(t *testing.T) {
	t.Parallel()
	d := redactor(t, redact.Options{})
	var m recordMaker
	kept := 0
	for i := range 200 {
		name, value := "A", strings.Repeat("v", i)
		if i%2 == 0 {
			name, value = "N"+strings.Repeat("n", 10*i), "v"
		}
		m.headers = m.headers[:0]
		m.headerJSON(d, http.Header{name: {value}}, inRequest)
		for _, fields := range m.recentFields.all {
			for _, f := range fields {
				if kept += len(f.member); len(f.name)+len(f.value) > maxCachedFieldBytes {
					t.Errorf("a header of %d bytes is kept", len(f.name)+len(f.value))
				}
			}
		}
	}
	many := http.Header{}
	for i := range 1000 {
		many[fmt.Sprint("N", i)] = []string{"v"}
	}
	m.headerJSON(d, many, inRequest)
	for _, fields := range m.recentFields.all {
		if len(fields) > maxCachedFields {
			t.Errorf("%d headers are kept", len(fields))
		}
	}
	if kept == 0 {
		t.Error("nothing is kept")
	}
}
