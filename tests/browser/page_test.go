// Package browser looks at the page of --inspect with Chromium.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const (
	viewToken = "view-token-0123456789"
	actToken  = "act-token-0123456789"
)

var program string // mcp-bridge, built by TestMain

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "mcp-bridge-browser")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "mcp-bridge")
	build := exec.Command("go", "build", "-o", program, "./cmd/mcp-bridge")
	build.Dir, build.Stderr = "../..", os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run is a bridge that runs, at the same addresses again if it is started again.
type run struct{ mcp, page, tokens string }

func newRun(t *testing.T) run {
	t.Helper()
	r := run{freeAddr(t), freeAddr(t), filepath.Join(t.TempDir(), "tokens")}
	must(t, os.WriteFile(r.tokens, []byte("view "+viewToken+"\nact "+actToken+"\n"), 0o600))
	return r
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// start starts the bridge. stop ends it, and may be called again.
func (r run) start(t *testing.T) (stop func()) {
	t.Helper()
	cmd := exec.Command(program, "serve", "--listen", r.mcp, "--inspect="+r.page, "--inspect-token-file", r.tokens, "--demo")
	stdin, err := cmd.StdinPipe() // its end ends the bridge
	must(t, err)
	must(t, cmd.Start())
	stop = func() { _ = stdin.Close(); _ = cmd.Wait() }
	t.Cleanup(stop)
	for range 500 {
		if c, err := net.Dial("tcp", r.page); err == nil {
			_ = c.Close()
			if c, err = net.Dial("tcp", r.mcp); err == nil {
				_ = c.Close()
				return stop
			}
		}
		pause(10 * time.Millisecond)
	}
	t.Fatal("the bridge does not listen")
	return nil
}

// post sends a message of a client.
func (r run) post(t *testing.T, session, message string) (id string) {
	t.Helper()
	req, err := http.NewRequest("POST", "http://"+r.mcp+"/mcp", strings.NewReader(message))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	must(t, err)
	return resp.Header.Get("Mcp-Session-Id")
}

func (r run) session(t *testing.T) string {
	t.Helper()
	return r.post(t, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"<script>pwned=1</script>","version":"1"}}}`)
}

// browser opens Chromium, or skips the test where there is none.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("TEST_CHROMIUM") != "" {
			t.Fatal(err)
		}
		t.Skip("chromium is not installed")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1300, 800),
		chromedp.Flag("host-resolver-rules", "MAP evil.example 127.0.0.1"))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	must(t, chromedp.Do(ctx, chromedp.Navigate("about:blank"))) // without a time-out, which would hold for the browser
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eval returns the value of JavaScript, or of the promise that it is.
func eval[T any](t *testing.T, ctx context.Context, script string) T {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAsValue, chromedp.EvalAwaitPromise))
	must(t, err)
	return value
}

// do evaluates JavaScript whose value does not matter.
func do(t *testing.T, ctx context.Context, script string) {
	t.Helper()
	eval[bool](t, ctx, "(() => { "+script+"; return true; })()")
}

// until waits until the page has a text somewhere.
func until(t *testing.T, ctx context.Context, text string) {
	t.Helper()
	quoted, _ := json.Marshal(text)
	var seen string
	for range 1000 {
		seen = eval[string](t, ctx, "document.body.innerText")
		if strings.Contains(seen, text) {
			return
		}
		pause(10 * time.Millisecond)
	}
	t.Fatalf("the page does not show %s, but\n%s", quoted, seen)
}

// untilMatch waits until the text of the page matches.
func untilMatch(t *testing.T, ctx context.Context, want *regexp.Regexp) {
	t.Helper()
	var seen string
	for range 1000 {
		if seen = eval[string](t, ctx, "document.body.innerText"); want.MatchString(seen) {
			return
		}
		pause(10 * time.Millisecond)
	}
	t.Fatalf("the page does not show %s, but\n%q", want, seen)
}

func (r run) open(t *testing.T, ctx context.Context, token string) {
	t.Helper()
	must(t, chromedp.Do(ctx, chromedp.Navigate("about:blank"), chromedp.Navigate("http://"+r.page+"/#token="+token)))
}

func click(t *testing.T, ctx context.Context, label string) {
	t.Helper()
	quoted, _ := json.Marshal(label)
	done := eval[bool](t, ctx, "(() => { const b = [...document.querySelectorAll('button')].find((b) => b.innerText.trim() === "+string(quoted)+"); b?.click(); return !!b; })()")
	if !done {
		t.Fatalf("there is no button %s", quoted)
	}
}

// A call is seen at both ends soon after it was made, a process can be killed, and the page
// finds the bridge again.
func TestLive(t *testing.T) {
	ctx := browser(t)
	r := newRun(t)
	stop := r.start(t)
	r.open(t, ctx, actToken)
	until(t, ctx, ": live")
	location := eval[string](t, ctx, "location.href")
	if strings.Contains(location, "token") {
		t.Errorf("the token stays in the address: %s", location)
	}
	click(t, ctx, "Messages")
	session := r.session(t)
	began := time.Now()
	r.post(t, session, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"<img src=x onerror=pwned=2>"}}}`)
	rows := "[...document.querySelectorAll('.row')].filter((r) => r.innerText.includes('tools/call') && r.innerText.includes('#7')).length"
	n := 0
	for n < 4 && time.Since(began) < 10*time.Second { // nobody loads the page anew
		n = eval[int](t, ctx, rows)
	}
	if took := time.Since(began); n < 4 {
		t.Errorf("%d records of the call after %v, want 4", n, took)
	} else {
		t.Logf("the call is there after %v", took)
	}
	do(t, ctx, "[...document.querySelectorAll('.row')].find((r) => r.innerText.includes('#7') && r.innerText.includes('→|')).click()")
	until(t, ctx, "server end")
	until(t, ctx, "<img src=x onerror=pwned=2>")
	click(t, ctx, "copy as curl")
	until(t, ctx, "--data-raw '{\"jsonrpc\":\"2.0\",\"id\":7,")
	command := eval[string](t, ctx, "document.querySelector('.command').textContent")
	if strings.Contains(command, session) || !strings.Contains(command, "MCP_SESSION_ID") || !strings.Contains(command, "-X 'POST'") {
		t.Errorf("the command is %s", command)
	}
	click(t, ctx, "replay")
	until(t, ctx, "mcp-bridge replay --allow-redacted --session 's")
	screenshots(t, ctx)
	if pwned := eval[string](t, ctx, "typeof pwned"); pwned != "undefined" {
		t.Error("a script of the wire has run")
	}
	do(t, ctx, "window.confirm = () => true")
	click(t, ctx, "Processes")
	until(t, ctx, "runs")
	usage := regexp.MustCompile(`\t\d+ %\t\d+(\.\d\d)? s\t\d+(\.\d)? MB\truns`) // the second time it is asked for, there is a percentage
	untilMatch(t, ctx, usage)
	click(t, ctx, "kill")
	until(t, ctx, "asked to")
	stop()
	until(t, ctx, "trying again")
	r.start(t)
	until(t, ctx, ": live")
}

// What has waited since before the page was opened is shown, once although the page is opened again, and can be cancelled.
func TestWhatWaits(t *testing.T) {
	ctx := browser(t)
	r := newRun(t)
	r.start(t)
	session := r.session(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.post(t, session, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":3600}}}`)
	}()
	r.open(t, ctx, actToken)
	until(t, ctx, ": live")
	for eval[int](t, ctx, `fetch("api/v1/servers", { headers: { Authorization: "Bearer `+actToken+`" } }).then((r) => r.json()).then((l) => l.servers[0].calls)`) != 1 {
		pause(10 * time.Millisecond)
	}
	for range 2 { // the second time, the bridge has been watched before
		r.open(t, ctx, actToken)
		click(t, ctx, "Messages")
		until(t, ctx, "tools/call #7 no answer yet, began earlier")
		pause(100 * time.Millisecond)
		if n := eval[int](t, ctx, "[...document.querySelectorAll('.row')].filter((r) => r.innerText.includes('#7') && r.innerText.includes('→|')).length"); n != 1 {
			t.Errorf("the request is there %d times", n)
		}
	}
	do(t, ctx, "[...document.querySelectorAll('.row')].find((r) => r.innerText.includes('began earlier')).click()")
	until(t, ctx, "came before anybody looked")
	click(t, ctx, "cancel")
	until(t, ctx, "tools/call #7 error -32603")
	<-done
}

// 100,000 records are filtered while somebody scrolls, and no task takes longer than 100 ms.
func TestManyRecords(t *testing.T) {
	ctx := browser(t)
	r := newRun(t)
	r.start(t)
	r.open(t, ctx, viewToken)
	until(t, ctx, ": live")
	click(t, ctx, "Messages")
	const script = `(async () => {
		const { store } = await import("/app.js");
		for (let i = 0; i < 100000; i += 500) {
			const lines = [];
			for (let k = i; k < i + 500; k++) lines.push(JSON.stringify({ v: 1, seq: 1e6 + k, ts: new Date(1.7e12 + k).toISOString(), srv: "files", ses: "s" + k % 9,
				hop: "down", dir: "c2s", kind: "notification", method: "notifications/message", size: 100, msg: { jsonrpc: "2.0", method: "notifications/message", params: { data: "line " + k } } }));
			store.add(lines);
			await new Promise((done) => setTimeout(done));
		}
		await new Promise((done) => setTimeout(done, 500));
		let longest = 0;
		const watch = new PerformanceObserver((all) => { for (const e of all.getEntries()) longest = Math.max(longest, e.duration); });
		watch.observe({ type: "longtask" });
		const input = document.querySelector("input[type=search]"), list = document.querySelector(".list");
		for (const text of ["9", "99", "line 99", "ses:s3", "ses:s3 line", "!ses:s3", "method:notifications/* 77", ""]) {
			input.value = text;
			input.dispatchEvent(new Event("input", { bubbles: true }));
			for (let i = 0; i < 15; i++) {
				list.scrollTop = (list.scrollTop + 30011) % list.scrollHeight;
				await new Promise(requestAnimationFrame);
			}
			await new Promise((done) => setTimeout(done, 300));
		}
		await new Promise((done) => setTimeout(done, 300));
		return JSON.stringify({ longest, shown: store.shown.length, rows: document.querySelectorAll(".row").length });
	})()`
	var text string
	var got struct {
		Longest     float64
		Shown, Rows int
	}
	for range 3 { // a busy machine makes tasks longer
		text = eval[string](t, ctx, script)
		must(t, json.Unmarshal([]byte(text), &got))
		if got.Longest <= 100 {
			break
		}
	}
	t.Logf("the longest task took %v ms", got.Longest)
	if got.Longest > 100 || got.Shown < 90_000 || got.Rows > 200 {
		t.Errorf("%s", text)
	}
}

// Of records that are too long together the page forgets the oldest ones, and no more than that.
func TestLongRecords(t *testing.T) {
	ctx := browser(t)
	r := newRun(t)
	r.start(t)
	r.open(t, ctx, viewToken)
	const script = `(async () => {
		const { Store } = await import("/store.js");
		const store = new Store(), text = "x".repeat(1e6);
		let most = 0, least = Infinity;
		for (let seq = 1; seq <= 300; seq++) {
			store.add([JSON.stringify({ seq, kind: "response", id: seq, raw: text })]);
			most = Math.max(most, store.all.length);
			if (seq > 100) least = Math.min(least, store.all.length);
		}
		return JSON.stringify([least > 80, most < 100, store.all.at(-1).v.seq, store.bySeq.size === store.all.length, store.early.size === store.all.length]);
	})()`
	if got := eval[string](t, ctx, script); got != "[true,true,300,true,true]" {
		t.Error(got)
	}
}

// A record that comes late, or takes the place of another one, while a filter is at work is shown once, in its place.
func TestFilterMeanwhile(t *testing.T) {
	ctx := browser(t)
	r := newRun(t)
	r.start(t)
	r.open(t, ctx, viewToken)
	const script = `(async () => {
		const { Store } = await import("/store.js");
		const store = new Store(), total = 522, seqs = (all) => all.map((r) => r.v.seq).join();
		const request = { kind: "request", ses: "s1", hop: "up", dir: "c2s", id: 1 };
		const add = (v) => store.add([JSON.stringify(v)]);
		for (let seq = 1; seq <= total; seq++) {
			if (seq === total - 30) add({ seq, earlier: true, ...request });
			else if (seq !== total - 20) add({ seq, kind: "note" });
		}
		let looked = 0;
		const done = store.filter(() => {
			if (++looked === 513) for (const begin = performance.now(); performance.now() < begin + 20;); // it pauses now
			return true;
		});
		const paused = looked === 513;
		add({ seq: total - 20, kind: "note" });
		add({ seq: total + 1, ...request });
		await done;
		return JSON.stringify([paused, store.all.length, seqs(store.all) === seqs(store.shown)]);
	})()`
	if got := eval[string](t, ctx, script); got != "[true,522,true]" {
		t.Error(got)
	}
}

// Who has no token, or may only view, or comes from elsewhere, is refused.
func TestRefused(t *testing.T) {
	ctx := browser(t)
	r := newRun(t)
	r.start(t)
	must(t, chromedp.Do(ctx, chromedp.Navigate("http://"+r.page+"/")))
	until(t, ctx, "the token is missing")
	r.open(t, ctx, viewToken)
	until(t, ctx, ": live")
	buttons := eval[int](t, ctx, "[...document.querySelectorAll('button')].filter((b) => b.innerText === 'restart').length")
	if buttons != 0 {
		t.Error("who may view only is offered to restart")
	}
	ask := func(method, path, token string) (status string) {
		return eval[string](t, ctx, fmt.Sprintf(`fetch("http://%s%s", { method: %q, headers: { Authorization: "Bearer %s" } }).then((r) => "" + r.status, (e) => "failed")`, r.page, path, method, token))
	}
	if got := ask("POST", "/api/v1/servers/demo/restart", viewToken); got != "403" {
		t.Errorf("a restart with a token that may view: %s", got)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<p>evil") }))
	defer other.Close()
	must(t, chromedp.Do(ctx, chromedp.Navigate(other.URL)))
	if got := ask("GET", "/api/v1/servers", actToken); got != "failed" {
		t.Errorf("a page of another origin gets %s", got)
	}
	_, port, _ := net.SplitHostPort(r.page)
	must(t, chromedp.Do(ctx, chromedp.Navigate("http://evil.example:"+port+"/")))
	until(t, ctx, "this host name is not served here")
}

// screenshots writes a picture of each view to the folder that SCREENSHOTS names.
func screenshots(t *testing.T, ctx context.Context) {
	t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	for _, view := range []string{"Messages", "Overview", "Sessions", "Timeline", "Processes", "Notes", "Metrics"} {
		click(t, ctx, view)
		pause(2500 * time.Millisecond) // numbers come
		png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "inspect-"+strings.ToLower(view)+".png"), png, 0o644))
	}
	click(t, ctx, "Messages")
}

// pause lets a browser and a bridge, both of them real, go on for a moment before they are
// looked at again.
func pause(d time.Duration) { <-time.After(d) }
