package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
)

// sseSession is a session with a server that speaks HTTP+SSE.
type sseSession struct {
	prober          *prober                    // makes the requests
	stream          *probe.Reply               // the reply to GET: the event stream; read by readStream alone until streamEnded
	endpointText    string                     // the data of the event endpoint, as the server sent it
	endpoint        *url.URL                   // where messages are posted; set before the first ask
	isInitialized   bool                       // the server has answered initialize with a result
	protocolVersion string                     // the revision that was negotiated; "": none so far
	capabilities    map[string]json.RawMessage // those that the server has declared, by name

	mu            sync.Mutex                    // guards responseChans
	responseChans map[string]chan probe.Message // by id: channels of those who wait for a response
	streamEnded   chan struct{}                 // closed when readStream has returned
	startedAt     time.Time                     // when the first event of the stream had come
}

// endpointTimeout is how long findSSE waits for the event endpoint, the first of an HTTP+SSE stream.
const endpointTimeout = 4 * time.Second

// findSSE opens the event stream of a server of HTTP+SSE, if post, the reply to a POST, is a refusal as from such a server;
// nil: there is none. It adds H11 if the stream seems to be held back.
func (p *prober) findSSE(ctx context.Context, post *probe.Reply) *sseSession {
	switch {
	case post.Err != nil, post.IsInconclusive(), post.Status/100 != 4:
		return nil
	case post.Status == http.StatusUnauthorized, post.Status == http.StatusForbidden, post.Status == http.StatusMisdirectedRequest:
		return nil
	}
	// The stream outlives ctx: cleanup closes it.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	late := time.AfterFunc(endpointTimeout, cancel)
	r := p.Start(life, probe.Request{Method: http.MethodGet, Header: map[string]string{"Accept": typeSSE}})
	got := r.IsStream() && r.NextEvent()
	inTime := late.Stop()
	switch {
	case got && r.LastEvent.Name == "endpoint":
		e := &sseSession{prober: p, stream: r, endpointText: string(r.LastEvent.Data), responseChans: map[string]chan probe.Message{}, streamEnded: make(chan struct{}), startedAt: time.Now()}
		go e.readStream()
		p.onCleanup(func(context.Context) { cancel(); r.Close(); <-e.streamEnded })
		return e
	case !inTime && r.IsStream():
		p.addBuffered(r, "GET: the headers of an event stream came, and its first event did not come in "+endpointTimeout.String())
	case !inTime && !got && (post.Status == http.StatusNotFound || post.Status == http.StatusMethodNotAllowed):
		p.addBuffered(post, "POST: "+strconv.Itoa(post.Status)+", as servers of HTTP+SSE answer; GET: no headers came in "+endpointTimeout.String())
	}
	cancel()
	r.Close()
	return nil
}

// readStream hands each response on the stream to whoever waits for it, until the stream ends. It is a goroutine of its own.
func (e *sseSession) readStream() {
	defer close(e.streamEnded)
	for e.stream.NextEvent() {
		if len(e.stream.Messages) == 0 {
			continue
		}
		m := e.stream.Messages[len(e.stream.Messages)-1]
		e.stream.Messages = nil
		e.mu.Lock()
		c := e.responseChans[strings.Trim(string(m.ID), `"`)]
		e.mu.Unlock()
		if c != nil && m.IsResponse() {
			select {
			case c <- m:
			default: // it is not the first one
			}
		}
	}
	e.prober.checkReply(e.stream)
}

// harmlessMethod returns ping, which changes nothing; it implements requester.
func (e *sseSession) harmlessMethod() string { return "ping" }

// hasCapability reports whether the server has declared a capability; it implements requester.
func (e *sseSession) hasCapability(capability string) bool { return e.capabilities[capability] != nil }

// ask posts a request and waits for the response on the stream; change, if not nil, changes how it is sent. It implements
// requester.
func (e *sseSession) ask(ctx context.Context, method string, params map[string]any, change func(*probe.Request)) *probe.Reply {
	id := e.prober.NewID()
	m := map[string]any{"jsonrpc": "2.0", "id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	return e.askMessage(ctx, m, id, change)
}

// askMessage posts the message m, and waits for the response to id on the stream, which it adds to the reply; id 0: m is no
// request. change, if not nil, changes how it is sent.
func (e *sseSession) askMessage(ctx context.Context, m map[string]any, id int, change func(*probe.Request)) *probe.Reply {
	c := make(chan probe.Message, 1)
	key := strconv.Itoa(id)
	e.mu.Lock()
	e.responseChans[key] = c
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.responseChans, key)
		e.mu.Unlock()
	}()
	q := probe.Request{URL: e.endpoint, Header: legacyHeader(), Body: probe.EncodeMessage(m)}
	if e.protocolVersion >= era.Version2025_06_18 {
		q.Header[headerVersion] = e.protocolVersion
	}
	if change != nil {
		change(&q)
	}
	r := e.prober.doAndCheck(ctx, q)
	if r.Err != nil || r.Status/100 != 2 || id == 0 {
		return r
	}
	r.ID = id
	if r.Response() != nil {
		e.prober.addFinding("H23", doctor.Warning, "Responses come in the reply to POST, not on the event stream", r.Summary(),
			"Clients of HTTP+SSE read responses from the event stream only: they wait until they give up.", "Have the server send all messages on the event stream, and answer POST 202.")
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, e.prober.ReplyTimeout)
	defer cancel()
	select {
	case got := <-c:
		r.Messages = append(r.Messages, got)
	case <-e.streamEnded:
	case <-ctx.Done():
	}
	return r
}

// openSession initializes the session of HTTP+SSE. If the server takes no messages at the endpoint that it has given, it tries
// where the endpoint should be, and adds H21.
func (e *sseSession) openSession(ctx context.Context) {
	given, err := e.prober.URL.Parse(e.endpointText)
	if err != nil || given.Host == "" || strings.TrimSpace(e.endpointText) == "" {
		e.prober.addFinding("H21", doctor.Error, "The endpoint event has no valid URL", "data: "+e.endpointText, "Clients do not learn where to send messages.",
			"Send the path for messages as the data of the endpoint event.")
		return
	}
	e.prober.HideURLCredentials(given)
	e.prober.checkCompression(e.stream)
	const do = "Tell the server the prefix and the public URL that its proxy has, or have it send a relative path that is right for clients; the proxy must pass that path on."
	const means = "Clients send their messages there: they refuse to, or do not reach the server."
	best := *given
	best.Scheme, best.Host = e.prober.URL.Scheme, e.prober.URL.Host
	if !httpdial.SameOrigin(given, e.prober.URL) {
		kind := "is of another host than the stream"
		switch {
		case strings.EqualFold(best.Host, given.Host):
			kind = "has another scheme than the stream"
		case authorization{e.prober}.isPrivateOfPublic(given):
			kind = "is of an internal host"
		}
		works := e.initializeAt(ctx, &best)
		seen := "the server gave " + probe.DisplayURL(given)
		if works != nil && works.Status/100 == 2 {
			seen += "; messages are taken at " + probe.DisplayURL(&best)
		}
		e.prober.addFinding("H21", doctor.Error, "The URL for messages "+kind, seen, means, do)
		return
	}
	r := e.initializeAt(ctx, given)
	if r.HasResult() || r.Err != nil || r.IsInconclusive() {
		e.reportNotInitialized(r)
		return
	}
	prefix := path.Dir(strings.TrimSuffix(e.prober.URL.Path, "/"))
	best.Path = path.Join(prefix, given.Path)
	if prefix != "/" && prefix != "." && !strings.HasPrefix(given.Path, prefix+"/") && r.Status/100 != 2 {
		if fixed := e.initializeAt(ctx, &best); fixed.Status/100 == 2 {
			e.prober.addFinding("H21", doctor.Error, "The URL for messages lacks the prefix of the proxy", "the server gave "+probe.DisplayURL(given)+": "+r.Summary()+"; messages are taken at "+probe.DisplayURL(&best), means, do)
			return
		}
	}
	if r.Status/100 != 2 {
		e.prober.addFinding("H21", doctor.Error, "Messages are refused at the URL that the server gives for them", "the server gave "+probe.DisplayURL(given)+": "+r.Summary(), means, do)
		return
	}
	e.reportNotInitialized(r)
}

// initializeAt sends initialize to endpoint, where messages are posted from now on, and keeps what the server answers.
func (e *sseSession) initializeAt(ctx context.Context, endpoint *url.URL) *probe.Reply {
	e.endpoint = endpoint
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	id := e.prober.NewID()
	r := e.askMessage(ctx, map[string]any{"jsonrpc": "2.0", "id": id, "method": "initialize", "params": map[string]any{
		"protocolVersion": era.NewestLegacy, "capabilities": map[string]any{}, "clientInfo": json.RawMessage(buildinfo.Implementation())}}, id, nil)
	if s := e.prober.sessionOf(r); s != nil {
		e.isInitialized, e.protocolVersion, e.capabilities = true, s.protocolVersion, s.capabilities
		e.prober.setFact("revision", "%s", s.protocolVersion)
		s.checkRevision()
		e.askMessage(ctx, map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"}, 0, nil)
	}
	return r
}

// reportNotInitialized adds the finding that says why there is no session, unless there is one: r is the reply to initialize.
func (e *sseSession) reportNotInitialized(r *probe.Reply) {
	switch {
	case e.isInitialized || r.IsInconclusive():
	case r.RPCError() != nil:
		e.prober.addFinding("H5", doctor.Error, "The server refuses to begin", r.BodyExcerpt(), "Clients cannot begin.", "Do what the error says, and look at the server's log.")
	case r.Err != nil && r.Status == 0:
		e.prober.addFinding("H21", doctor.Error, "Messages cannot be sent to the URL that the server gives for them", r.Summary(), "Clients cannot begin.", "Check that URL, and the log of what answers there.")
	default:
		e.prober.addFinding("H23", doctor.Error, "initialize gets no response", r.Summary()+"; nothing came on the event stream", "Clients wait until they give up.",
			"If there are several replicas, the message has reached another one than the stream: bind clients to a replica. Otherwise look at the server's log.")
	}
}
