package matrix

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A host is what a server of one era does by itself: it answers what every
// server answers, refuses what no client may send, and hands the calls to the
// script. One host is behind all connections of a server.
type host struct {
	v      *server
	modern bool
	// relayed says that the clients are modern themselves: then what comes is
	// theirs, and it is for the server to refuse it.
	relayed bool

	mu      sync.Mutex // guards all below, and the conns
	changed chan struct{}
	calls   []*serverCall // that no script has taken
	conns   []*hostConn
	shift   bool // the tool "region" has its header elsewhere by now
	next    int
}

// A hostConn is what a host knows of one connection, or session.
type hostConn struct {
	h    *host
	s    *session
	live map[string]*serverCall // by id

	// of a legacy session
	begun, ready bool
	caps         map[string]json.RawMessage
	level        string
	uris         map[string]int // by URI: how often somebody has subscribed, less how often not
	asked        map[string]chan answer

	listens map[string]*hearer // modern, by id
}

// hearer is one subscriptions/listen.
type hearer struct {
	conn   *hostConn
	id     string
	filter filter
}

// filter is what a client wants to be told.
type filter struct {
	ToolsListChanged, PromptsListChanged, ResourcesListChanged bool

	ResourceSubscriptions []json.RawMessage // URIs as spelled
}

// String is the filter as params.notifications has it.
func (f filter) String() string {
	var out []string
	for _, what := range []string{"tools", "prompts", "resources"} {
		if f.wants(what) {
			out = append(out, `"`+what+`ListChanged":true`)
		}
	}
	if len(f.ResourceSubscriptions) > 0 {
		var uris []string
		for _, uri := range f.ResourceSubscriptions {
			uris = append(uris, string(uri))
		}
		out = append(out, `"resourceSubscriptions":[`+strings.Join(uris, ",")+`]`)
	}
	return `{` + strings.Join(out, ",") + `}`
}

func (f filter) wants(what string) bool {
	switch what {
	case "tools":
		return f.ToolsListChanged
	case "prompts":
		return f.PromptsListChanged
	case "resources":
		return f.ResourcesListChanged
	}
	return slices.ContainsFunc(f.ResourceSubscriptions, func(uri json.RawMessage) bool { return stringOf(uri) == what })
}

// answer is what a client says to a question: one of both.
type answer struct{ result, error string }

// What a server of either era says about itself.
const (
	serverCaps   = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{},"experimental":{"x":{"n":1.0}}}`
	serverInfo   = `{"name":"\u00e9 server","version":"1.0","title":"T"}`
	instructions = `"use \u00e9, or é"`

	noMethod = `{"code":-32601,"message":"Method not found"}`

	// regionTool is the tool whose argument goes into a header; badTool is one
	// that no client over Streamable HTTP may show.
	regionTool = `{"name":"region","inputSchema":{"type":"object","properties":{"where":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"Count"}}}}`
	shiftTool  = `{"name":"region","inputSchema":{"type":"object","properties":{"where":{"type":"string","x-mcp-header":"Zone"}}}}`
	badTool    = `{"name":"bad","inputSchema":{"type":"object","properties":{"f":{"type":"number","x-mcp-header":"Float"}}}}`
)

func newHost(v *server, modern bool) *host {
	h := &host{v: v, modern: modern, changed: make(chan struct{})}
	v.mu.Lock()
	v.host = h
	v.mu.Unlock()
	return h
}

func (h *host) update(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.changed)
	h.changed = make(chan struct{})
}

// await waits until ok, which runs under the lock, says so.
func (h *host) await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	timeout := time.After(harness.Patience)
	for {
		h.mu.Lock()
		done, changed := ok(), h.changed
		var waiting []string
		for _, sc := range h.calls {
			waiting = append(waiting, sc.method+" "+sc.mark)
		}
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("the server waited too long for %s; calls that wait: %q; %s", what, waiting, strings.Join(h.v.wrong(), "\n"))
		}
	}
}

// connect takes a new connection.
func (h *host) connect(s *session) {
	x := &hostConn{h: h, s: s, live: map[string]*serverCall{}, uris: map[string]int{}, asked: map[string]chan answer{}, listens: map[string]*hearer{}}
	s.sink, s.gone = x.take, x.over
	h.update(func() { h.conns = append(h.conns, x) })
}

// over ends what was under way on a connection.
func (x *hostConn) over() {
	x.h.update(func() {
		for id, sc := range x.live {
			delete(x.live, id)
			close(sc.gone)
		}
		clear(x.listens)
		clear(x.uris)
	})
}

// shrink takes the mebibyte of stepBig out of a text, and leaves a mark in its
// place: reading it takes longer than all the rest.
func shrink(text string) string { return strings.ReplaceAll(text, mebibyte, `"<mebibyte>"`) }

// members returns the members of an object, as spelled; nil if it is none.
func members(raw []byte) map[string]json.RawMessage {
	var out map[string]json.RawMessage
	if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

// take is called with each message that comes, in order, and must not wait.
func (x *hostConn) take(f frame) {
	text := shrink(f.text)
	m, _ := open(text)
	params := members(m.Params)
	meta := members(params["_meta"])
	switch {
	case m.isResponse():
		x.answered(m)
	case !m.isRequest():
		x.notified(m, params)
	case x.h.modern:
		x.requested(m, params, meta, x.modernRequest)
	default:
		x.requested(m, params, meta, x.legacyRequest)
	}
}

func (x *hostConn) answered(m envelope) {
	asked := false
	x.h.update(func() {
		to := x.asked[string(m.ID)]
		if asked = to != nil; asked {
			to <- answer{string(m.Result), string(m.Error)}
			delete(x.asked, string(m.ID))
		}
	})
	if !asked && x.h.modern {
		x.s.fault("a response came to what was not asked: %s %s", m.Result, m.Error) // ST10
	}
}

// whoAsked returns the connection on which id was asked, nil if it was on none.
func (h *host) whoAsked(id json.RawMessage) *hostConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.conns {
		if x.asked[string(id)] != nil {
			return x
		}
	}
	return nil
}

func (x *hostConn) notified(m envelope, params map[string]json.RawMessage) {
	switch {
	case m.Method == "notifications/initialized" && !x.h.modern:
		x.h.update(func() { x.ready = true })
	case m.Method == "notifications/cancelled":
		x.h.update(func() {
			id := string(params["requestId"])
			if sc := x.live[id]; sc != nil {
				delete(x.live, id)
				sc.told = true
				close(sc.gone)
			}
			delete(x.listens, id)
		})
	case m.Method == "notifications/roots/list_changed" && !x.h.modern:
	default:
		x.s.fault("the notification %s came", m.Method)
	}
}

// requested answers what every server answers by itself; special says what
// that is in its era, and what may not come at all.
func (x *hostConn) requested(m envelope, params, meta map[string]json.RawMessage, special func(m envelope, params, meta map[string]json.RawMessage) (reply string, done bool)) {
	id := string(m.ID)
	if reply, done := special(m, params, meta); done {
		if reply != "" {
			go x.s.wire.send(id, reply)
		}
		return
	}
	mark := string(meta[keyMark])
	switch {
	case strings.HasPrefix(m.Method, "x/"):
		go x.s.wire.send(id, failure(id, noMethod))
		return
	case m.Method == "tools/list" && !strings.Contains(mark, m.Method): // the bridge's own: what headers are there?
		go x.s.wire.send(id, response(id, x.h.listResult()))
		return
	case mark == "":
		x.s.fault("a call that no client has made: %s", m.Method)
	}
	sc := &serverCall{h: x.h, conn: x, id: id, method: m.Method, mark: mark, text: string(m.Params), params: params, meta: meta,
		token: string(meta["progressToken"]), gone: make(chan struct{})}
	twice := false
	x.h.update(func() {
		for _, other := range x.live {
			twice = twice || sc.token != "" && other.token == sc.token
		}
		x.live[id] = sc
		x.h.calls = append(x.h.calls, sc)
	})
	if twice {
		x.s.fault("two calls in flight have the progress token %s", sc.token)
	}
}

// listResult is what the bridge may ask for itself.
func (h *host) listResult() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	tools := regionTool
	if h.shift {
		tools = shiftTool
	}
	return `{` + h.decorated("tools/list", `"tools":[`+tools+`,`+badTool+`]`) + `}`
}

// cacheable are the methods whose results say how long they are good for (MI16).
var cacheable = []string{"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}

// decorated adds to the members of a result what belongs there in the host's era.
func (h *host) decorated(method, members string) string {
	if !h.modern {
		return members
	}
	if slices.Contains(cacheable, method) {
		members += `,"ttlMs":7,"cacheScope":"public"`
	}
	return members + `,"resultType":"complete","_meta":{"` + keyServer + `":` + serverInfo + `}`
}

func (x *hostConn) legacyRequest(m envelope, params, meta map[string]json.RawMessage) (reply string, done bool) {
	for key := range meta {
		if strings.HasPrefix(key, "io.modelcontextprotocol/") && m.Method != "server/discover" {
			x.s.fault("%s came with %s in its meta", m.Method, key)
		}
	}
	for _, key := range []string{"inputResponses", "requestState"} {
		if params[key] != nil {
			x.s.fault("%s came with %s", m.Method, key)
		}
	}
	x.h.update(func() { reply, done = x.session(m, params) }) // somebody may wait for the subscription that it is
	return reply, done
}

// session answers what belongs to the session itself. The caller has the lock.
func (x *hostConn) session(m envelope, params map[string]json.RawMessage) (reply string, done bool) {
	id := string(m.ID)
	switch m.Method {
	case "server/discover":
		if x.begun {
			x.s.fault("server/discover came in a session")
		}
		return failure(id, noMethod), true
	case "initialize":
		if x.begun {
			x.s.fault("initialize came twice")
		}
		x.begun, x.caps = true, members(params["capabilities"])
		if v := string(params["protocolVersion"]); v != `"`+revision+`"` {
			x.s.fault("initialize came with version %s", v)
		}
		return response(id, `{"protocolVersion":`+string(params["protocolVersion"])+`,"capabilities":`+serverCaps+`,"serverInfo":`+serverInfo+`,"instructions":`+instructions+`}`), true
	case "ping":
		return response(id, `{}`), true
	case "logging/setLevel":
		x.level = strings.Trim(string(params["level"]), `"`)
		return response(id, `{}`), true
	case "resources/subscribe":
		x.uris[stringOf(params["uri"])]++
		return response(id, `{}`), true
	case "resources/unsubscribe":
		x.uris[stringOf(params["uri"])]--
		return response(id, `{}`), true
	}
	if !x.begun {
		x.s.fault("%s came before initialize", m.Method)
	}
	return "", false
}

// removed are requests that 2026-07-28 does not have (MI11).
var removed = []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list", "tasks/result"}

// onlyModern is what a modern server says to whoever is not (ED5).
const onlyModern = `{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["` + modernRevision + `"],"requested":"` + revision + `"}}`

func (x *hostConn) modernRequest(m envelope, params, meta map[string]json.RawMessage) (reply string, done bool) {
	id := string(m.ID)
	switch {
	case m.Method == "initialize" && meta[keyVersion] == nil: // who does not know us may ask
		return failure(id, onlyModern), true
	case string(meta[keyVersion]) != `"`+modernRevision+`"` || members(meta[keyCaps]) == nil:
		x.s.fault("%s came with the meta %s", m.Method, params["_meta"]) // MI7
	case slices.Contains(removed, m.Method):
		if !x.h.relayed {
			x.s.fault("%s came", m.Method)
		}
		return failure(id, noMethod), true
	}
	switch m.Method {
	case "server/discover":
		return response(id, `{`+x.h.decorated(m.Method, `"supportedVersions":["`+modernRevision+`"],"capabilities":`+serverCaps+`,"instructions":`+instructions)+`}`), true
	case "subscriptions/listen":
		x.listen(id, params)
		return "", true
	}
	return "", false
}

// listen acknowledges a subscription, and counts it from then on.
func (x *hostConn) listen(id string, params map[string]json.RawMessage) {
	l := &hearer{conn: x, id: id}
	if params["notifications"] == nil || json.Unmarshal(params["notifications"], &l.filter) != nil {
		go x.s.wire.send(id, failure(id, `{"code":-32602,"message":"notifications: what do you want to hear?"}`)) // MI21
		return
	}
	go x.h.update(func() { // nobody may emit between the two
		x.s.wire.send(id, note("notifications/subscriptions/acknowledged", `{"notifications":`+string(params["notifications"])+`,"_meta":{"`+keySubscription+`":`+id+`}}`))
		if _, over, _ := x.s.peek(); over == "" {
			x.listens[id] = l
		}
	})
}

// interested returns the number of connections, or of listens, on which what
// is wanted: "tools", "prompts", "resources", or a URI as spelled. The caller
// has the lock.
func (h *host) interested(what string) int {
	n := 0
	what = plain(what)
	for _, x := range h.conns {
		for _, l := range x.listens {
			if l.filter.wants(what) {
				n++
			}
		}
		if x.uris[what] > 0 {
			n++
		}
	}
	return n
}

// plain is a URI as it is meant, or what is none as it stands.
func plain(what string) string {
	if strings.HasPrefix(what, `"`) {
		return stringOf(json.RawMessage(what))
	}
	return what
}

// awaitInterest waits until somebody wants to hear of a change, or nobody.
func (h *host) awaitInterest(t testing.TB, what string, some bool) {
	t.Helper()
	h.await(t, fmt.Sprintf("interest in %s to be %t", what, some), func() bool { return (h.interested(what) > 0) == some })
}

// emit tells everybody who wants to know of a change.
func (h *host) emit(t testing.TB, what string) {
	t.Helper()
	type parcel struct {
		x        *hostConn
		on, text string
	}
	method, params := "notifications/"+what+"/list_changed", ""
	if strings.HasPrefix(what, `"`) {
		method, params = "notifications/resources/updated", `"uri":`+what+`,`
	}
	var out []parcel
	h.mu.Lock()
	for _, x := range h.conns {
		for _, l := range x.listens {
			if l.filter.wants(plain(what)) {
				out = append(out, parcel{x, l.id, note(method, `{`+params+`"_meta":{"`+keySubscription+`":`+l.id+`,"com.example/n":1.0}}`)})
			}
		}
		if x.ready && (params == "" || x.uris[plain(what)] > 0) {
			if _, over, _ := x.s.peek(); over == "" {
				out = append(out, parcel{x, "", note(method, `{`+params+`"_meta":{"com.example/n":1.0}}`)})
			}
		}
	}
	h.mu.Unlock()
	for _, p := range out {
		if err := p.x.s.wire.send(p.on, p.text); err != nil {
			t.Logf("%s for a listener that has gone: %v", method, err)
		}
	}
}

// idle wants no call to wait.
func (h *host) idle(t testing.TB) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, sc := range h.calls {
		t.Errorf("nobody expected the server to hear %s %s", sc.method, sc.text)
	}
	h.calls = nil
}
