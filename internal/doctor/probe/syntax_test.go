package probe

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/sse"
)

// read gives a stream to a lexer in pieces of n bytes.
func read(stream string, n int) (events []Event, faults []StreamFault) {
	var l streamLexer
	for len(stream) > 0 {
		k := min(n, len(stream))
		l.feed([]byte(stream[:k]))
		stream = stream[k:]
	}
	l.finish()
	for e, ok := l.nextEvent(); ok; e, ok = l.nextEvent() {
		events = append(events, e)
	}
	return events, l.faults
}

// TestFaultsOfStreams: what breaks the standard's rules is noted, and what is only unusual
// is not.
func TestFaultsOfStreams(t *testing.T) {
	for _, c := range []struct{ stream, fault string }{
		{"", ""},
		{"data: {}\n\n", ""},
		{"data:{}\r\n\r\n", ""},
		{": comment\nretry: 5\nid: 1\ndata:\n\nevent: message\ndata: {\ndata: }\n\n", ""},
		{"\xef\xbb\xbfdata: {}\n\n", ""},
		{"unknown: x\nunknown\ndata: {}\n\n", ""},
		{"id: 1\n", ""}, // cut off, and nothing lost
		{"data: {}\n", FaultNoFinalBlankLine},
		{"data: {}", FaultNoFinalBlankLine},
		{"data: {}\n\ndata: {", FaultNoFinalBlankLine},
		{"data : {}\n\n", FaultUnknownField},
		{"Data: {}\n\n", FaultUnknownField},
		{"{\"jsonrpc\":\"2.0\"}\n\n", FaultJSONOutsideData},
		{"data: {\n\"jsonrpc\":\"2.0\"}\n\n", FaultJSONOutsideData},
		{"data: \xff\n\n", FaultDataNotUTF8},
		{"data: {}\r\r", FaultLoneCR},
	} {
		got := ""
		if _, faults := read(c.stream, 1000); len(faults) > 0 {
			got = faults[0].Kind
		}
		if got != c.fault {
			t.Errorf("%q: %q, want %q", c.stream, got, c.fault)
		}
	}
}

// FuzzLexer: the events do not depend on how a stream comes in pieces, and are those that
// the clients' reader sees.
func FuzzLexer(f *testing.F) {
	for _, s := range []string{"data: {}\n\n", "\xef\xbb\xbfid: 1\r\ndata\r\rdata: x\n\nevent:e\ndata: a\ndata:b\n\n", "data : x\n\n{\"a\"", "id: \x00\n\n"} {
		f.Add(s, 1)
	}
	f.Fuzz(func(t *testing.T, stream string, n int) {
		events, faults := read(stream, len(stream)+1)
		if again, others := read(stream, max(1, n%100)); !reflect.DeepEqual(events, again) || len(faults) != len(others) {
			t.Fatalf("in pieces: %v %v\nas a whole: %v %v", again, others, events, faults)
		}
		r := sse.NewReader(strings.NewReader(stream), 0)
		for i := 0; ; i++ {
			e, err := r.Next()
			if err != nil {
				if i != len(events) {
					t.Fatalf("%d events, the clients' reader has %d", len(events), i)
				}
				return
			}
			if i >= len(events) || e.ID != events[i].ID || e.HasID != events[i].HasID || e.Name != events[i].Name || !bytes.Equal(e.Data, events[i].Data) {
				t.Fatalf("event %d: %+v, want %+v", i, events, e)
			}
		}
	})
}
