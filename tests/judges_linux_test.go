package tests

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

func (c command) String() string { return fmt.Sprintf("%s:%d: %s", c.file, c.line, c.text) }

// serves: the line comes up at the address that it names and answers a client there; if it has credentials, only one that has
// one. It goes on beside the shell until the next line that wants its address, and ends with status 0.
func serves(w *world, c command) {
	w.t.Helper()
	a := w.addressOf(c.text)
	if i := slices.IndexFunc(w.jobs, func(j *job) bool { return j.host == a.host }); i >= 0 {
		w.end(w.jobs[i], true)
	}
	j := w.start(c.text)
	j.host = a.host
	listening := regexp.MustCompile(`listening: `)
	harness.WaitUntil(w.t, c.String(), func() bool { return w.ended(j) || listening.MatchString(harness.ReadFile(w.t, j.log)) })
	if w.ended(j) {
		w.t.Fatalf("%s: ended\n%s", c, harness.ReadFile(w.t, j.log))
	}
	resp, body := a.post(w.t, initialize("2025-06-18"), "", a.bearer)
	if !isInitialized(body) {
		w.t.Errorf("%s: %s answers %s %s\n%s", c, a.url, resp.Status, body, harness.ReadFile(w.t, j.log))
		return
	}
	if session := resp.Header.Get("Mcp-Session-Id"); session != "" {
		a.post(w.t, initialized, session, a.bearer)
		if _, body := a.post(w.t, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, session, a.bearer); !strings.Contains(body, `"tools"`) {
			w.t.Errorf("%s: tools/list is answered %s", c, body)
		}
	}
	if a.bearer != "" {
		if resp, _ := a.post(w.t, initialize("2025-06-18"), "", ""); resp.StatusCode != http.StatusUnauthorized {
			w.t.Errorf("%s: without a token %s", c, resp.Status)
		}
	}
}

// converses: the line answers a client on its stdin and stdout, and ends with status 0 when that has gone.
func converses(w *world, c command) {
	w.t.Helper()
	status, out, log := w.run(c.text, initialize("2025-06-18")+"\n")
	if status != 0 || !isInitialized(out) {
		w.t.Errorf("%s: status %d: %s\n%s", c, status, out, log)
	}
}

// prints: the line ends with status 0, and what it has written is like this.
func prints(pattern string) func(*world, command) {
	return func(w *world, c command) {
		w.t.Helper()
		if strings.HasPrefix(c.text, "mcp-bridge replay ") {
			w.endJobs() // the recording ends with them
		}
		if strings.HasPrefix(c.text, "cat events") {
			waitFile(w.t, filepath.Join(w.dir, "events"), func(text string) bool { return strings.Contains(text, `"result"`) })
		}
		status, out, log := w.run(c.text, "")
		if status != 0 || !regexp.MustCompile(pattern).MatchString(out+log) {
			w.t.Errorf("%s: status %d\n%s\n%s", c, status, out, log)
		}
	}
}

// finds: doctor ends with status 1, since it has found something.
func finds(pattern string) func(*world, command) {
	return func(w *world, c command) {
		w.t.Helper()
		status, out, log := w.run(c.text, "")
		if status != 1 || !regexp.MustCompile(pattern).MatchString(out) {
			w.t.Errorf("%s: status %d\n%s\n%s", c, status, out, log)
		}
	}
}

// watches: the line shows what passes a client's bridge, and ends at SIGTERM.
func watches(w *world, c command) {
	w.t.Helper()
	w.endJobs() // trace would ask which bridge is meant
	if w.client == nil {
		w.client = start(w.t, nil, "mcp-bridge", "connect", "--name", "files", "--", "mcp-bridge", "demo")
		w.client.send(initialize("2025-06-18"))
		w.client.line()
	}
	j := w.start(strings.Replace(c.text, "4711", strconv.Itoa(w.client.Cmd.Process.Pid), 1))
	asked := time.Time{}
	harness.WaitUntil(w.t, c.String(), func() bool {
		if w.ended(j) {
			w.t.Fatalf("%s: ended\n%s", c, harness.ReadFile(w.t, j.log))
		}
		if time.Since(asked) > time.Second/10 {
			asked = time.Now()
			w.client.send(ping)
			w.client.line()
		}
		return strings.Contains(harness.ReadFile(w.t, j.out), "ping")
	})
	w.end(j, true)
}

// looks: the line looks at the bridges that run, and ends at SIGTERM.
func looks(w *world, c command) {
	w.t.Helper()
	watches(w, command{c.file, c.line, "mcp-bridge trace"}) // there is one
	j := w.start(c.text)
	waitFile(w.t, j.log, func(text string) bool { return w.ended(j) || strings.Contains(text, "looking at ") })
	w.end(j, true)
}

// paste: the line takes the address at which the browser of a sign-in has ended.
func paste(w *world, c command) {
	w.t.Helper()
	signIn(w, "mcp-bridge login --no-browser https://mcp.example.com/mcp", c.text)
}

// elsewhereSigned: the line signs in, when the address that it shows was opened elsewhere, and what comes of it pasted.
func elsewhereSigned(w *world, c command) {
	w.t.Helper()
	signIn(w, c.text, "mcp-bridge login --callback - https://mcp.example.com/mcp")
}

func signIn(w *world, login, callback string) {
	w.t.Helper()
	j, authorize := showsAddress(w, login)
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := browser.Get(authorize)
	bridgetest.Must(w.t, err)
	resp.Body.Close()
	if status, out, log := w.run(callback, resp.Header.Get("Location")+"\n"); status != 0 {
		w.t.Errorf("%s: status %d\n%s\n%s", callback, status, out, log)
	}
	w.end(j, false)
}

// showsAddress starts a sign-in, and returns the address that it shows.
func showsAddress(w *world, login string) (j *job, address string) {
	w.t.Helper()
	j = w.start(login)
	authorize := regexp.MustCompile(`https://mcp\.example\.com/authorize\S*`)
	waitFile(w.t, j.out, func(text string) bool { return authorize.MatchString(text) })
	return j, authorize.FindString(harness.ReadFile(w.t, j.out))
}

// cancels: the line ends a sign-in that waits.
func cancels(w *world, c command) {
	w.t.Helper()
	j, _ := showsAddress(w, "mcp-bridge login --no-browser https://mcp.example.com/mcp")
	if status, out, log := w.run(c.text, ""); status != 0 {
		w.t.Errorf("%s: status %d\n%s\n%s", c, status, out, log)
	}
	harness.WaitUntil(w.t, "the end of the sign-in", func() bool { return w.ended(j) })
	w.jobs = slices.DeleteFunc(w.jobs, func(other *job) bool { return other == j })
}

// follows: the line keeps a stream open, and its first event is in the file events.
func follows(w *world, c command) {
	w.t.Helper()
	w.start(c.text)
	waitFile(w.t, filepath.Join(w.dir, "events"), func(text string) bool { return strings.Contains(text, "/message?sessionId=") })
}

// sets: a variable has a value afterwards.
func sets(w *world, c command) {
	w.t.Helper()
	name, _, _ := strings.Cut(strings.TrimPrefix(c.text, "export "), "=")
	if status, out, log := w.run("unset "+name+"\n"+c.text+"\n[ -n \"$"+name+"\" ]", ""); status != 0 {
		w.t.Errorf("%s: %s is empty\n%s\n%s", c, name, out, log)
	}
}

// completes: the shell completes the bridge's lines afterwards.
func completes(w *world, c command) {
	w.t.Helper()
	if status, out, log := w.run(c.text+"\ncomplete -p mcp-bridge", ""); status != 0 {
		w.t.Errorf("%s: %s\n%s", c, out, log)
	}
}

// ended says whether a job runs no longer.
func (w *world) ended(j *job) bool {
	stat := harness.ReadFile(w.t, fmt.Sprintf("/proc/%d/stat", j.pid))
	_, after, _ := strings.Cut(stat, ") ")
	return stat == "" || strings.HasPrefix(after, "Z")
}
