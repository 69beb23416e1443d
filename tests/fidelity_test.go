package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// revisions are those that have sessions over Streamable HTTP.
var revisions = []string{"2025-03-26", "2025-06-18", "2025-11-25"}

// tricky is a value that a bridge which decodes and encodes does not keep:
// numbers that no float64 or int64 holds, a number's spelling, the order of
// keys and a key that comes twice, escapes and their absence, spaces, a ZWJ
// emoji, a no-break space, characters that encoders like to escape.
const tricky = `{"z":1,"a":9007199254740993,"f":1.0,"e":1e400,"m":-0,"x":1E+2, "sp" :  [ 1 ,2 ] ,` +
	`"esc":"\u00e9\/\ud83d\ude00\u0000\b","raw":"é/😀","zwj":"👨‍👩‍👧‍👦","nbsp":" ` + "\u00a0" + `","html":"<&>",` +
	"\"ls\":\"\u2028\u2029\u0085\u007f\",\"dup\":1,\"dup\":2,\"A\":1,\"id\":7,\"method\":\"x\",\"\":null,\"deep\":[[[[{}]]]]}"

// spelled are ids that differ, though a careless reader takes some for others.
var spelled = []string{`"abc"`, `"1"`, `1`, `9007199254740993`, `9007199254740992`, `"9007199254740993"`, `"\u0061bc"`, `""`, `-1`, `0`}

// TestServeKeepsBytes: J5. What the client sends reaches the child byte for
// byte, and what the child answers reaches the client so, in JSON and in SSE.
func TestServeKeepsBytes(t *testing.T) {
	t.Parallel()
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			record := filepath.Join(t.TempDir(), "stdin")
			c := serve(t, nil, "-record", record).open(version)
			var want strings.Builder
			for i, id := range spelled {
				request := fmt.Sprintf(`{"params":%s,"jsonrpc":"2.0","x-unknown":1.50,"method":"echo","id":%s}`, tricky, id)
				if got, want := c.answer(request), fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, tricky); got != want {
					t.Errorf("answer to id %s:\n got %s\nwant %s", id, got, want)
				}
				want.WriteString(request + "\n")
				if i%2 == 0 {
					notification := fmt.Sprintf(`{"method":"notifications/anything", "params" : %s,"jsonrpc":"2.0"}`, tricky)
					if status := c.post(notification); status != 202 {
						t.Errorf("notification: status %d", status)
					}
					want.WriteString(notification + "\n")
				}
			}
			// An SSE reply: a notification precedes the answer.
			note := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":%s}`, tricky)
			result := fmt.Sprintf(`{"result":%s,"id":"sse","jsonrpc":"2.0","extra":[ ]}`, tricky)
			got := c.call(emit(`"sse"`, note, strings.Replace(result, `"sse"`, "$ID", 1)))
			if len(got) != 2 || got[0] != note || got[1] != result {
				t.Errorf("SSE reply:\n got %q\nwant %q", got, []string{note, result})
			}
			read := harness.ReadFile(t, record)
			if !strings.Contains(read, want.String()) {
				t.Errorf("the child read\n%s\nwhich lacks\n%s", read, want.String())
			}
		})
	}
}

// emit is a request that makes the fixture print lines.
func emit(id string, lines ...string) string {
	quoted := make([]string, len(lines))
	for i, l := range lines {
		quoted[i] = quote(l)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"emit","params":{"lines":[%s]}}`, id, strings.Join(quoted, ","))
}

// TestServePrettyPrinted: ST1. A pretty-printed body is one line for the
// child, with the strings untouched.
func TestServePrettyPrinted(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "stdin")
	c := serve(t, nil, "-record", record).open("2025-06-18")
	answer := c.answer("{\r\n  \"jsonrpc\": \"2.0\",\n  \"id\": 5,\n\t\"method\": \"echo\",\n  \"params\": {\n    \"s\": \"a\\nb  c\\t\",\n    \"n\": 1.0\n  }\n}\n")
	if !strings.Contains(answer, `"a\nb  c\t"`) || !strings.Contains(answer, "1.0") {
		t.Errorf("answer %q changed a string or a number", answer)
	}
	for line := range strings.Lines(harness.ReadFile(t, record)) {
		if strings.Contains(line, `"echo"`) && strings.Contains(line, `"a\nb  c\t"`) && strings.HasSuffix(line, "}\n") {
			return
		}
	}
	t.Errorf("the child did not read the request as one line: %q", harness.ReadFile(t, record))
}

// TestServeIdsInFlight: ids that only look alike are answered each on its own
// reply, whatever the order of the answers (J2, J3, B.1).
func TestServeIdsInFlight(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "stdin")
	c := serve(t, nil, "-record", record).open("2025-11-25")
	// Two spellings of one string are the same id to the child.
	ids := slices.DeleteFunc(slices.Clone(spelled), func(id string) bool { return strings.Contains(id, `\u`) })
	replies := make([]<-chan []string, len(ids))
	for i, id := range ids {
		replies[i] = c.background(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"park"}`, id))
	}
	waitFile(t, record, func(s string) bool { return strings.Count(s, `"park"`) == len(ids) })
	c.answer(`{"jsonrpc":"2.0","id":"release","method":"release"}`)
	for i, id := range ids {
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
		if got := recv(t, replies[i]); len(got) != 1 || got[0] != want {
			t.Errorf("reply to id %s: %q, want %q", id, got, want)
		}
	}
}

// TestServeBigMessage: 30 MB cross the bridge both ways unchanged.
func TestServeBigMessage(t *testing.T) {
	t.Parallel()
	c := serve(t, []string{"--max-message-size", "64MiB"}).open("2025-11-25")
	params := big(30 << 20)
	got := c.answer(`{"jsonrpc":"2.0","id":1,"method":"echo","params":` + params + `}`)
	if want := `{"jsonrpc":"2.0","id":1,"result":` + params + `}`; got != want {
		t.Errorf("a message of %d bytes came back as another one of %d", len(want), len(got))
	}
}

// big is a JSON object of about n bytes that does not repeat itself.
func big(n int) string {
	b := append(make([]byte, 0, n+64), `{"data":"`...)
	for i := int64(0); len(b) < n; i++ {
		b = append(strconv.AppendInt(b, i*2654435761, 16), ` é\n`...)
	}
	return string(append(b, `"}`...))
}

// TestServeManyNotifications: 20,000 notifications and the result, written in
// one go, arrive in order and before the result (B.2).
func TestServeManyNotifications(t *testing.T) {
	t.Parallel()
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			checkProgress(t, serve(t, nil).open(version).call(progressCall("1", "progress", 20000)), "1", 20000)
		})
	}
}

func progressCall(id, method string, n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"n":%d,"_meta":{"progressToken":"t%s"}}}`, id, method, n, strings.Trim(id, `"`))
}

// checkProgress checks the whole reply to progressCall.
func checkProgress(t testing.TB, msgs []string, id string, n int) {
	t.Helper()
	if len(msgs) != n+1 {
		t.Fatalf("%d messages, want %d notifications and the result; the last is %.200q", len(msgs), n, msgs[max(0, len(msgs)-1):])
	}
	for i, msg := range msgs[:n] {
		want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t%s","progress":%d}}`, strings.Trim(id, `"`), i+1)
		if msg != want {
			t.Fatalf("message %d is %.200q, want %q", i, msg, want)
		}
	}
	if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"done":true}}`, id); msgs[n] != want {
		t.Fatalf("the last message is %.200q, want %q", msgs[n], want)
	}
}

// TestServeSloppyChild: ST2, ST4, ST5. CRLF, blank lines, a byte order mark,
// banners and arrays do not disturb the session.
func TestServeSloppyChild(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-crlf", "-bom", "-banner"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			c := serve(t, nil, flag).open("2025-06-18")
			for i := range 3 {
				id := fmt.Sprint(i)
				want := `{"jsonrpc":"2.0","id":` + id + `,"result":` + tricky + `}`
				if got := c.answer(`{"jsonrpc":"2.0","id":` + id + `,"method":"echo","params":` + tricky + `}`); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			noisy := c.call(emit(`"n"`, "Listening on nothing", "{broken", "",
				`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}`, `{"jsonrpc":"2.0","id":$ID,"result":{}}`))
			if want := `{"jsonrpc":"2.0","id":"n","result":{}}`; len(noisy) != 1 || noisy[0] != want {
				t.Errorf("after noise: %q, want %q alone", noisy, want)
			}
			batch := c.call(emit(`"b"`, `[{"jsonrpc":"2.0","method":"notifications/message","params":{"n":1}},{"jsonrpc":"2.0","id":$ID,"result":{}}]`))
			if len(batch) != 2 || batch[1] != `{"jsonrpc":"2.0","id":"b","result":{}}` {
				t.Errorf("an array from the child came as %q, want its two messages in order", batch)
			}
		})
	}
}

// TestServeStderrFlood: ST6. A child that writes 10 MiB to stderr before it
// answers is not stuck, and the log names it.
func TestServeStderrFlood(t *testing.T) {
	t.Parallel()
	c := serve(t, nil).open("2025-06-18")
	got := c.answer(`{"jsonrpc":"2.0","id":1,"method":"flood","params":{"n":10485760}}`)
	if want := `{"jsonrpc":"2.0","id":1,"result":{}}`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// recv waits for one value.
func recv[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(harness.Patience):
		t.Fatal("nothing came in time")
		panic("unreachable")
	}
}

// waitFile waits until another process has written what ok wants.
func waitFile(t testing.TB, path string, ok func(string) bool) string {
	t.Helper()
	var s string
	harness.WaitUntil(t, "the contents of "+filepath.Base(path), func() bool {
		s = harness.ReadFile(t, path)
		return ok(s)
	})
	return s
}

func quote(s string) string { return string(mustJSON(s)) }

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o700)
	}
	bridgetest.Must(t, err)
}

func removeFile(t testing.TB, path string) {
	t.Helper()
	bridgetest.Must(t, os.Remove(path))
}
