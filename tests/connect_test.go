package tests

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestConnectKeepsBytes: what the client writes reaches the server byte for
// byte, and the server's answers, JSON or SSE, reach the client so.
func TestConnectKeepsBytes(t *testing.T) {
	t.Parallel()
	for _, version := range revisions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t)
			note := `{"params":` + tricky + `,"method":"notifications/message","jsonrpc":"2.0"}`
			u.answer = func(w http.ResponseWriter, r *http.Request, body string) {
				if strings.Contains(body, `"json"`) {
					echo(w, r, body)
					return
				}
				_, id := envelope(body)
				event := sse(w)
				event("data: %s", note)
				event("id: 1\nevent: message\ndata: {\"result\":%s,\"id\":%s,\"jsonrpc\":\"2.0\", \"x\":[ ]}", tricky, id)
			}
			p := connect(t, u.URL)
			p.handshake(version)
			for _, id := range spelled {
				request := fmt.Sprintf(`{"params":%s,"jsonrpc":"2.0","x-unknown":1.50,"method":"json","id":%s}`, tricky, id)
				p.send(request)
				if got, want := p.line(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, tricky); got != want {
					t.Errorf("JSON answer:\n got %s\nwant %s", got, want)
				}
				if got := u.bodies(isMethod("json")); got[len(got)-1] != request {
					t.Errorf("the server read\n%s, want\n%s", got[len(got)-1], request)
				}
				p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"sse"}`, id))
				if got := p.line(); got != note {
					t.Errorf("notification:\n got %s\nwant %s", got, note)
				}
				if got, want := p.line(), fmt.Sprintf(`{"result":%s,"id":%s,"jsonrpc":"2.0", "x":[ ]}`, tricky, id); got != want {
					t.Errorf("SSE answer:\n got %s\nwant %s", got, want)
				}
			}
		})
	}
}

// TestConnectPrettyPrinted: ST1. A pretty-printed answer is one line for the
// client, with the strings untouched.
func TestConnectPrettyPrinted(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	u.answer = func(w http.ResponseWriter, _ *http.Request, body string) {
		if strings.Contains(body, `"json"`) {
			reply(w, "{\r\n  \"jsonrpc\": \"2.0\",\n\t\"id\": 1,\n  \"result\": {\n    \"s\": \"a\\nb  c\",\n    \"n\": 1.0\n  }\n}\n")
			return
		}
		sse(w)("data: {\"jsonrpc\": \"2.0\",\ndata: \"id\": 1,\ndata:   \"result\": {\"s\": \"a\\nb  c\", \"n\": 1.0}}")
	}
	p := connected(t, u)
	for _, method := range []string{"json", "sse"} {
		p.send(`{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`)
		line := p.line()
		if !strings.HasPrefix(line, "{") || !strings.HasSuffix(line, "}") || !strings.Contains(line, `"a\nb  c"`) || !strings.Contains(line, "1.0") {
			t.Errorf("%s: the client read the line %q", method, line)
		}
	}
}

// TestConnectBigMessage: 30 MB cross the bridge both ways unchanged.
func TestConnectBigMessage(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	u.answer = func(w http.ResponseWriter, _ *http.Request, body string) {
		_, params, _ := strings.Cut(body, `"params":`)
		reply(w, `{"jsonrpc":"2.0","id":1,"result":`+params)
	}
	p := connected(t, u)
	params := big(30 << 20)
	go io.WriteString(p.Stdin, `{"jsonrpc":"2.0","id":1,"method":"echo","params":`+params+"}\n")
	if got, want := p.line(), `{"jsonrpc":"2.0","id":1,"result":`+params+`}`; got != want {
		t.Errorf("a message of %d bytes came back as another one of %d", len(want), len(got))
	}
}

// TestConnectManyNotifications: 20,000 notifications and the result in one
// stream come in order, the result last; so too behind a bridge that serves.
func TestConnectManyNotifications(t *testing.T) {
	t.Parallel()
	const n = 20000
	read := func(t *testing.T, p *proc) {
		p.handshake("2025-11-25")
		p.send(progressCall("1", "progress", n))
		var msgs []string
		for range n + 1 {
			msgs = append(msgs, p.line())
		}
		checkProgress(t, msgs, "1", n)
	}
	t.Run("from a server", func(t *testing.T) {
		t.Parallel()
		u := newUpstream(t)
		u.answer = func(w http.ResponseWriter, _ *http.Request, _ string) {
			event := sse(w)
			for i := range n {
				event(`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t1","progress":%d}}`, i+1)
			}
			event(`data: {"jsonrpc":"2.0","id":1,"result":{"done":true}}`)
		}
		read(t, connect(t, u.URL))
	})
	t.Run("through both", func(t *testing.T) {
		t.Parallel()
		read(t, connect(t, serve(t, nil).url))
	})
}

// TestConnectDrains: ST8. After the end of stdin what is owed is still
// answered; then the session is deleted and the process ends with status 0.
func TestConnectDrains(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	ended := make(chan struct{})
	u.answer = func(w http.ResponseWriter, r *http.Request, body string) {
		<-ended
		echo(w, r, body)
	}
	p := connect(t, u.URL)
	for _, line := range []string{initialize("2025-11-25"), initialized,
		`{"jsonrpc":"2.0","id":1,"method":"echo","params":{"n":1}}`, `{"jsonrpc":"2.0","id":2,"method":"echo","params":{"n":2}}`} {
		p.send(line)
	}
	p.Stdin.Close()
	harness.WaitUntil(t, "the calls to reach the server", func() bool { return len(u.bodies(isMethod("echo"))) == 2 })
	close(ended)
	got := map[string]bool{p.line(): true, p.line(): true, p.line(): true}
	for i := 1; i <= 2; i++ {
		if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"n":%d}}`, i, i); !got[want] {
			t.Errorf("%q was not answered: %v", want, got)
		}
	}
	if line, err := p.readLine(); err != io.EOF {
		t.Errorf("after the answers came %q %v", line, err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
	if n := len(u.bodies(isHTTP(http.MethodDelete))); n != 1 {
		t.Errorf("%d DELETE requests, want 1", n)
	}
}

// TestConnectStops: SIGTERM deletes the session and ends with status 0, with
// a call in flight that is never answered.
func TestConnectStops(t *testing.T) {
	t.Parallel()
	for _, sig := range stopSignals {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t)
			u.answer = func(_ http.ResponseWriter, r *http.Request, _ string) { <-r.Context().Done() }
			p := connected(t, u, "--grace", "200ms")
			p.send(`{"jsonrpc":"2.0","id":1,"method":"hang"}`)
			harness.WaitUntil(t, "the call", func() bool { return len(u.bodies(isMethod("hang"))) == 1 })
			began := time.Now()
			p.signal(sig)
			if code := p.wait(); code != 0 {
				t.Errorf("exit status %d, want 0", code)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("the bridge took %v to stop", took)
			}
			if n := len(u.bodies(isHTTP(http.MethodDelete))); n != 1 {
				t.Errorf("%d DELETE requests, want 1", n)
			}
		})
	}
}

// TestConnectStdoutGone: nobody reads us any more: the process ends.
func TestConnectStdoutGone(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	r, w, err := os.Pipe()
	bridgetest.Must(t, err)
	p := startWith(t, harness.Options{Stdout: w}, bridgeBin, "connect", u.URL)
	p.send(initialize("2025-11-25"))
	buf := make([]byte, 1)
	if _, err := r.Read(buf); err != nil {
		t.Fatal(err)
	}
	r.Close()
	for range 3 {
		io.WriteString(p.Stdin, `{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`+"\n")
	}
	p.wait()
}

// TestConnectServerDownAtStart: calls get an error, not silence, and work once
// the server is up.
func TestConnectServerDownAtStart(t *testing.T) {
	t.Parallel()
	addr := bridgetest.FreeAddr(t)
	p := connect(t, "http://"+addr+"/mcp")
	p.send(strings.Replace(initialize("2025-11-25"), `"init"`, `"1"`, 1))
	if id, _, _ := errorOf(t, p.line()); id != `"1"` {
		t.Errorf("the error has id %s, want that of the request", id)
	}
	unstarted(t).listenOn(addr)
	for i := 2; ; i++ {
		id := fmt.Sprintf(`"%d"`, i)
		p.send(strings.Replace(initialize("2025-11-25"), `"init"`, id, 1))
		answer := p.line()
		if strings.Contains(answer, `"result"`) {
			break
		}
		if i == 50 {
			t.Fatalf("still %s", answer)
		}
	}
	p.send(initialized)
	p.send(`{"jsonrpc":"2.0","id":"after","method":"echo","params":{}}`)
	if got := p.line(); got != `{"jsonrpc":"2.0","id":"after","result":{}}` {
		t.Errorf("got %s", got)
	}
}

// TestConnectSessionLost: LE5. The server forgets the session: the client
// notices nothing, however many calls are in flight, and the bridge
// initializes once, with the client's own parameters.
func TestConnectSessionLost(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	p := connected(t, u)
	u.forget()
	const calls = 10
	for i := range calls {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"echo","params":{"n":%d}}`, i, i))
	}
	got := map[string]bool{}
	for range calls {
		got[p.line()] = true
	}
	for i := range calls {
		if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"n":%d}}`, i, i); !got[want] {
			t.Errorf("no %s in %v", want, got)
		}
	}
	inits := u.bodies(isMethod("initialize"))
	if len(inits) != 2 {
		t.Fatalf("%d initialize requests, want 2: %q", len(inits), inits)
	}
	if params := func(s string) string { _, p, _ := strings.Cut(s, `"params":`); return p }; params(inits[0]) != params(inits[1]) {
		t.Errorf("the second initialize is\n%s, the first was\n%s", inits[1], inits[0])
	}
	if n := len(u.bodies(isMethod("notifications/initialized"))); n != 2 {
		t.Errorf("%d notifications/initialized, want 2", n)
	}
}

// TestConnectServerRestart: the server goes away and comes back at the same
// address; calls meanwhile fail, calls afterwards work.
func TestConnectServerRestart(t *testing.T) {
	t.Parallel()
	addr := bridgetest.FreeAddr(t)
	u := unstarted(t)
	u.listenOn(addr)
	p := connected(t, u)
	u.CloseClientConnections()
	u.Close()
	p.send(`{"jsonrpc":"2.0","id":"down","method":"echo","params":{}}`)
	errorOf(t, p.line())
	unstarted(t).listenOn(addr)
	for i := 0; ; i++ {
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"echo","params":{}}`, i))
		answer := p.line()
		if answer == fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i) {
			return
		}
		if i == 50 {
			t.Fatalf("still %s", answer)
		}
	}
}

// TestConnectErrors: what is no JSON-RPC becomes an error that names it, with
// the request's id, and the next call works.
func TestConnectErrors(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	status, body := 0, ""
	u.answer = func(w http.ResponseWriter, r *http.Request, msg string) {
		if strings.Contains(msg, `"bad"`) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			io.WriteString(w, body)
			return
		}
		echo(w, r, msg)
	}
	p := connected(t, u)
	for _, c := range []struct {
		status int
		body   string
		want   string
	}{
		{401, "", "401"}, {403, "<html>go away</html>", "403"}, {500, "", "500"}, {502, "<html>", "502"}, {200, "<html>login</html>", "text/html"},
	} {
		status, body = c.status, c.body
		p.send(`{"jsonrpc":"2.0","id":9007199254740993,"method":"bad"}`)
		id, _, text := errorOf(t, p.line())
		if id != "9007199254740993" || !strings.Contains(text, c.want) {
			t.Errorf("status %d: id %s, error %s, want it to say %q", c.status, id, text, c.want)
		}
		if strings.Contains(text, "go away") || strings.Contains(text, "login") {
			t.Errorf("the error quotes the body: %s", text)
		}
		p.send(`{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`)
		if got := p.line(); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("after status %d: %s", c.status, got)
		}
	}
}

// TestConnectLogsProcess: the log says which process was started and how it has ended, and
// nothing of its arguments and environment.
func TestConnectLogsProcess(t *testing.T) {
	t.Parallel()
	p := start(t, nil, bridgeBin, "connect", "--log-level", "trace", "--name", "mine", "--env", "TOKEN=s3cret", "--", childBin, "-record", filepath.Join(t.TempDir(), "s3cret"))
	p.handshake("2025-11-25")
	p.send(`{"jsonrpc":"2.0","id":1,"method":"pid"}`)
	_, pid, _ := strings.Cut(p.line(), `"pid":`)
	pid = strings.TrimRight(pid, "}")
	p.Stdin.Close()
	p.wait()
	for _, want := range []string{
		`process started: server=mine session=s1 pid=` + pid + ` program=\S+\n`,
		`session opened: server=mine session=s1 transport=stdio client=\S+ version=\S+ revision=2025-11-25 pid=` + pid + `\n`,
		`process ended: server=mine session=s1 pid=` + pid + ` program=\S+ status="exit status 0" asked=true after=\S+\n`,
		`session ended: server=mine session=s1 after=\S+ calls=2 how="the client has gone"\n`,
	} {
		if !regexp.MustCompile(want).MatchString(p.Log()) {
			t.Errorf("the log has no line like %s:\n%s", want, p.Log())
		}
	}
	if strings.Contains(p.Log(), "s3cret") {
		t.Error("the log tells the secret")
	}
}
