package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A fleet is a configuration of 20 servers, some of which change from round
// to round.
type fleet struct {
	round int
	descr map[string]string // by name, of those that are served
	text  string
}

const (
	stableServers   = 8 // are the same in every round
	changingServers = 6 // become others in every third round
	comingServers   = 6 // have another name in every other round
)

// newFleet returns the configuration of a round. Its lines have other numbers
// than those of the rounds before and after.
func newFleet(round int) *fleet {
	f := &fleet{round: round, descr: map[string]string{}}
	var b strings.Builder
	b.WriteString("// round " + strconv.Itoa(round) + strings.Repeat("\n", round+1) + "{ \"mcpServers\": {\n")
	add := func(name, descr, more string) {
		f.descr[name] = descr
		fmt.Fprintf(&b, "\t%q: { \"command\": %s, \"args\": [\"demo\"], \"env\": {\"SERVER\": %q, \"DESCR\": %[4]q}, \"description\": %[4]q%s },\n",
			name, quote(bridgeBin), name, descr, more)
	}
	for i := range stableServers {
		add(fmt.Sprintf("stable%d", i), "always the same", "")
	}
	for i := range changingServers {
		name := fmt.Sprintf("changing%d", i)
		add(name, fmt.Sprintf("of round %d", round-(round+i)%3), "")
	}
	for i := range comingServers {
		name := fmt.Sprintf("coming%d-%d", i, (round/(i%2+1))%2)
		if round%7 == i {
			add(name, "", `, "disabled": true`)
			delete(f.descr, name)
			continue
		}
		add(name, "comes and goes", "")
	}
	b.WriteString("}, }\n")
	f.text = b.String()
	return f
}

// broken returns the configuration with a mistake in it, and where that is.
func (f *fleet) broken() (text string, line int) {
	at := strings.Index(f.text, "\t\"changing2\"")
	marked := func(old, new string) string {
		return f.text[:at] + strings.Replace(f.text[at:], old, new, 1)
	}
	line = 1 + strings.Count(f.text[:at], "\n")
	switch f.round / 5 % 5 {
	case 0:
		return marked(`"args"`, `"argz"`), line
	case 1:
		return marked(`"demo"`, `"${UNSET_VARIABLE}"`), line
	case 2:
		return marked(`["demo"]`, `"demo"`), line
	case 3:
		return marked(`:`, ``), line
	default:
		return marked(`"args": ["demo"]`, `"url": "http://127.0.0.1:1/mcp"`), line
	}
}

// TestReloadUnderLoad: 20 servers, and 50 new configurations while clients of
// every transport call. No call to a server that stays the same fails, a
// broken file changes nothing and is named with its line, and at the end the
// processes are those of the sessions that are left, and then none.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	const rounds = 50
	file := filepath.Join(t.TempDir(), "servers.json")
	now := newFleet(0)
	writeFile(t, file, now.text)
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--config", file)
	front := newSite(t, "http://"+s.host())
	pid := s.Cmd.Process.Pid
	warmUp(t, front, pid)
	files := openFiles(t, pid)

	load := newLoad(t, front)
	harness.WaitUntil(t, "calls of each kind", func() bool { return t.Failed() || slices.Min(load.counts()) > 0 })
	for round := 1; round <= rounds; round++ {
		next := newFleet(round)
		broken := round%5 == 2
		line := 0
		if broken {
			next.text, line = next.broken()
		}
		if round%4 < 2 {
			replaceFile(t, file, next.text)
		} else {
			writeFile(t, file, next.text)
		}
		if round%2 == 0 {
			s.signal(syscall.SIGHUP)
		}
		if broken {
			s.waitLog(regexp.MustCompile(fmt.Sprintf(`servers\.json:%d:\d+: `, line)))
			if got := served(t, front); !maps.Equal(got, now.descr) {
				t.Errorf("round %d: after a broken file there are %q, want those from before, %q", round, got, now.descr)
			}
			continue
		}
		now = next
		harness.WaitUntil(t, fmt.Sprintf("round %d to be served", round), func() bool { return maps.Equal(served(t, front), now.descr) })
	}
	// A signal is enough, even if nothing has changed.
	loaded := strings.Count(s.Log(), "configuration loaded")
	s.signal(syscall.SIGHUP)
	harness.WaitUntil(t, "the file to be loaded at SIGHUP", func() bool { return strings.Count(s.Log(), "configuration loaded") > loaded })

	load.finish()
	harness.WaitUntil(t, "the processes to be those of the sessions", func() bool { return slices.Equal(serversRunning(t, pid), load.lasting) })
	load.log()
	if !t.Failed() {
		load.close()
		front.client.CloseIdleConnections()
		harness.WaitUntil(t, "open files to be closed", func() bool { return len(serversRunning(t, pid)) == 0 && openFiles(t, pid) <= files })
	}
	load.open() // some for the shutdown to end
	pids := watchChildren(t, pid)
	s.signal(syscall.SIGTERM)
	if code := s.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
	waitGone(t, pids)
}

// warmUp has everything open that stays open: the bridge's own helpers.
func warmUp(t *testing.T, front *site, pid int) {
	t.Helper()
	for _, transport := range transports {
		c := front.at("/servers/stable0").mustOpen(t, transport)
		c.close()
	}
	front.client.CloseIdleConnections()
	harness.WaitUntil(t, "the first sessions to end", func() bool { return len(serversRunning(t, pid)) == 0 && connections(t, pid) == 0 })
}

// callDemo makes the call and checks all that comes of it.
func callDemo(ctx context.Context, c talker, id, seconds string, steps int) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	heard := 0
	answer, err := c.exchange(ctx, demoCall(id, seconds, steps), func(message string) {
		if heard++; !strings.Contains(message, fmt.Sprintf(`"progressToken":"p%s","progress":%d,`, id, heard)) {
			heard = -1000
		}
	})
	if err != nil {
		return err
	}
	if !strings.Contains(answer, `"id":`+id+`,"result"`) || heard != steps {
		return fmt.Errorf("call %s: progress came %d times, want %d, and the answer is %.300s", id, heard, steps, answer)
	}
	return nil
}

// A load is clients that call without a pause.
type load struct {
	t       *testing.T
	front   *site
	stop    chan struct{}
	wg      sync.WaitGroup
	clients []talker
	lasting []string // the servers of clients, sorted
	calls   [4]atomic.Int64
}

// What the clients of a load do.
const (
	short     = iota // many calls in a session of a server that stays
	long             // long ones
	coming           // sessions that come and go at a server that stays
	disturbed        // calls to servers that change
)

func newLoad(t *testing.T, front *site) *load {
	l := &load{t: t, front: front, stop: make(chan struct{})}
	l.open()
	for i, c := range l.clients {
		kind, seconds, steps := short, "0.02", 1
		if i%2 == 1 {
			kind, seconds, steps = long, "0.5", 5
		}
		l.loop(func(n int) {
			if err := callDemo(t.Context(), c, strconv.Itoa(n), seconds, steps); err != nil {
				t.Errorf("a call to a server that stays, over %s: %v", transports[i/2], err)
				return
			}
			l.calls[kind].Add(1)
		})
	}
	l.loop(func(n int) {
		transport := transports[n%len(transports)]
		c, err := front.at("/servers/stable7").open(t.Context(), transport)
		if err == nil {
			defer c.close()
			err = callDemo(t.Context(), c, "1", "0.05", 1)
		}
		if err != nil {
			t.Errorf("a session of a server that stays, over %s: %v", transport, err)
			return
		}
		l.calls[coming].Add(1)
	})
	for i, transport := range transports {
		l.loop(func(n int) { l.disturbed(transport, fmt.Sprintf("changing%d", (n+i)%changingServers)) })
	}
	return l
}

// open opens the sessions that stay, two for each transport.
func (l *load) open() {
	l.lasting = nil
	l.clients = nil
	for i := range 2 * len(transports) {
		name := fmt.Sprintf("stable%d", i)
		l.clients = append(l.clients, l.front.at("/servers/"+name).mustOpen(l.t, transports[i/2]))
		l.lasting = append(l.lasting, name)
	}
}

// loop calls f until the end, with 0, 1, 2 ...
func (l *load) loop(f func(n int)) {
	l.wg.Go(func() {
		for n := 0; !l.t.Failed(); n++ {
			select {
			case <-l.stop:
				return
			default:
				f(n)
			}
		}
	})
}

// disturbed calls a server until that is another one. Then the session must
// have ended; what else comes of a call is what it should be.
func (l *load) disturbed(transport, name string) {
	c, err := l.front.at("/servers/"+name).open(l.t.Context(), transport)
	if err != nil {
		return // at this very moment
	}
	defer c.close()
	for n := 1; ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		err := callDemo(l.t.Context(), c, strconv.Itoa(n), "0.1", 2)
		if r, ok := errors.AsType[*refusal](err); ok && r.status != http.StatusNotFound {
			l.t.Errorf("a call to a server that changes, over %s: %v, want 404 when it has changed", transport, err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			l.t.Errorf("a call to a server that changes, over %s, was never answered", transport)
		}
		if err != nil {
			return
		}
		l.calls[disturbed].Add(1)
	}
}

// finish lets the calls in progress end.
func (l *load) finish() {
	close(l.stop)
	l.wg.Wait()
}

func (l *load) close() {
	for _, c := range l.clients {
		c.close()
	}
}

// counts returns how many calls of each kind there were so far.
func (l *load) counts() []int64 {
	counts := make([]int64, len(l.calls))
	for i := range l.calls {
		counts[i] = l.calls[i].Load()
	}
	return counts
}

// log says what the load was.
func (l *load) log() {
	counts := l.counts()
	l.t.Logf("calls: %d short, %d long, %d in sessions of their own, %d to servers that change", counts[short], counts[long], counts[coming], counts[disturbed])
}

// demoChildren returns the processes of demo servers that are children of pid,
// with the value of their variable SERVER.
func demoChildren(t testing.TB, pid int) map[int]string {
	t.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	found := map[int]string{}
	for _, task := range tasks {
		data, _ := os.ReadFile(task) // a thread may have ended meanwhile
		for _, child := range strings.Fields(string(data)) {
			args, _ := os.ReadFile("/proc/" + child + "/cmdline")
			env, _ := os.ReadFile("/proc/" + child + "/environ")
			n, err := strconv.Atoi(child)
			if err != nil || len(args) > 0 && !bytes.HasSuffix(args, []byte("\x00demo\x00")) {
				continue // the bridge's own helper
			}
			_, name, _ := bytes.Cut(append([]byte{0}, env...), []byte("\x00SERVER="))
			name, _, _ = bytes.Cut(name, []byte{0})
			found[n] = string(name) // none: it begins or ends
		}
	}
	return found
}

// serversRunning returns the names of the servers that have processes, sorted,
// each as often as it has.
func serversRunning(t testing.TB, pid int) []string {
	return slices.Sorted(maps.Values(demoChildren(t, pid)))
}

// watchChildren watches the servers' processes.
func watchChildren(t *testing.T, pid int) []watched {
	t.Helper()
	var ws []watched
	for child := range demoChildren(t, pid) {
		fd, err := unix.PidfdOpen(child, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		ws = append(ws, watched{child, fd})
	}
	if len(ws) < 2*len(transports) {
		t.Errorf("%d processes of servers, want one for each session", len(ws))
	}
	return ws
}
