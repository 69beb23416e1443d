package doctor

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// What was said is a trace, without secrets, wherever they stand and whenever they became known.
func TestRecording(t *testing.T) {
	r := RecordingOf(WithRecording(context.Background(), NewRecording()))
	s := r.NewSession()
	r.HideHeader("X-Pin")
	r.RecordHTTPExchange(r.SessionName("id-of-session-1"), time.Now(), trace.Exchange{Method: "POST", URL: "https://host/mcp?key=in-the-query", Status: 200,
		RequestHeader: http.Header{"Authorization": {"Bearer of-authorization"}, "X-Pin": {"of-header"}}, ResponseHeader: http.Header{"Mcp-Session-Id": {"id-of-session-1"}}})
	r.RecordMessage(s, "stdio", trace.ToServer, []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"login","arguments":{"password":"named-secret-1","x":"hidden-secret"}}}`+"\n"))
	r.RecordMessage(s, "stdio", trace.ToClient, []byte(`{"jsonrpc":"2.0","id":1,"result":{"isError":true,"text":"no named-secret-1"}}`))
	r.RecordMessage(s, "stdio", trace.ToClient, []byte(`Listening with hidden-secret`))
	r.RecordMessage(s, "stdio", trace.ToClient, []byte(`{"jsonrpc":"2.0","method":"n","params":{"x":"`+strings.Repeat("x", maxMessageTextBytes)+`"}}`))
	r.RecordProcessEvent(s, trace.Event{Action: "ended", PID: 7, Err: "exit status 1: hidden-secret"})
	report := NewReport("x")
	report.HideSecrets("hidden-secret")
	text, err := report.FormatTrace(r, "server")
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"in-the-query", "of-authorization", "of-header", "id-of-session-1", "named-secret-1", "hidden-secret"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("it has %q:\n%s", secret, text)
		}
	}
	var got []string
	for rec, err := range trace.NewReader(bytes.NewReader(text)).Records() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(rec.Seq, " ", rec.Kind, " ", rec.Server, " ", rec.Session, " ", rec.Hop, " ", rec.Dir, " ", rec.Method, " ", rec.Name, " ", rec.ID, " ", rec.Failed, " ", rec.Body.OmittedBytes > 0))
	}
	want := []string{
		"1 http server s2 up     false false", "2 request server s1 up c2s tools/call login 1 false false", "3 response server s1 up s2c tools/call login 1 true false",
		"4 noise server s1 up     false false", "5 notification server s1 up s2c n   false true", "6 process server s1      false false",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// However much is said, the latest of it is kept, and how much is missing.
func TestLongRecording(t *testing.T) {
	r := NewRecording()
	for i := range maxRecords + 10 {
		r.RecordMessage("s1", "stdio", trace.ToServer, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i))
	}
	text, err := NewReport("x").FormatTrace(r, "server")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) != maxRecords+1 || !bytes.Contains(lines[0], []byte(`"kind":"gap","lost":10`)) || !bytes.Contains(lines[1], []byte(`"id":10,`)) {
		t.Errorf("%d lines: %s", len(lines), lines[0])
	}
	long := []byte(`{"jsonrpc":"2.0","method":"n","params":{"x":"` + strings.Repeat("x", maxMessageTextBytes-100) + `"}}`)
	for range 2 * maxTotalTextBytes / maxMessageTextBytes {
		r.RecordMessage("s1", "stdio", trace.ToServer, long)
	}
	if r.textBytes > maxTotalTextBytes {
		t.Errorf("%d bytes are kept", r.textBytes)
	}
	var none *Recording
	none.RecordMessage(none.NewSession(), "stdio", trace.ToServer, nil)
	none.RecordHTTPExchange(none.SessionName("x"), time.Now(), trace.Exchange{})
	none.RecordProcessEvent("", trace.Event{})
	none.HideHeader("x")
}
