package tests

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// modernVersion is the revision without sessions.
const modernVersion = "2026-07-28"

// Keys of _meta.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCaps         = "io.modelcontextprotocol/clientCapabilities"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// A brain is what thinks for stdio servers of one era. Their processes are
// relays (fixtures/relay), which the bridge starts; all of them talk to it. It
// answers calls of many clients at once, in any order.
type brain struct {
	access bool // its clients have access tokens
	t      testing.TB
	modern bool
	target []string // the arguments that make a bridge run it

	mu      sync.Mutex // guards all below, and the lobes
	changed chan struct{}
	lobes   []*lobe
	calls   map[string]int // heard, by client and number
	stopped map[string]int // of those, cancelled
	waiting map[string]chan struct{}
	updates map[string]int // how many were sent, by URI
	wrong   []string
}

// A lobe is one process.
type lobe struct {
	b    *brain
	pid  int
	conn net.Conn
	out  sync.Mutex // serializes writes

	gone   bool
	caps   string                     // legacy: what initialize declared
	worked int                        // calls heard
	tokens map[string]string          // of calls in flight, by id
	uris   map[string]int             // legacy
	listen map[string][]string        // modern: the URIs of a subscription, by id
	stop   map[string]chan struct{}   // closed when a call is cancelled, by id
	asked  map[string]chan brainWords // by id
}

// brainWords is a message as a brain hears it.
type brainWords struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Meta            map[string]json.RawMessage `json:"_meta"`
		Capabilities    json.RawMessage
		ProtocolVersion string
		URI             string
		RequestID       json.RawMessage `json:"requestId"`
		Arguments       errand
		InputResponses  map[string]json.RawMessage
		RequestState    string
		Notifications   json.RawMessage
	}
	Result, Error json.RawMessage
}

// An errand is what a client wants of a call.
type errand struct {
	Who string // the client
	N   int    // its how-manieth call
	Do  string // echo, progress, hang, flood, ask, fail
}

func (e errand) key() string { return fmt.Sprint(e.Who, "/", e.N) }

var relayOnce = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(filepath.Dir(bridgeBin), "relay")
	if runtime.GOOS == "windows" {
		bin += ".exe"
	}
	out, err := exec.Command("go", "build", "-o", bin, "./fixtures/relay").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return bin, err
})

func newBrain(t testing.TB, modern bool) *brain {
	t.Helper()
	relay, err := relayOnce()
	bridgetest.Must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	bridgetest.Must(t, err)
	b := &brain{t: t, modern: modern, target: []string{"--", relay, l.Addr().String()}, changed: make(chan struct{}),
		calls: map[string]int{}, stopped: map[string]int{}, waiting: map[string]chan struct{}{}, updates: map[string]int{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { b.think(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		b.mu.Lock()
		for _, p := range b.lobes {
			p.conn.Close()
		}
		b.mu.Unlock()
		wg.Wait()
		if len(b.wrong) > 0 {
			t.Errorf("the server met what must not be: %s", tail(strings.Join(b.wrong, "\n"), 2000))
		}
	})
	return b
}

// update changes what the brain knows and wakes whoever waits.
func (b *brain) update(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	close(b.changed)
	b.changed = make(chan struct{})
}

// await waits until ok, which runs under the lock, says so.
func (b *brain) await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	timeout := time.After(harness.Patience)
	for {
		b.mu.Lock()
		done, changed := ok(), b.changed
		b.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("the server waited too long for %s", what)
		}
	}
}

func (b *brain) fault(format string, args ...any) {
	b.update(func() { b.wrong = append(b.wrong, fmt.Sprintf(format, args...)) })
}

// think serves one process until its end.
func (b *brain) think(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 1<<16)
	line, _ := in.ReadString('\n')
	p := &lobe{b: b, conn: conn, tokens: map[string]string{}, uris: map[string]int{}, listen: map[string][]string{}, stop: map[string]chan struct{}{}, asked: map[string]chan brainWords{}}
	p.pid, _ = strconv.Atoi(strings.TrimSpace(line))
	b.update(func() { b.lobes = append(b.lobes, p) })
	defer b.update(func() {
		p.gone = true
		for id, stop := range p.stop {
			delete(p.stop, id)
			close(stop)
		}
		clear(p.listen)
		clear(p.uris)
	})
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m brainWords
		if err := json.Unmarshal(line, &m); err != nil {
			b.fault("%v in %.200s", err, line)
			continue
		}
		p.hear(m)
	}
}

// say writes one message. The end of the process is nobody's fault here.
func (p *lobe) say(format string, args ...any) {
	p.out.Lock()
	defer p.out.Unlock()
	_, _ = p.conn.Write(fmt.Appendf(nil, format+"\n", args...))
}

func (p *lobe) answer(id json.RawMessage, members string) {
	if p.b.modern {
		members += `,"resultType":"complete"`
	}
	p.say(`{"jsonrpc":"2.0","id":%s,"result":{%s}}`, id, members)
}

func (p *lobe) hear(m brainWords) {
	b, id := p.b, string(m.ID)
	switch m.Method {
	case "":
		b.update(func() {
			if to := p.asked[id]; to != nil {
				delete(p.asked, id)
				to <- m
			}
		})
	case "server/discover":
		if !b.modern {
			p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
			return
		}
		p.answer(m.ID, `"supportedVersions":["`+modernVersion+`"],"ttlMs":0,"cacheScope":"private","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}}`)
	case "initialize":
		b.update(func() { p.caps = string(m.Params.Capabilities) })
		p.answer(m.ID, fmt.Sprintf(`"protocolVersion":%q,"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},"serverInfo":{"name":"brain","version":"1"}`, m.Params.ProtocolVersion))
	case "notifications/initialized":
	case "notifications/cancelled":
		b.update(func() {
			if stop := p.stop[string(m.Params.RequestID)]; stop != nil {
				delete(p.stop, string(m.Params.RequestID))
				delete(p.tokens, string(m.Params.RequestID))
				close(stop)
			}
			delete(p.listen, string(m.Params.RequestID))
		})
	case "ping":
		p.answer(m.ID, `"x":1`)
	case "tools/list":
		p.answer(m.ID, `"tools":[],"ttlMs":0,"cacheScope":"private"`)
	case "resources/subscribe":
		b.update(func() { p.uris[m.Params.URI]++ })
		p.answer(m.ID, `"x":1`)
	case "resources/unsubscribe":
		b.update(func() { p.uris[m.Params.URI]-- })
		p.answer(m.ID, `"x":1`)
	case "subscriptions/listen":
		var filter struct{ ResourceSubscriptions []string }
		_ = json.Unmarshal(m.Params.Notifications, &filter)
		p.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":%s,"_meta":{%q:%s}}}`, m.Params.Notifications, metaSubscription, m.ID)
		b.update(func() { p.listen[id] = filter.ResourceSubscriptions })
	case "tools/call":
		p.call(m)
	default:
		b.fault("%s came", m.Method)
	}
}

// call begins with a call. It ends at some later time, beside others.
func (p *lobe) call(m brainWords) {
	b, id, token, what := p.b, string(m.ID), string(m.Params.Meta["progressToken"]), m.Params.Arguments
	stop := make(chan struct{})
	b.update(func() {
		b.calls[what.key()]++
		p.worked++
		if _, twice := p.stop[id]; twice {
			b.wrong = append(b.wrong, "the id "+id+" is in use twice")
		}
		for _, other := range p.tokens {
			if token != "" && other == token {
				b.wrong = append(b.wrong, "the token "+token+" is in use twice")
			}
		}
		p.stop[id] = stop
		p.tokens[id] = token
	})
	time.AfterFunc(time.Duration(rand.IntN(4))*time.Millisecond, func() { p.work(m, stop) })
}

func (p *lobe) work(m brainWords, stop chan struct{}) {
	what, token := m.Params.Arguments, m.Params.Meta["progressToken"]
	progress := func(n int, more string) {
		p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s/%d%s"}}`, token, n+1, what.key(), n, more)
	}
	echo := fmt.Sprintf(`"content":[],"who":%q,"n":%d,"pid":%d`, what.Who, what.N, p.pid)
	switch what.Do {
	case "hang":
		<-stop
		p.b.update(func() { p.b.stopped[what.key()]++ })
		return
	case "flood": // until somebody has had enough
		more := strings.Repeat("x", 16<<10)
		for n := 0; ; n++ {
			select {
			case <-stop:
				p.b.update(func() { p.b.stopped[what.key()]++ })
				return
			default:
				progress(n, more)
			}
		}
	case "progress":
		for n := range 3 {
			progress(n, "")
		}
	case "ask":
		if p.b.modern && m.Params.InputResponses == nil {
			echo = `"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"` + what.key() + `"`
			p.over(m)
			p.say(`{"jsonrpc":"2.0","id":%s,"result":{%s}}`, m.ID, echo)
			return
		}
		if !p.b.modern {
			to := make(chan brainWords, 1)
			own := fmt.Sprintf(`"ask %s"`, what.key())
			p.b.update(func() { p.asked[own] = to })
			p.say(`{"jsonrpc":"2.0","id":%s,"method":"roots/list","params":{}}`, own)
			select {
			case got := <-to:
				echo += `,"answer":` + string(got.Result)
			case <-stop:
				return
			}
		}
	case "fail":
		p.over(m)
		p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"no","data":{"who":%q,"n":%d}}}`, m.ID, what.Who, what.N)
		return
	}
	p.over(m)
	p.answer(m.ID, echo)
}

// over takes a call out of the books, before its answer is sent.
func (p *lobe) over(m brainWords) {
	p.b.update(func() {
		delete(p.stop, string(m.ID))
		delete(p.tokens, string(m.ID))
	})
}

// touch says that a resource has changed, to all who want to know.
func (b *brain) touch(uri string) {
	b.mu.Lock()
	var out []func()
	for _, p := range b.lobes {
		if p.uris[uri] > 0 && !p.gone {
			out = append(out, func() {
				p.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q}}`, uri)
			})
		}
		for id, uris := range p.listen {
			if slices.Contains(uris, uri) {
				out = append(out, func() {
					p.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q,"_meta":{%q:%s}}}`, uri, metaSubscription, id)
				})
			}
		}
	}
	b.updates[uri] += len(out)
	b.mu.Unlock()
	for _, say := range out {
		say()
	}
}

// wanted reports whether somebody wants to hear of a resource.
func (b *brain) wanted(uri string) bool {
	for _, p := range b.lobes {
		if p.uris[uri] > 0 && !p.gone {
			return true
		}
		for _, uris := range p.listen {
			if slices.Contains(uris, uri) {
				return true
			}
		}
	}
	return false
}

// workers are the processes that have heard a call.
func (b *brain) workers() []*lobe {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []*lobe
	for _, p := range b.lobes {
		if p.worked > 0 {
			out = append(out, p)
		}
	}
	return out
}

// kill ends the process without a word.
func (p *lobe) kill(t testing.TB) {
	t.Helper()
	proc, err := os.FindProcess(p.pid)
	if err == nil {
		err = errors.Join(proc.Kill(), proc.Release())
	}
	bridgetest.Must(t, err)
}
