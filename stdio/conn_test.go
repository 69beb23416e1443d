package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Both ways to read and both ways to write keep the contract.
func TestContract(t *testing.T) {
	for name, streams := range map[string]func(t *testing.T) (a, b [2]io.ReadWriteCloser){
		"files": func(t *testing.T) (a, b [2]io.ReadWriteCloser) {
			ar, bw := osPipe(t)
			br, aw := osPipe(t)
			return [2]io.ReadWriteCloser{ar, aw}, [2]io.ReadWriteCloser{br, bw}
		},
		"deadlines": func(t *testing.T) (a, b [2]io.ReadWriteCloser) {
			x, y := net.Pipe()
			return [2]io.ReadWriteCloser{x, x}, [2]io.ReadWriteCloser{y, y}
		},
		"nothing but Read and Write": func(t *testing.T) (a, b [2]io.ReadWriteCloser) {
			ar, bw := io.Pipe()
			br, aw := io.Pipe()
			return [2]io.ReadWriteCloser{half{ar, nil, ar}, half{nil, aw, aw}},
				[2]io.ReadWriteCloser{half{br, nil, br}, half{nil, bw, bw}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bridgetest.TestConn(t, func(t *testing.T) (bridge.Conn, bridge.Conn, func()) {
				a, b := streams(t)
				return NewConn(a[0], a[1], closeAll(a[0], a[1]), Options{Peer: Client}),
					NewConn(b[0], b[1], closeAll(b[0], b[1]), Options{Peer: Server}), nil
			}, bridgetest.Options{InBubble: name != "files"})
		})
	}
}

type half struct {
	io.Reader
	io.Writer
	io.Closer
}

// ST1: one message, one line, one write; strings are untouched.
func TestSendMakesOneLine(t *testing.T) {
	var out output
	c := reading(t, strings.NewReader(""), &out, Options{})
	pretty := "{\r\n  \"jsonrpc\": \"2.0\",\n\t\"id\" : 9007199254740993,\n  \"method\": \"a\\nb\\r\\n\",\n \"params\": {\"x\": \"\\u000a \u2028 \\/ 1.0\", \"y\": 1e400}\n}"
	line := "{  \"jsonrpc\": \"2.0\",\t\"id\" : 9007199254740993,  \"method\": \"a\\nb\\r\\n\", \"params\": {\"x\": \"\\u000a \u2028 \\/ 1.0\", \"y\": 1e400}}\n"
	bridgetest.Must(t, c.Send(t.Context(), parse(t, pretty)))
	if !slices.Equal(out.writes, []string{line}) {
		t.Errorf("wrote %q, want %q in one write", out.writes, line)
	}
	if err := c.Send(t.Context(), jsonrpc.Message{}); err == nil {
		t.Errorf("the zero Message was sent")
	}
}

// Around the size of a chunk, where Send goes over to two writes.
func TestSendSizes(t *testing.T) {
	for size := chunkSize - 3; size <= chunkSize+3; size++ {
		var out output
		c := reading(t, strings.NewReader(""), &out, Options{})
		m := benchMessage(size)
		bridgetest.Must(t, c.Send(t.Context(), m))
		if text := strings.Join(out.writes, ""); text != string(m.Bytes())+"\n" {
			t.Errorf("size %d: wrote %d bytes, want the message and a line feed", size, len(text))
		}
		if len(out.writes) > 1 && size < chunkSize {
			t.Errorf("size %d: %d writes, want one", size, len(out.writes))
		}
	}
}

// A message whose id was replaced goes out whole, wherever the id stands and
// however long that is; and one that fits into a chunk, in one write.
func TestSendRenamed(t *testing.T) {
	for _, text := range []string{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"a\":\"%s\"}}",
		"{\"method\":\"m\",\"params\":{\"a\":\"%s\"},\"jsonrpc\":\"2.0\",\"id\":1}",
		"{\"jsonrpc\":\"2.0\",\n\"id\":1,\"method\":\"m\",\"params\":{\"a\":\"%s\"}}"} {
		for _, id := range []jsonrpc.ID{jsonrpc.IntID(7), jsonrpc.StringID(strings.Repeat("i", chunkSize-20)), jsonrpc.StringID(strings.Repeat("i", 2*chunkSize))} {
			for _, size := range []int{1000, chunkSize / 2, chunkSize - 90, chunkSize - 70, chunkSize - 60, chunkSize - 50, chunkSize, 2*chunkSize - 70, 2 * chunkSize, 1 << 20} {
				var out output
				c := reading(t, strings.NewReader(""), &out, Options{})
				m := parse(t, fmt.Sprintf(text, strings.Repeat("x", size))).WithID(id)
				bridgetest.Must(t, c.Send(t.Context(), m))
				want := strings.Replace(strings.ReplaceAll(text, "\n", ""), ":1", ":"+id.String(), 1)
				want = fmt.Sprintf(want, strings.Repeat("x", size)) + "\n"
				if got := strings.Join(out.writes, ""); got != want {
					t.Errorf("size %d: wrote %d bytes, want %d", size, len(got), len(want))
				}
				if len(want) <= chunkSize && len(out.writes) != 1 || len(out.writes) > 5 {
					t.Errorf("size %d: %d writes", size, len(out.writes))
				}
			}
		}
	}
}

const (
	ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	pong = `{"jsonrpc":"2.0","id":1,"result":{}}`
	note = `{"jsonrpc":"2.0","method":"notifications/x"}`
)

// ST2.
func TestRecvAccepts(t *testing.T) {
	for name, in := range map[string]string{
		"plain":             ping + "\n" + note + "\n",
		"CRLF":              ping + "\r\n" + note + "\r\n",
		"byte order mark":   "\uFEFF" + ping + "\n" + note + "\n",
		"blank lines":       "\n\r\n  \t\n" + ping + "\n\n\n" + note + "\n\n",
		"white space":       "  " + ping + " \t\r\n\t" + note + "  \n",
		"unterminated last": ping + "\n" + note,
		"unterminated CR":   ping + "\n" + note + "\r",
	} {
		t.Run(name, func(t *testing.T) {
			var n noise
			var out output
			c := reading(t, strings.NewReader(in), &out, Options{Peer: Client, OnNoise: n.hook})
			if got := all(t, c); !slices.Equal(got, []string{ping, note}) {
				t.Errorf("received %q", got)
			}
			if c.skippedCount.Load() != 0 || len(n.reasons) != 0 || len(out.lines()) != 0 {
				t.Errorf("skipped %d %q, answered %q", c.skippedCount.Load(), n.reasons, out.lines())
			}
			if _, err := bridgetest.Recv(t.Context(), c); err != io.EOF {
				t.Errorf("second Recv at the end = %v, want io.EOF", err)
			}
		})
	}
}

// ST4: noise of a server is skipped, counted and reported, without its content.
func TestNoise(t *testing.T) {
	lines := []string{
		"Server ready", "[INFO] secret-4711 listening", "[]", "12", `"text"`, "null", "{", `{"a":1}`,
		`{"jsonrpc":"2.0","method":4711}`, `{"id":3,"method":"GET","path":"/4711"}`, "\x1b[32mok\x1b[0m", "\xff\xfe\x00", `{"jsonrpc":"2.0","id":null,"result":{}}`,
	}
	for _, line := range lines {
		t.Run(line, func(t *testing.T) {
			var n noise
			var out output
			c := reading(t, strings.NewReader(line+"\n"+pong+"\n"+line), &out, Options{OnNoise: n.hook})
			if got := all(t, c); !slices.Equal(got, []string{pong}) {
				t.Errorf("received %q, want what stands behind the noise", got)
			}
			if c.skippedCount.Load() != 2 || !slices.Equal(n.sizes, []int{len(line), len(line)}) {
				t.Errorf("skipped %d, sizes %d; want 2 times %d bytes", c.skippedCount.Load(), n.sizes, len(line))
			}
			for _, reason := range n.reasons {
				if reason == "" || strings.Contains(reason, "4711") {
					t.Errorf("reason %q", reason)
				}
			}
			if len(out.lines()) != 0 {
				t.Errorf("a server was told %q about its noise", out.lines())
			}
		})
	}
}

// The reason says if the noise has an answer behind it, which is then lost: the note C10 is made of that.
func TestNoiseBeforeAnswer(t *testing.T) {
	const plain, inFront = "the line is not a JSON object", "text stands before an answer on the line"
	for text, want := range map[string]string{
		"ready> " + pong:              inFront,
		"\x1b[32m{x} > " + pong + " ": inFront,
		"12" + pong:                   inFront,
		"[info] ready " + pong:        inFront,
		"ready> " + ping:              plain,
		"sent " + pong + " to you":    plain,
		"ready> " + pong[1:]:          plain,
		"{}"[1:]:                      plain,
		"ready":                       plain,
	} {
		var n noise
		var out output
		c := reading(t, strings.NewReader(text+"\n"), &out, Options{OnNoise: n.hook})
		if got := all(t, c); len(got) != 0 || !slices.Equal(n.reasons, []string{want}) {
			t.Errorf("%q: received %q, reasons %q, want %q", text, got, n.reasons, want)
		}
	}
}

// ST4: threads of a server that print at the same time put several messages into one line.
// No call may wait forever because of that. A client has no such excuse.
func TestGluedMessages(t *testing.T) {
	note, other := `{"jsonrpc":"2.0","method":"notifications/message"}`, `{"jsonrpc":"2.0","id":"1","result":{"a":"}{"}}`
	for _, c := range []struct {
		name, line string
		want       []string
		skipped    int64
	}{
		{"two answers", pong + other, []string{pong, other}, 0},
		{"a notification first", note + pong, []string{note, pong}, 0},
		{"three, with white space", "\ufeff" + note + " \t" + pong + other + " \r", []string{note, pong, other}, 0},
		{"a log behind a notification", note + "done", nil, 1},
		{"an object that is no message", note + `{"a":1}`, nil, 1},
		{"as many as there may be", strings.Repeat(note, jsonrpc.MaxServerBatch), slices.Repeat([]string{note}, jsonrpc.MaxServerBatch), 0},
		{"one more", strings.Repeat(note, jsonrpc.MaxServerBatch+1), nil, 1},
		{"half a message", note + pong[:20], nil, 1},
		{"a message that is too deep", note + `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 50) + strings.Repeat("]", 50) + "}", nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out output
			conn := reading(t, strings.NewReader(c.line+"\n"+pong+"\n"), &out, Options{MaxDepth: 20})
			if got := all(t, conn); !slices.Equal(got, append(c.want, pong)) {
				t.Errorf("received %q, want %q and the next line", got, c.want)
			}
			if got := conn.skippedCount.Load(); got != c.skipped || len(out.lines()) != 0 {
				t.Errorf("skipped %d, told the server %q; want %d and nothing", got, out.lines(), c.skipped)
			}
		})
	}
	var out output
	conn := reading(t, strings.NewReader(note+pong+"\n"), &out, Options{Peer: Client})
	if got := all(t, conn); len(got) != 0 {
		t.Errorf("received %q of a client that has put two messages into one line", got)
	}
}

// Whoever waits for an answer gets one, even if the answer was broken.
func TestInvalidAnswer(t *testing.T) {
	for _, c := range []struct {
		peer     PeerRole
		in, want string
	}{
		{Server, `{"id":"a","result":{}}`, "the server's answer was not valid"},
		{Server, `{"jsonrpc":"2.0","id":"a","result":{"x":}}`, "the server's answer was not valid"},
		{Server, `[{"jsonrpc":"2.0","id":"a","error":"text"}]`, "the server's answer was not valid"},
		{Client, `{"id":"a","result":{}}`, "the client's answer was not valid"},
	} {
		var n noise
		var out output
		conn := reading(t, strings.NewReader(c.in+"\n"), &out, Options{Peer: c.peer, OnNoise: n.hook})
		m, err := bridgetest.Recv(t.Context(), conn)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if m.Kind() != jsonrpc.Response || m.ID() != jsonrpc.StringID("a") || string(m.Lookup("error", "code")) != "-32603" ||
			!strings.Contains(string(m.Lookup("error", "message")), c.want) {
			t.Errorf("%s gave %s", c.in, m.Bytes())
		}
		if conn.skippedCount.Load() != 1 || len(out.lines()) != 0 {
			t.Errorf("%s: skipped %d, answered %q", c.in, conn.skippedCount.Load(), out.lines())
		}
	}
}

// J4, J6: a client is told what was wrong, with the id if it could be read.
func TestClientIsAnswered(t *testing.T) {
	for in, want := range map[string]string{
		"hello":                                    `null -32700`,
		`{"jsonrpc":"2.0","id":5,"method":"x"`:     `5 -32700`,
		`{"jsonrpc":"2.0","id":5,"method":1}`:      `5 -32600`,
		`{"jsonrpc":"2.0","id":"x","params":{}}`:   `"x" -32600`,
		`{"jsonrpc":"2.0","id":null,"method":"x"}`: `null -32600`,
		`17`: `null -32600`,
		`{"jsonrpc":"2.0","method":"notifications/x","params":1}`: ``,
	} {
		var out output
		c := reading(t, strings.NewReader(in+"\n"+ping+"\n"), &out, Options{Peer: Client})
		if got := all(t, c); !slices.Equal(got, []string{ping}) {
			t.Errorf("%s: received %q", in, got)
		}
		if got := answers(t, &out); got != want {
			t.Errorf("%s was answered %q, want %q", in, got, want)
		}
		if c.skippedCount.Load() != 1 {
			t.Errorf("%s: skipped %d, want 1", in, c.skippedCount.Load())
		}
	}
}

// J4: a server is told that its request is not received, for it waits for the answer.
func TestServerIsAnswered(t *testing.T) {
	for in, want := range map[string]string{
		`{"jsonrpc":"2.0","id":5,"method":"x","params":1}`:        `5 -32600`,
		`{"jsonrpc":"2.0","id":"a","method":"x","params":{"b":}}`: `"a" -32700`,
		`{"jsonrpc":"2.0","id":1.5,"method":"x"}`:                 `null -32600`,
		`{"jsonrpc":"2.0","id":null,"method":"x"}`:                ``, // some libraries write notifications so
		`{"id":1.5,"method":"GET","path":"/"}`:                    ``, // a log
		`{"jsonrpc":"2.0","method":"notifications/x","params":1}`: ``,
	} {
		synctest.Test(t, func(t *testing.T) {
			var out output
			c := reading(t, strings.NewReader(in+"\n"+ping+"\n"), &out, Options{})
			if got := all(t, c); !slices.Equal(got, []string{ping}) {
				t.Errorf("%s: received %q", in, got)
			}
			synctest.Wait()
			if got := answers(t, &out); got != want {
				t.Errorf("%s was answered %q, want %q", in, got, want)
			}
		})
	}
}

// One that reads nothing for a while does not hold up what stands behind its requests,
// and hears of them when it reads.
func TestServerIsDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		c := NewConn(ours, ours, ours.Close, Options{})
		defer c.Close(nil)
		const n = 3
		go func() {
			for i := range n {
				_, _ = fmt.Fprintf(theirs, `{"jsonrpc":"2.0","id":%d,"method":"x","params":1}`+"\n", i)
			}
			_, _ = io.WriteString(theirs, pong+"\n")
		}()
		began := time.Now()
		if m, err := bridgetest.Recv(t.Context(), c); err != nil || string(m.Bytes()) != pong || time.Since(began) != 0 {
			t.Errorf("%s, %v after %v", m.Bytes(), err, time.Since(began))
		}
		time.Sleep(time.Hour)
		in := bufio.NewReader(theirs)
		for i := range n {
			line, err := in.ReadString('\n')
			if err != nil || !strings.HasPrefix(line, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32600,`, i)) {
				t.Errorf("the server read %q, %v", line, err)
			}
		}
	})
}

// Close ends a refusal that waits, also where only the closer can, and that waits for
// Receive as a child's does.
func TestCloseWhileRefusing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		var c *Conn
		c = NewConn(strings.NewReader(`{"jsonrpc":"2.0","id":5,"method":"x","params":1}`+"\n"+pong+"\n"), struct{ io.Writer }{w}, func() error {
			c.in.mu.Lock()
			defer c.in.mu.Unlock()
			return r.Close()
		}, Options{})
		if m, err := bridgetest.Recv(t.Context(), c); err != nil || string(m.Bytes()) != pong {
			t.Errorf("%s, %v", m.Bytes(), err)
		}
		synctest.Wait()
		if err := c.Close(nil); err != nil {
			t.Error(err)
		}
	})
}

// A line of a server that can only be the answer to a request, but says
// nothing, becomes an error: whoever has asked would wait for ever.
func TestVoidAnswer(t *testing.T) {
	c := reading(t, strings.NewReader(`{"jsonrpc":"2.0","id":8}`+"\n"), &output{}, Options{})
	got := all(t, c)
	if len(got) != 1 || !strings.Contains(got[0], `"id":8,"error"`) {
		t.Errorf("received %q", got)
	}
}

// So does that of a client which has the id of a question. The client may have
// a request of its own under that id, and so is not told with it.
func TestVoidAnswerOfClient(t *testing.T) {
	question := parse(t, `{"jsonrpc":"2.0","id":8,"method":"elicitation/create"}`)
	cancelled := parse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`)
	failed := `{"jsonrpc":"2.0","id":8,"error"`
	void, good := `{"jsonrpc":"2.0","id":8}`, `{"jsonrpc":"2.0","id":8.0,"result":{}}`
	for _, c := range []struct {
		what    string
		says    []jsonrpc.Message
		in      string
		want    []string // received
		answers string
	}{
		{"asked", []jsonrpc.Message{question}, void, []string{failed}, ""},
		{"both at once", []jsonrpc.Message{question}, `{"jsonrpc":"2.0","id":8,"method":"x","result":{}}`, []string{failed}, ""},
		{"in a batch", []jsonrpc.Message{question}, `[` + void + `]`, []string{failed}, ""},
		{"twice", []jsonrpc.Message{question}, void + "\n" + void, []string{failed}, "8 -32600"},
		{"answered", []jsonrpc.Message{question}, good + "\n" + void, []string{good}, "8 -32600"},
		{"answered in a batch", []jsonrpc.Message{question}, `[` + good + "]\n" + void, []string{good}, "8 -32600"},
		{"cancelled", []jsonrpc.Message{question, cancelled}, void, nil, "8 -32600"},
		{"another", []jsonrpc.Message{question}, `{"jsonrpc":"2.0","id":9}`, nil, "9 -32600"},
		{"a request", []jsonrpc.Message{question}, `{"jsonrpc":"2.0","id":8,"method":5}`, nil, "8 -32600"},
	} {
		var out output
		conn := reading(t, strings.NewReader(c.in+"\n"), &out, Options{Peer: Client, AcceptBatch: func() bool { return true }})
		for _, m := range c.says {
			bridgetest.Must(t, conn.Send(t.Context(), m))
		}
		same := func(got, want string) bool { return strings.HasPrefix(got, want) }
		if got := all(t, conn); !slices.EqualFunc(got, c.want, same) {
			t.Errorf("%s: received %q, want %q", c.what, got, c.want)
		}
		if got := errorsIn(t, out.lines()[len(c.says):]); got != c.answers {
			t.Errorf("%s: answered %q, want %q", c.what, got, c.answers)
		}
	}
}

// answers returns "ID CODE" of each line that was written.
func answers(t *testing.T, out *output) string {
	t.Helper()
	return errorsIn(t, out.lines())
}

func errorsIn(t *testing.T, lines []string) string {
	t.Helper()
	var list []string
	for _, line := range lines {
		m := parse(t, line)
		list = append(list, fmt.Sprintf("%s %s", m.ID(), m.Lookup("error", "code")))
	}
	return strings.Join(list, ", ")
}

// ST5, LI9, LI12, J7.
func TestBatch(t *testing.T) {
	yes := func() bool { return true }
	no := func() bool { return false }
	two := "[" + ping + " , " + note + "]"
	arrayOf := func(n int) string { return "[" + note + strings.Repeat(","+note, n-1) + "]" }
	many := arrayOf(maxBatch + 1)
	initialize := `{"jsonrpc":"2.0","id":0,"method":"initialize"}`
	for _, c := range []struct {
		name    string
		opts    Options
		in      string
		want    []string
		answers string
	}{
		{"server", Options{}, two, []string{ping, note}, ""},
		{"server, many", Options{}, many, slices.Repeat([]string{note}, maxBatch+1), ""},
		{"server, as many as there may be", Options{}, arrayOf(jsonrpc.MaxServerBatch), slices.Repeat([]string{note}, jsonrpc.MaxServerBatch), ""},
		{"server, too many", Options{}, arrayOf(jsonrpc.MaxServerBatch + 1), nil, ""},
		{"server, one invalid", Options{}, "[" + ping + ",1,[]," + note + "]", []string{ping, note}, ""},
		{"client", Options{Peer: Client, AcceptBatch: yes}, two, []string{ping, note}, ""},
		{"client, one invalid", Options{Peer: Client, AcceptBatch: yes}, "[" + ping + `,1,{"id":3,"jsonrpc":"2.0"}]`, []string{ping}, "null -32600, 3 -32600"},
		{"client, empty", Options{Peer: Client, AcceptBatch: yes}, "[]", nil, "null -32600"},
		{"client, too many", Options{Peer: Client, AcceptBatch: yes}, many, nil, "null -32600"},
		{"client, initialize", Options{Peer: Client, AcceptBatch: yes}, "[" + initialize + "," + note + "]", []string{note}, "0 -32600"},
		{"client, not negotiated", Options{Peer: Client, AcceptBatch: no}, two, nil, "null -32600"},
		{"client, by default", Options{Peer: Client}, two, nil, "null -32600"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out output
			conn := reading(t, strings.NewReader(c.in+"\n"+pong+"\n"), &out, c.opts)
			if got := all(t, conn); !slices.Equal(got, append(c.want, pong)) {
				t.Errorf("received %q, want %q and what stands behind the array", got, c.want)
			}
			if got := answers(t, &out); got != c.answers {
				t.Errorf("answered %q, want %q", got, c.answers)
			}
		})
	}
}

// J9: what is too long is not kept, but whoever waits for it hears of it.
func TestTooLong(t *testing.T) {
	const limit = 100_000
	const limited = "is longer than 100000 bytes, which is the limit (--max-message-size)"
	pad := strings.Repeat("x", 10*limit)
	for _, c := range []struct {
		name, in   string
		peer       PeerRole
		receives   string // "ID CODE TEXT" of an error in its place
		isAnswered string
	}{
		{"answer of a server", `{"jsonrpc":"2.0","id":7,"result":{"pad":"` + pad + `"}}`, Server, "7 -32603 the server's answer " + limited, ""},
		{"answer of a server, id last", `{"jsonrpc":"2.0","result":{"pad":"` + pad + `"},"id":7}`, Server, "7 -32603 the server's answer " + limited, ""},
		{"request of a server", `{"jsonrpc":"2.0","id":7,"method":"x","params":{"pad":"` + pad + `"}}`, Server, "", "7 -32600"},
		{"request of a server, id last", `{"jsonrpc":"2.0","method":"x","params":{"pad":"` + pad + `"},"id":"a"}`, Server, "", `"a" -32600`},
		{"notification of a server", `{"jsonrpc":"2.0","method":"x","params":{"pad":"` + pad + `"}}`, Server, "", ""},
		{"notification of a server with the id null", `{"jsonrpc":"2.0","id":null,"method":"x","params":{"pad":"` + pad + `"}}`, Server, "", ""},
		{"log of a server", `{"id":1.5,"method":"GET","text":"` + pad + `"}`, Server, "", ""},
		{"noise of a server", pad, Server, "", ""},
		{"request of a client", `{"jsonrpc":"2.0","id":7,"method":"x","params":{"pad":"` + pad + `"}}`, Client, "", "7 -32600"},
		{"notification of a client", `{"jsonrpc":"2.0","method":"x","params":{"pad":"` + pad + `"}}`, Client, "", ""},
		{"answer of a client", `{"jsonrpc":"2.0","id":7,"result":{"pad":"` + pad + `"}}`, Client, "7 -32603 the client's answer " + limited, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n noise
				var out output
				conn := reading(t, strings.NewReader(c.in+"\n"+pong+"\n"), &out,
					Options{Peer: c.peer, MaxMessageSize: limit, OnNoise: n.hook})
				got := all(t, conn)
				if c.receives != "" && len(got) > 0 {
					m := parse(t, got[0])
					text, _ := jsonrpc.Text(m.Lookup("error", "message"))
					if s := fmt.Sprintf("%s %s %s", m.ID(), m.Lookup("error", "code"), text); s != c.receives {
						t.Errorf("received %s, want %s", got[0], c.receives)
					}
					got = got[1:]
				}
				if !slices.Equal(got, []string{pong}) {
					t.Errorf("received %.200q, want what stands behind it", got)
				}
				synctest.Wait() // a server is answered while reading goes on
				if a := answers(t, &out); a != c.isAnswered || a != "" && !strings.Contains(out.lines()[0], `"the message `+limited+`"`) {
					t.Errorf("answered %q, %q, want %q", a, out.lines(), c.isAnswered)
				}
				if !slices.Equal(n.sizes, []int{len(c.in)}) {
					t.Errorf("reported sizes %d, want %d", n.sizes, len(c.in))
				}
			})
		})
	}
}

// A Sink may wait: closing the Conn meanwhile ends that, and does not wait for it.
func TestCloseWhileSinkWaits(t *testing.T) {
	client, server := pipes(t, Options{}, Options{})
	for _, text := range []string{ping, pong} {
		bridgetest.Must(t, client.Send(t.Context(), parse(t, text)))
	}
	var got []string
	taking, leave, over := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		over <- server.Receive(t.Context(), bridgetest.SinkFunc(func(ctx context.Context, m jsonrpc.Message) error {
			if got = append(got, string(m.Bytes())); len(got) == 1 {
				return nil
			}
			close(taking)
			<-ctx.Done()
			<-leave
			return ctx.Err()
		}))
	}()
	<-taking
	if !server.in.mu.TryLock() {
		t.Fatal("the closers of a child and of a socket would wait")
	}
	server.in.mu.Unlock()
	server.Close(nil)
	close(leave)
	if err := <-over; err != io.ErrClosedPipe {
		t.Errorf("Receive returned %v", err)
	}
	if !slices.Equal(got, []string{ping, pong}) {
		t.Errorf("the sink was given %q", got)
	}
}

// A Sink may close the Conn that it receives from.
func TestSinkCloses(t *testing.T) {
	client, server := pipes(t, Options{}, Options{})
	bridgetest.Must(t, client.Send(t.Context(), parse(t, ping)))
	err := server.Receive(t.Context(), bridgetest.SinkFunc(func(context.Context, jsonrpc.Message) error { return server.Close(nil) }))
	if err != io.ErrClosedPipe {
		t.Errorf("Receive returned %v", err)
	}
}

// A message that a Sink refuses is the first of the next Receive, also one of a batch.
func TestRefusedIsKept(t *testing.T) {
	c := reading(t, strings.NewReader("["+ping+","+note+"]\n"+pong+"\n"), io.Discard, Options{})
	refusal := errors.New("not now")
	var got []string
	for _, take := range []int{0, 0, 1, 0, 2} {
		err := c.Receive(t.Context(), bridgetest.SinkFunc(func(_ context.Context, m jsonrpc.Message) error {
			if take--; take < 0 {
				return refusal
			}
			got = append(got, string(m.Bytes()))
			return nil
		}))
		if take < 0 && err != refusal || take == 0 && err != io.EOF {
			t.Fatalf("Receive = %v after %q", err, got)
		}
	}
	if want := []string{ping, note, pong}; !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
}

// A message that was refused is offered again even if everything ends meanwhile.
func TestRefusedIsOffered(t *testing.T) {
	c := reading(t, strings.NewReader(ping+"\n"+pong+"\n"), io.Discard, Options{})
	if _, err := bridge.First(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var got []string
	err := c.Receive(ctx, bridgetest.SinkFunc(func(_ context.Context, m jsonrpc.Message) error {
		got = append(got, string(m.Bytes()))
		return nil
	}))
	if err != context.Canceled || !slices.Equal(got, []string{ping}) {
		t.Errorf("Receive = %v after %q", err, got)
	}
}

// brokenAfter is a stream that breaks once it has taken so many bytes.
type brokenAfter int

func (b *brokenAfter) Write(p []byte) (int, error) {
	n := min(len(p), int(*b))
	if *b -= brokenAfter(n); n < len(p) {
		return n, io.ErrClosedPipe
	}
	return n, nil
}

// A message after whose Send there is an error may be sent to another peer. So there is none if this peer has got
// all but the line feed: it may have read the message.
func TestSendThatBreaks(t *testing.T) {
	for _, size := range []int{len(pong), 200_000} {
		m := benchMessage(size)
		length := brokenAfter(len(m.Bytes()))
		for short, wantErr := range map[brokenAfter]bool{length: true, 1: true, 0: false} {
			left := length - short
			c := reading(t, strings.NewReader(""), &left, Options{})
			if err := c.Send(t.Context(), m); (err != nil) != wantErr {
				t.Errorf("%d of %d bytes were written: Send = %v", length-short, length, err)
			}
		}
	}
}

// stuckAfter is a stream that takes so many bytes, and then nothing until its deadline.
type stuckAfter struct {
	left    int
	stuck   chan struct{} // closed when it takes nothing more
	expired chan struct{} // a deadline puts an element into it
}

func (s *stuckAfter) Write(p []byte) (int, error) {
	n := min(len(p), s.left)
	if s.left -= n; n == len(p) {
		return n, nil
	}
	close(s.stuck)
	<-s.expired
	return n, os.ErrDeadlineExceeded
}

func (s *stuckAfter) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() {
		select {
		case s.expired <- struct{}{}:
		default:
		}
	}
	return nil
}

// The same where the end of its ctx breaks a Send off. The Conn ends then, so the peer sees the end of the stream
// instead of the line feed.
func TestSendThatIsBrokenOff(t *testing.T) {
	for _, size := range []int{len(pong), 200_000} {
		m := benchMessage(size)
		for short, wantErr := range map[int]bool{1: true, 0: false} {
			w := &stuckAfter{left: len(m.Bytes()) - short, stuck: make(chan struct{}), expired: make(chan struct{}, 1)}
			c := reading(t, strings.NewReader(""), w, Options{})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-w.stuck
				cancel()
			}()
			if err := c.Send(ctx, m); errors.Is(err, ErrCutOff) != wantErr || (err != nil) != wantErr {
				t.Errorf("all but %d bytes of %d were written: Send = %v", short+1, size+1, err)
			}
			if err := c.Send(t.Context(), m); !errors.Is(err, ErrCutOff) {
				t.Errorf("the next Send = %v", err)
			}
		}
	}
}
