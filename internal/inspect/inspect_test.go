package inspect

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// started is an Inspector of a bridge in which the test says what happens.
type started struct {
	*Inspector
	seen *observe.Observer
	ring *trace.Ring
	log  *strings.Builder

	waiting []observe.WaitingCall
}

func start(t *testing.T) *started {
	t.Helper()
	var seen observe.Observer
	redactor, err := redact.New(redact.Options{Secrets: []string{canary}})
	bridgetest.Must(t, err)
	s := &started{seen: &seen, ring: trace.NewRing(trace.RingOptions{MaxRecords: 100}), log: new(strings.Builder)}
	s.Inspector = New(Options{
		Name: "test", Observer: &seen, Recorder: trace.NewRecorder(&seen, redactor), Ring: s.ring,
		Servers:      func() []Server { return []Server{{Name: "files", Ready: true, LastError: "401 for " + canary}} },
		Restart:      func(string) error { return nil },
		WaitingCalls: func() []observe.WaitingCall { return s.waiting },
		Level:        func() hclog.Level { return hclog.Info },
		SetLevel:     func(hclog.Level) {},
		Logger:       hclog.New(&hclog.LoggerOptions{Output: s.log}),
	})
	t.Cleanup(s.Close)
	return s
}

const canary = "canary-8d1f0c55" // a secret that the bridge knows

// No view has a secret that a trace would not have.
func TestViewsHaveNoSecrets(t *testing.T) {
	s := start(t)
	s.seen.Event(observe.Note{Server: "files", Code: "C3", Text: "it says " + canary})
	s.seen.Event(observe.Note{Server: "files", Code: "C3", Text: strings.Repeat("x", 1995) + canary}) // where a note is cut
	s.seen.Event(observe.Refused{Server: "files", Method: "GET", Path: "/" + canary, Reason: "no " + canary})
	s.seen.Event(observe.ProcessStarted{Server: "files", PID: 7, Program: "server"})
	s.seen.Event(observe.ProcessEnded{Server: "files", PID: 7, Err: errors.New("exit status 1: " + canary)})
	for _, path := range []string{"servers", "sessions", "processes", "notes"} {
		w := httptest.NewRecorder()
		s.Control().ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/"+path, nil))
		if strings.Contains(w.Body.String(), canary[:5]) || path != "sessions" && !strings.Contains(w.Body.String(), "files") {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
}

// Of a process that runs the API says what it uses, where the system tells.
func TestUsage(t *testing.T) {
	s := start(t)
	s.seen.Event(observe.ProcessStarted{Server: "files", PID: os.Getpid(), Program: "server"})
	s.seen.Event(observe.ProcessStarted{Server: "files", PID: 1 << 30, Program: "gone"})
	s.seen.Event(observe.ProcessEnded{Server: "files", PID: 1 << 30})
	w := httptest.NewRecorder()
	s.Control().ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/processes", nil))
	var got struct {
		Processes []struct {
			PID   int
			Usage *struct{ CPUSeconds, ResidentBytes float64 }
		}
	}
	bridgetest.Must(t, json.Unmarshal(w.Body.Bytes(), &got))
	if len(got.Processes) != 2 || got.Processes[0].PID != os.Getpid() || got.Processes[1].Usage != nil {
		t.Fatalf("%s", w.Body)
	}
	if u := got.Processes[0].Usage; runtime.GOOS == "linux" && (u == nil || u.CPUSeconds < 0 || u.ResidentBytes < 1<<20) || runtime.GOOS != "linux" && u != nil {
		t.Errorf("%s", w.Body)
	}
}

const (
	viewToken = "view-token-0123456789"
	actToken  = "act-token-0123456789"
)

func tokens(t *testing.T) *Tokens {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	bridgetest.Must(t, os.WriteFile(file, []byte("# who may look\nview "+viewToken+" ann\nact "+actToken+" bob\n"), 0o600))
	all, err := LoadTokens(file)
	bridgetest.Must(t, err)
	return all
}

// Who may do what: by token, by origin, by host.
func TestAccess(t *testing.T) {
	s := start(t)
	page := s.Page(tokens(t), true)
	for _, c := range []struct {
		name, method, path, token string
		header                    map[string]string
		host                      string
		want                      int
	}{
		{name: "the page itself", path: "/", want: 200},
		{name: "its script", path: "/app.js", want: 200},
		{name: "the page by a link of another site", path: "/", header: map[string]string{"Sec-Fetch-Site": "cross-site"}, want: 403},
		{name: "the page, typed", path: "/", header: map[string]string{"Sec-Fetch-Site": "none"}, want: 200},
		{name: "no token", path: "/api/v1/servers", want: 401},
		{name: "a wrong token", path: "/api/v1/servers", token: "view-token-012345678", want: 401},
		{name: "a token that may view", path: "/api/v1/servers", token: viewToken, want: 200},
		{name: "a token that may view, in a browser", path: "/api/v1/servers", token: viewToken, header: map[string]string{"Sec-Fetch-Site": "same-origin"}, want: 200},
		{name: "another origin", path: "/api/v1/servers", token: viewToken, header: map[string]string{"Origin": "http://evil.example"}, want: 403},
		{name: "another port of this machine", path: "/api/v1/servers", token: viewToken, header: map[string]string{"Origin": "http://127.0.0.1:9"}, want: 403},
		{name: "no origin", path: "/api/v1/servers", token: viewToken, header: map[string]string{"Origin": "null"}, want: 403},
		{name: "the own origin", path: "/api/v1/servers", token: viewToken, header: map[string]string{"Origin": "http://127.0.0.1:7000"}, want: 200},
		{name: "another site", path: "/api/v1/servers", token: viewToken, header: map[string]string{"Sec-Fetch-Site": "cross-site"}, want: 403},
		{name: "the same site", path: "/api/v1/servers", token: viewToken, header: map[string]string{"Sec-Fetch-Site": "same-site"}, want: 403},
		{name: "a name that has come to mean this machine", path: "/api/v1/servers", token: viewToken, host: "evil.example:7000", want: 403},
		{name: "the page by such a name", path: "/", host: "evil.example:7000", want: 403},
		{name: "localhost", path: "/api/v1/servers", token: viewToken, host: "localhost:7000", want: 200},
		{name: "acting without a token", method: "POST", path: "/api/v1/servers/files/restart", want: 401},
		{name: "acting with a token that may view", method: "POST", path: "/api/v1/servers/files/restart", token: viewToken, want: 403},
		{name: "acting", method: "POST", path: "/api/v1/servers/files/restart", token: actToken, want: 204},
		{name: "acting from another site", method: "POST", path: "/api/v1/servers/files/restart", token: actToken, header: map[string]string{"Sec-Fetch-Site": "cross-site"}, want: 403},
		{name: "acting by GET", path: "/api/v1/servers/files/restart", token: actToken, want: 405},
		{name: "a profile with a token that may view", path: "/debug/pprof/heap", token: viewToken, want: 403},
		{name: "a profile without a token", path: "/debug/pprof/", want: 401},
		{name: "a profile", path: "/debug/pprof/heap", token: actToken, want: 200},
		{name: "arguments, which may hold secrets", path: "/debug/pprof/cmdline", token: actToken, want: 404},
		{name: "no such session", method: "POST", path: "/api/v1/sessions/s1/end", token: actToken, want: 404},
		{name: "no such process", method: "POST", path: "/api/v1/processes/1/kill", token: actToken, want: 404},
	} {
		r := httptest.NewRequest(c.method, "http://127.0.0.1:7000"+c.path, nil)
		if c.host != "" {
			r.Host = c.host
		}
		for name, value := range c.header {
			r.Header.Set(name, value)
		}
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: status %d, want %d: %s", c.name, w.Code, c.want, w.Body)
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "require-trusted-types-for 'script'") || !strings.HasPrefix(csp, "default-src 'none'") {
			t.Errorf("%s: the policy is %q", c.name, csp)
		}
	}
	if !strings.Contains(s.log.String(), "server=files by=bob") {
		t.Errorf("the log does not say who has restarted the server:\n%s", s.log)
	}
}

// An action that could not be taken is not told of as if it were.
func TestFailedAction(t *testing.T) {
	s := start(t)
	s.opts.Restart = func(string) error { return errors.New("there is no such server") }
	w := httptest.NewRecorder()
	s.Control().ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/servers/none/restart", nil))
	if w.Code != http.StatusConflict || s.log.Len() > 0 {
		t.Errorf("status %d, and the log has %s", w.Code, s.log)
	}
}

func TestTokenFiles(t *testing.T) {
	for text, wrong := range map[string]string{
		"":                          "has no token",
		"look 0123456789012345":     "line 1",
		"view short":                "at least 16",
		"\n# x\nact":                "line 3",
		"act 0123456789012345 a b ": "line 1",
	} {
		file := filepath.Join(t.TempDir(), "tokens")
		bridgetest.Must(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := LoadTokens(file); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v, want %q", text, err, wrong)
		}
	}
}

// open opens the stream, and returns what reads its events.
func open(t *testing.T, url, last string) (events func() (id string, lines []string), end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", url+"/api/v1/stream", nil)
	bridgetest.Must(t, err)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	bridgetest.Must(t, err)
	in := bufio.NewReader(resp.Body)
	events = func() (id string, lines []string) {
		for {
			line, err := in.ReadString('\n')
			bridgetest.Must(t, err)
			if rest, is := strings.CutPrefix(line, "id: "); is {
				id = strings.TrimSpace(rest)
			}
			if rest, is := strings.CutPrefix(line, "data: "); is {
				lines = append(lines, rest)
			}
			if line == "\n" {
				return id, lines
			}
		}
	}
	return events, func() { cancel(); _ = resp.Body.Close() }
}

// Nothing is recorded until somebody looks; a viewer that comes back goes on where it was.
func TestStreamResumes(t *testing.T) {
	s := start(t)
	web := httptest.NewServer(s.Control())
	defer web.Close()
	defer s.Close()
	say := func(text string) { s.seen.Event(observe.Note{Server: "files", Code: "C3", Text: text}) }
	say("before anybody looks")
	events, end := open(t, web.URL, "")
	events() // it is there: from now on records are kept
	_, keep := open(t, web.URL, "")
	defer keep()
	say("one")
	id, lines := events()
	if len(lines) != 1 || !strings.Contains(lines[0], `"text":"one"`) {
		t.Fatalf("the stream has %q", lines)
	}
	end()
	say("two")
	events, end = open(t, web.URL, id)
	defer end()
	for {
		if _, lines = events(); len(lines) > 0 {
			break
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], `"text":"two"`) {
		t.Errorf("after a break the stream has %q", lines)
	}
}

// A viewer gets the requests first that wait already, but for those whose records follow; one that goes on
// gets none again. The list of sessions counts them.
func TestStreamBeginsWithWhatWaits(t *testing.T) {
	s := start(t)
	session := s.seen.OpenSession("files", "http")
	s.seen.Event(observe.SessionOpened{Session: session})
	wait := func(id int64, ago time.Duration, told bool, dir observe.Direction) {
		s.waiting = append(s.waiting, observe.WaitingCall{Server: "files", Session: session, Method: "tools/call", ID: jsonrpc.IntID(id), Dir: dir, Since: time.Now().Add(-ago), Told: told})
	}
	wait(1, time.Minute, false, observe.ToServer)
	wait(2, time.Second, true, observe.ToServer)
	wait(3, -time.Hour, true, observe.ToServer)
	wait(4, time.Second, false, observe.ToClient)
	web := httptest.NewServer(s.Control())
	defer web.Close()
	defer s.Close()
	events, end := open(t, web.URL, "")
	id, _ := events()
	_, lines := events()
	end()
	var got []string
	for _, line := range lines {
		r, err := trace.Parse([]byte(line))
		bridgetest.Must(t, err)
		got = append(got, fmt.Sprintln(r.Kind, r.Session, r.Hop, r.Dir, r.Method, r.ID, r.Earlier, r.Duration > time.Minute))
		if r.ID == jsonrpc.IntID(1) && time.Since(r.Time) < time.Minute {
			t.Errorf("it began at %v", r.Time)
		}
	}
	if want := []string{"request s1 down c2s tools/call 1 true true\n", "request s1 down c2s tools/call 2 true false\n", "request s1 down s2c tools/call 4 true false\n"}; !slices.Equal(got, want) {
		t.Errorf("the stream begins with\n%q\nwant\n%q", got, want)
	}
	_, keep := open(t, web.URL, "")
	defer keep()
	events, end = open(t, web.URL, id)
	defer end()
	events()
	s.seen.Event(observe.Note{Server: "files", Code: "C3", Text: "next"})
	for lines = nil; len(lines) == 0; {
		_, lines = events()
	}
	if len(lines) != 1 || !strings.Contains(lines[0], `"text":"next"`) {
		t.Errorf("a stream that goes on has %q", lines)
	}
	w := httptest.NewRecorder()
	s.Control().ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/sessions", nil))
	if !strings.Contains(w.Body.String(), `"waiting":3`) {
		t.Errorf("the sessions are %s", w.Body)
	}
}

// A second viewer gets a request once that has just come, and that waits: its record may not be made yet. Nor does a
// download of the records lack it.
func TestRequestThatHasJustCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		release, _ := s.addViewer()
		session := s.seen.OpenSession("files", "http")
		get := func(path string, during func()) (requests int) {
			ctx, cancel := context.WithCancel(t.Context())
			w := httptest.NewRecorder()
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.Control().ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/"+path, nil))
			}()
			during()
			cancel()
			<-done
			return strings.Count(w.Body.String(), `"kind":"request"`)
		}
		come := func(id int64) {
			at := time.Now()
			s.opts.Recorder.Message(&observe.Passed{Session: session, Hop: observe.Downstream, Dir: observe.ToServer, Message: jsonrpc.NewRequest(jsonrpc.IntID(id), "tools/call", nil)})
			s.waiting = append(s.waiting, observe.WaitingCall{Server: "files", Session: session, Method: "tools/call", ID: jsonrpc.IntID(id), Dir: observe.ToServer, Since: at, Told: true})
		}
		come(1)
		if n := get("stream", func() { time.Sleep(time.Second) }); n != 1 {
			t.Errorf("a viewer gets a request %d times", n)
		}
		n := get("stream", func() {
			synctest.Wait()
			time.Sleep(time.Second)
			come(2)
			time.Sleep(time.Second)
		})
		if n != 2 {
			t.Errorf("a viewer gets %d requests, want the one that waits and the next one", n)
		}
		come(3)
		if n := get("records", func() { synctest.Wait() }); n != 3 {
			t.Errorf("the records have %d requests, want 3", n)
		}
		release()
		s.opts.Recorder.Wait()
	})
}

// A viewer that is too slow is told what it has missed, and the traffic does not wait.
func TestSlowViewer(t *testing.T) {
	s := start(t)
	web := httptest.NewServer(s.Control())
	defer web.Close()
	defer s.Close()
	_, keep := open(t, web.URL, "")
	defer keep()
	events, end := open(t, web.URL, "")
	id, _ := events()
	end()
	for i := range 500 { // the ring has 100
		s.seen.Event(observe.Note{Server: "files", Code: "C3", Text: fmt.Sprint(i)})
	}
	s.opts.Recorder.Wait()
	events, end = open(t, web.URL, id)
	defer end()
	var lines []string
	for len(lines) < 101 {
		_, more := events()
		lines = append(lines, more...)
	}
	r, err := trace.Parse([]byte(lines[0]))
	bridgetest.Must(t, err)
	if r.Kind != trace.Gap || r.Lost != 400 || !strings.Contains(lines[100], `"text":"499"`) {
		t.Errorf("the stream begins with %s and ends with %s", lines[0], lines[100])
	}
}

// The last viewer that goes ends the recording.
func TestNobodyLooks(t *testing.T) {
	s := start(t)
	one, ok := s.addViewer()
	if !ok || !s.seen.IsWatched() {
		t.Fatal("nothing is recorded for a viewer")
	}
	two, _ := s.addViewer()
	one()
	one()
	if !s.seen.IsWatched() {
		t.Error("nothing is recorded for the second viewer")
	}
	two()
	if s.seen.IsWatched() {
		t.Error("messages are recorded, and nobody looks")
	}
	for range maxViewers {
		_, ok = s.addViewer()
		bridgetest.Must(t, map[bool]error{true: nil, false: io.EOF}[ok])
	}
	if _, ok := s.addViewer(); ok {
		t.Error("there is no bound on viewers")
	}
}

// A bridge that starts removes the sockets of those that were killed, and of nobody else; bridges that
// start at the same time leave each other's alone.
func TestControlOfTheKilled(t *testing.T) {
	dir, err := os.MkdirTemp("", "c")
	bridgetest.Must(t, err)
	defer os.RemoveAll(dir)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	dir = filepath.Join(dir, "mcp-bridge")
	bridgetest.Must(t, os.Mkdir(dir, 0o700))
	socket := func(name string, dead bool) string {
		path := filepath.Join(dir, name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		bridgetest.Must(t, err)
		if dead {
			l.SetUnlinkOnClose(false)
			bridgetest.Must(t, l.Close())
		} else {
			t.Cleanup(func() { _ = l.Close() })
		}
		return path
	}
	file := filepath.Join(dir, "4.sock") // connect refuses it, too
	bridgetest.Must(t, os.WriteFile(file, nil, 0o600))
	stay := []string{socket("2.sock", false), socket("other.sock", true), file}
	killed := socket("1.sock", true)
	s := start(t)
	stop, err := ListenControl(s.Control())
	bridgetest.Must(t, err)
	stop()
	if _, err := os.Lstat(killed); err == nil {
		t.Error("the socket of a killed process is still there")
	}
	for _, path := range stay {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}

	// Another bridge has made its socket and does not listen yet.
	unlock, ok := lock(dir, 0)
	if !ok {
		t.Fatal("the folder cannot be locked")
	}
	early := socket("3.sock", true)
	began := time.Now()
	stop, err = ListenControl(s.Control())
	bridgetest.Must(t, err)
	stop()
	unlock()
	if _, err := os.Lstat(early); err != nil && runtime.GOOS != "windows" {
		t.Error("the socket of a bridge that starts was removed")
	}
	t.Logf("a bridge that meets a locked folder starts after %v", time.Since(began))
}

// The control socket is the user's alone, is found, and is gone in the end; the socket of a
// process that was killed is removed.
func TestControl(t *testing.T) {
	dir, err := os.MkdirTemp("", "c")
	bridgetest.Must(t, err)
	defer os.RemoveAll(dir)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	s := start(t)
	began := time.Now()
	stop, err := ListenControl(s.Control())
	t.Logf("the control socket took %v", time.Since(began))
	bridgetest.Must(t, err)
	stale := filepath.Join(dir, "mcp-bridge", "1.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	bridgetest.Must(t, err)
	l.SetUnlinkOnClose(false)
	bridgetest.Must(t, l.Close())
	own := filepath.Join(dir, "mcp-bridge", fmt.Sprint(os.Getpid())+".sock")
	info, err := os.Stat(own)
	bridgetest.Must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has the mode %v", info.Mode())
	}
	all, err := List(t.Context())
	bridgetest.Must(t, err)
	if len(all) != 1 || all[0].PID != os.Getpid() || all[0].Name != "test" || all[0].Servers[0] != "files" || all[0].Right != "act" {
		t.Fatalf("the list is %+v", all)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("the socket of a killed process is still there")
	}
	resp, err := all[0].Get(t.Context(), "servers")
	bridgetest.Must(t, err)
	var servers struct{ Servers []Server }
	bridgetest.Must(t, json.NewDecoder(resp.Body).Decode(&servers))
	bridgetest.Must(t, resp.Body.Close())
	if len(servers.Servers) != 1 || servers.Servers[0].Name != "files" {
		t.Errorf("the servers are %+v", servers)
	}
	s.Close()
	stop()
	if _, err := os.Stat(own); err == nil {
		t.Error("the socket is still there")
	}
	bridgetest.Must(t, os.Chmod(filepath.Join(dir, "mcp-bridge"), 0o755))
	if _, err := ListenControl(s.Control()); err == nil {
		t.Error("a folder is used that others can look into")
	}
}

// All bridges are asked at once: one that hangs makes nobody wait for the others, too.
func TestListAsksAtOnce(t *testing.T) {
	dir, err := os.MkdirTemp("", "c")
	bridgetest.Must(t, err)
	defer os.RemoveAll(dir)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	dir = filepath.Join(dir, "mcp-bridge")
	bridgetest.Must(t, os.Mkdir(dir, 0o700))
	const bridges = 5
	var asked atomic.Int32
	all := make(chan struct{}) // closed when all have been asked
	for pid := range bridges {
		l, err := net.Listen("unix", filepath.Join(dir, strconv.Itoa(pid+1)+".sock"))
		bridgetest.Must(t, err)
		defer Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == bridges {
				close(all)
			}
			select {
			case <-all:
				reply(w, About{PID: pid + 1})
			case <-r.Context().Done():
			}
		}), 0)()
	}
	found, err := List(t.Context())
	if len(found) != bridges || err != nil {
		t.Errorf("%d of %d bridges answered, %v", len(found), bridges, err)
	}
}
