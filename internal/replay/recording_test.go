package replay

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// lines returns a trace of messages, "> " from the client and "< " from the server, a
// millisecond apart.
func lines(session string, messages ...string) string {
	var out []byte
	for n, m := range messages {
		dir := map[string]string{">": trace.ToServer, "<": trace.ToClient}[m[:1]]
		out = trace.Append(out, &trace.Record{
			Seq: uint64(n + 1), Time: time.Date(2026, 1, 1, 0, 0, n/60, n%60*1e6, time.UTC), Kind: trace.Request, Server: "a", Session: session,
			Hop: trace.Downstream, Dir: dir, Body: trace.Body{Text: []byte(m[2:])},
		})
	}
	return string(out)
}

var simple = lines("s1", `> {"jsonrpc":"2.0","id":1,"method":"a"}`, `< {"jsonrpc":"2.0","id":1,"result":{}}`)

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "is empty"},
		{"another file", "{\"mcpServers\":{}}\n", "no recording"},
		{"a binary", strings.Repeat("\x00\xff\n", 1000), "no recording"},
		{"a newer version", strings.ReplaceAll(simple, `"v":1`, `"v":2`), "newer"},
		{"another hop", strings.ReplaceAll(simple, `"hop":"down"`, `"hop":"up"`), "no messages"},
		{"cut messages", strings.ReplaceAll(simple, `"msg":{"jsonrpc":"2.0","id":1,"result":{}}`, `"raw":"{","cut":9`), "not all of this message"},
		{"messages without text", strings.ReplaceAll(simple, `,"msg":{"jsonrpc":"2.0","id":1,"result":{}}`, ""), "not all of this message"},
		{"redacted", strings.ReplaceAll(simple, `"result":{}}}`, `"result":{}},"redacted":["result.x\u001b"]}`), `result.x\u001b was taken out`},
	} {
		_, err := Load(strings.NewReader(c.text), LoadOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) || printable.Text(err.Error()) != err.Error() {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	redacted := strings.ReplaceAll(simple, `"result":{}}}`, `"result":{}},"redacted":["result.x"]}`)
	if _, err := Load(strings.NewReader(redacted), LoadOptions{}); !errors.Is(err, ErrRedacted) {
		t.Error(err)
	}
	for _, text := range []string{redacted, strings.ReplaceAll(redacted, "result.x", "http.req.Authorization")} {
		if _, err := Load(strings.NewReader(text), LoadOptions{AllowRedacted: text == redacted}); err != nil {
			t.Error(err)
		}
	}
	if _, err := Load(strings.NewReader(simple), LoadOptions{MaxBytes: 2000}); err == nil {
		t.Error("more is kept than may be")
	}
}

// What can be read of a damaged file is used, and the rest is told.
func TestLoadDamaged(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"cut", simple + simple[:40], "line 3: the file ends inside of it"},
		{"foreign", "nonsense\n" + simple, "line 1: it is no record of a trace"},
		{"a gap", simple + `{"v":1,"kind":"gap","lost":7}`, "line 3: 7 records are missing here"},
		{"no message", simple + lines("s1", `> {"a":1}`), "line 3: this is no message"},
		{"deep", simple + lines("s1", `> {"jsonrpc":"2.0","id":1,"method":"a","params":`+strings.Repeat("[", 1e5)+strings.Repeat("]", 1e5)+"}"), "line 3: this is no message"},
		{"an answer to nothing", simple + lines("s1", `< {"jsonrpc":"2.0","id":99,"result":{}}`), "line 3: this answers no request"},
	} {
		rec, err := Load(strings.NewReader(c.text), LoadOptions{})
		if err != nil || len(rec.Faults) != 1 || !strings.HasPrefix(rec.Faults[0], c.want) || len(rec.messages) != 2 {
			t.Errorf("%s: %+v %v", c.name, rec, err)
		}
	}
}

// The first session is taken, or the one that is named; all single requests are one.
func TestLoadSession(t *testing.T) {
	text := lines("s1", `> {"jsonrpc":"2.0","id":1,"method":"a"}`) + lines("s2", `> {"jsonrpc":"2.0","id":1,"method":"b"}`, `< {"jsonrpc":"2.0","id":1,"result":{}}`)
	for session, want := range map[string]int{"": 1, "s2": 2} {
		rec, err := Load(strings.NewReader(text), LoadOptions{Session: session})
		if err != nil || len(rec.messages) != want {
			t.Error(session, rec, err)
		}
	}
	if _, err := Load(strings.NewReader(text), LoadOptions{Session: "s3"}); err == nil || !strings.Contains(err.Error(), "s1, s2") {
		t.Error(err)
	}
	single := strings.NewReplacer(`"ses":"s`, `"ses":"q`, `"hop"`, `"era":"modern","tr":"http","hop"`).Replace(text)
	rec, err := Load(strings.NewReader(single), LoadOptions{})
	if err != nil || len(rec.messages) != 4 || rec.messages[0].answer != nil || len(rec.Faults) > 0 {
		t.Error(rec, err)
	}
	// The one that has no answer was cancelled: its client has hung up.
	if !rec.messages[0].cancelled || rec.messages[1].m.Method() != "notifications/cancelled" || rec.messages[2].cancelled {
		t.Errorf("%+v", rec.messages)
	}
}

// The numbers are the order, whatever the clock says. An answer may have a smaller one than
// its request if both passed at the same time.
func TestLoadOrder(t *testing.T) {
	at := func(n int) string { return fmt.Sprintf("2026-01-01T00:00:00.%06dZ", n) }
	record := func(seq, n int, dir, m string) string {
		return fmt.Sprintf(`{"v":1,"seq":%d,"ts":%q,"srv":"a","ses":"s1","hop":"down","dir":%q,"kind":"request","msg":%s}`+"\n", seq, at(n), dir, m)
	}
	rec, err := Load(strings.NewReader(
		record(2, 20, "c2s", `{"jsonrpc":"2.0","id":"s","result":{}}`)+
			record(1, 90, "c2s", `{"jsonrpc":"2.0","id":1,"method":"a"}`)+
			record(3, 20, "s2c", `{"jsonrpc":"2.0","id":"s","method":"b"}`)+
			record(4, 30, "s2c", `{"jsonrpc":"2.0","id":1,"result":{}}`)), LoadOptions{})
	if err != nil || len(rec.Faults) > 0 {
		t.Fatal(rec, err)
	}
	have := ""
	for _, i := range rec.messages {
		have += fmt.Sprint(i.seq)
	}
	if have != "1324" {
		t.Error(have)
	}
}

func TestPlainNumber(t *testing.T) {
	for _, equal := range [][]string{{"1", "1.0", "1e0", "10e-1", "0.1E+1"}, {"0", "-0", "0.00", "0e99"}, {"1e400", "10e399"}, {"1e999999999999999999999"}, {"9007199254740993", "9007199254740993.0"}, {"9007199254740992"}, {"-1"}} {
		for _, n := range equal {
			if plainNumber(n) != plainNumber(equal[0]) && n != "-0" {
				t.Error(n, plainNumber(n))
			}
		}
	}
	if plainNumber("9007199254740993") == plainNumber("9007199254740992") || plainNumber("1") == plainNumber("-1") {
		t.Error("numbers are rounded")
	}
}

// FuzzLoad: no recording makes Load, Play, a Fake or what they print fail.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(simple))
	f.Add([]byte(lines("s1",
		`> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"<script>\u001b[2J","_meta":{"progressToken":1}}}`,
		`< {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1e999999999}}`,
		`< {"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":[1]}`, `> {"jsonrpc":"2.0","id":1,"result":null}`,
		`> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`< {"jsonrpc":"2.0","id":1,"result":{"nextCursor":"a","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`,
		`> {"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-06-18","cursor":"a"}}`,
		`< {"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"\u202e"}}`)))
	f.Fuzz(func(t *testing.T, text []byte) {
		rec, err := Load(bytes.NewReader(text), LoadOptions{AllowRedacted: true, MaxBytes: 1 << 20})
		if err != nil {
			if printable.Text(err.Error()) != err.Error() {
				t.Errorf("%q", err)
			}
			return
		}
		for _, fault := range rec.Faults {
			if printable.Text(fault) != fault {
				t.Errorf("%q", fault)
			}
		}
		if len(rec.messages) > 20 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			fake := NewFake(rec)
			with(t, fake, func(conn bridge.Conn) {
				r, err := Play(t.Context(), conn, rec, PlayOptions{Wait: time.Second})
				if err != nil {
					if printable.Text(err.Error()) != err.Error() {
						t.Errorf("%q", err)
					}
					return
				}
				var b strings.Builder
				_ = r.Write(&b)
				if printed := strings.ReplaceAll(b.String(), "\n", ""); printable.Text(printed) != printed {
					t.Errorf("%q", printed)
				}
			})
			for _, text := range append(fake.Usage().Unasked, fake.Usage().Misses...) {
				if printable.Text(text) != text {
					t.Errorf("%q", text)
				}
			}
		})
	})
}
