package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
)

// A session is one of Streamable HTTP, of a revision up to 2025-11-25. What is in it is
// not changed once it is open.
type session struct {
	p            *prober
	id           string // "": the server has no sessions
	version      string
	capabilities map[string]json.RawMessage // the server's capabilities
	first        *probe.Reply               // to initialize
}

// legacyHeader is what a POST without a session has.
func legacyHeader() map[string]string {
	return map[string]string{"Content-Type": typeJSON, "Accept": typeJSON + ", " + typeSSE}
}

// initialize asks for a session; change, if not nil, changes how.
func (p *prober) initialize(ctx context.Context, change func(*probe.Request)) *probe.Reply {
	id := p.NewID()
	q := probe.Request{Header: legacyHeader(), ID: id, Body: probe.BodyOf(map[string]any{"jsonrpc": "2.0", "id": id, "method": "initialize", "params": map[string]any{
		"protocolVersion": era.NewestLegacy, "capabilities": map[string]any{}, "clientInfo": json.RawMessage(buildinfo.Implementation())}})}
	if change != nil {
		change(&q)
	}
	r := p.do(ctx, q)
	if r.Header.Get(headerSession) != "" {
		p.endAtEnd(r, q, r.OK())
	}
	return r
}

// endAtEnd has the session deleted in the end that a reply has opened, in the way in which
// it was asked for with q; judge: and what comes of that is looked at.
func (p *prober) endAtEnd(r *probe.Reply, q probe.Request, judge bool) {
	if q.URL == nil {
		q.URL = p.URL
	}
	q.Method, q.Body, q.ID, q.Fresh, q.Must = http.MethodDelete, nil, 0, false, true
	q.Header = maps.Clone(q.Header)
	for _, name := range []string{"Accept", "Content-Type", headerMethod, headerVersion} {
		delete(q.Header, name)
	}
	q.Header[headerSession] = r.Header.Get(headerSession)
	p.atEnd(func(ctx context.Context) { p.endSession(ctx, q, judge) })
}

// sessionOf returns the session that the reply to initialize has opened; nil: none.
func (p *prober) sessionOf(r *probe.Reply) *session {
	var result struct {
		ProtocolVersion string                     `json:"protocolVersion"`
		Capabilities    map[string]json.RawMessage `json:"capabilities"`
		ServerInfo      struct{ Name, Version string }
	}
	if !r.OK() || json.Unmarshal(r.Result(), &result) != nil {
		return nil
	}
	s := &session{p: p, id: r.Header.Get(headerSession), version: result.ProtocolVersion, capabilities: result.Capabilities, first: r}
	p.fact("server", "%s %s", result.ServerInfo.Name, result.ServerInfo.Version)
	return s
}

func (s *session) harmless() string { return "ping" }

func (s *session) hasCapability(capability string) bool { return s.capabilities[capability] != nil }

// headers returns what each request of the session has.
func (s *session) headers() map[string]string {
	h := legacyHeader()
	h[headerVersion] = s.version
	if s.id != "" {
		h[headerSession] = s.id
	}
	return h
}

func (s *session) ask(ctx context.Context, method string, params map[string]any, change func(*probe.Request)) *probe.Reply {
	id := s.p.NewID()
	m := map[string]any{"jsonrpc": "2.0", "id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	q := probe.Request{Header: s.headers(), ID: id, Body: probe.BodyOf(m)}
	if change != nil {
		change(&q)
	}
	return s.p.do(ctx, q)
}

// check says whether the session works at all: with any connection (H7), with the
// headers that belong to it (H9, H15). It returns whether it does.
func (s *session) check(ctx context.Context) bool {
	s.checkRevision()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	initialized := s.p.do(ctx, probe.Request{Header: s.headers(), Body: probe.BodyOf(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})})
	pings := s.pings(ctx, affinityPings, func(q *probe.Request) { q.Fresh, q.NoCookies = true, true })
	good, lost, worst := count(pings)
	switch {
	case good == len(pings) && initialized.Status/100 == 2:
		return true
	case good == len(pings) && initialized.Err == nil && !initialized.Skip() && !isLost(initialized):
		s.p.add("H9", doctor.Warning, "The server refuses notifications/initialized", initialized.Line(),
			"Several clients end the session when this notification fails.", "Have the server answer notifications 202.")
		return true
	case worst == nil || worst.Skip() || worst.TimedOut(checkTimeout/2):
		return good > 0 // too slow for so many at once, perhaps
	case lost == 0 && good > 0: // errors of another kind, now and then
		s.p.add("H7", doctor.Warning, "Some requests of a session fail", fmt.Sprintf("%d of %d pings on fresh connections failed; %s", len(pings)-good, len(pings), worst.Line()),
			"Calls fail at random.", "Look at the logs of the server's replicas, and of what balances the load: one of them may be ill.")
		return false
	}
	if cookies := s.cookiesHelp(ctx); cookies || good > 0 {
		s.sayNoAffinity(len(pings), lost, worst, cookies)
		return cookies
	}
	s.explainLost(ctx, worst)
	return false
}

// affinityPings is how many pings of one session go out on connections of their own. That
// two replicas, taken at random, hide behind so many has a probability below one percent.
const affinityPings = 8

// pings makes n pings at once.
func (s *session) pings(ctx context.Context, n int, change func(*probe.Request)) []*probe.Reply {
	replies := make([]*probe.Reply, n)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i] = s.ask(ctx, "ping", nil, change) })
	}
	all.Wait()
	return replies
}

// aboutSession matches what servers say of a session that they do not know.
var aboutSession = lazyregexp.New(`(?i)session|not initialized`)

// wasAnswered reports whether a request was answered: also with an error, as long as that is
// not about the session. There are servers without ping.
func wasAnswered(r *probe.Reply) bool {
	return r.OK() || r.Err == nil && r.Status == http.StatusOK && r.RPC() != nil && !aboutSession.MatchString(r.RPC().Message)
}

// isLost reports whether a reply says that there is no such session.
func isLost(r *probe.Reply) bool {
	return r.Status == http.StatusNotFound || r.Status/100 == 4 && aboutSession.MatchString(r.Excerpt()) ||
		r.Status == http.StatusOK && r.RPC() != nil && aboutSession.MatchString(r.RPC().Message)
}

// count returns how many replies have a result, how many say that there is no such
// session, and one that has no result.
func count(replies []*probe.Reply) (good, lost int, bad *probe.Reply) {
	for _, r := range replies {
		switch {
		case wasAnswered(r):
			good++
			continue
		case isLost(r):
			lost++
			bad = r
		case bad == nil:
			bad = r
		}
	}
	return good, lost, bad
}

// cookiesHelp reports whether the session is found by requests with the cookies that came
// with it.
func (s *session) cookiesHelp(ctx context.Context) bool {
	if len(s.p.Jar.Cookies(s.p.URL)) == 0 {
		return false
	}
	good, _, _ := count(s.pings(ctx, 4, func(q *probe.Request) { q.Fresh = true }))
	return good == 4
}

func (s *session) sayNoAffinity(n, lost int, bad *probe.Reply, cookies bool) {
	seen := fmt.Sprintf("%d of %d pings of one session on fresh connections did not find it; %s", lost, n, bad.Line())
	if cookies {
		s.p.add("H7", doctor.Warning, "Sessions are bound to a replica by a cookie only", seen+"; with the cookies of the first reply, all do",
			"Clients that keep no cookies (most do not) lose their session again and again.",
			"Bind sessions by the Mcp-Session-Id header (or by the client's address) where the load is balanced, or keep sessions in a store that all replicas share.")
		return
	}
	if lost == n {
		s.p.add("H7", doctor.Error, "The session that the server has opened is not known to it", seen, "Clients begin, and then every call fails.",
			"If there are several replicas, see that requests of a session reach the one that has opened it. Otherwise look at the server's log.")
		return
	}
	s.p.add("H7", doctor.Error, doctor.LosesSessions.Title, seen,
		fmt.Sprintf("About %d %% of all calls fail, and clients begin new sessions again and again.", 100*lost/n),
		doctor.LosesSessions.Do)
}

// explainLost says why no request of the session works.
func (s *session) explainLost(ctx context.Context, bad *probe.Reply) {
	without := s.ask(ctx, "ping", nil, func(q *probe.Request) { delete(q.Header, headerVersion) })
	if wasAnswered(without) {
		s.p.add("H15", doctor.Error, "The server refuses the protocol version that it has chosen", fmt.Sprintf("with MCP-Protocol-Version: %s: %s; without the header it works", s.version, bad.Line()),
			"Clients send this header with every request after initialize: all of them fail.",
			"Correct the server, or whatever checks this header before it: the version in the answer to initialize must be admitted.")
		return
	}
	if without.Skip() {
		return
	}
	if s.id == "" {
		if missing.MatchString(bad.Excerpt()) && aboutSession.MatchString(bad.Excerpt()) {
			s.p.add("H9", doctor.Error, "The Mcp-Session-Id header of the server is lost on the way", "the answer to initialize had none, and then: "+bad.Line(),
				"Clients do not learn the session's id: every call fails.", passHeader(s.p, "Mcp-Session-Id", "of replies"))
			return
		}
		s.sayNoAnswerInSession("ping", bad)
		return
	}
	none := s.ask(ctx, "ping", nil, func(q *probe.Request) { delete(q.Header, headerSession) })
	switch {
	case isLost(bad) && none.Status == bad.Status && none.Excerpt() == bad.Excerpt() && missing.MatchString(bad.Excerpt()):
		s.p.add("H9", doctor.Error, "The Mcp-Session-Id header of clients is lost on the way", "with and without the header: "+bad.Line(),
			"The server does not learn which session a call is of: every call fails.", passHeader(s.p, "Mcp-Session-Id", "of requests"))
	case isLost(bad):
		s.sayNoAffinity(affinityPings, affinityPings, bad, false)
	default:
		s.sayNoAnswerInSession("ping", bad)
	}
}

// missing matches what servers say of a header that did not come.
var missing = lazyregexp.New(`(?i)missing|required|without|absent|not (present|provided|sent|set)|no (valid )?(session|mcp)|must (have|include|be)`)

// passHeader says what to do about a header that is lost.
func passHeader(p *prober, name, of string) string {
	return "Have every proxy, gateway and firewall before the server pass the " + name + " header " + of + " on; many have a list of headers that they let through."
}

// sayNoAnswerInSession says that the server opens sessions but does not answer in them.
func (s *session) sayNoAnswerInSession(method string, bad *probe.Reply) {
	s.p.add("H7", doctor.Error, "The server opens a session and does not answer in it", method+": "+bad.Line(),
		"Clients can connect, and every call fails.", "Look at the server's log; if there are several replicas, see whether each knows the sessions of the others.")
}

// checkRevision looks at the version that was negotiated.
func (s *session) checkRevision() {
	switch v := s.version; {
	case era.IsLegacy(v):
	case era.IsStateless(v):
		s.p.add("H15", doctor.Warning, "initialize is answered with a revision that has no initialize", "protocolVersion "+strconv.Quote(v),
			"Clients of older revisions refuse to go on; those of the new one do not ask with initialize.",
			"Have the server answer initialize with "+era.NewestLegacy+" or older, or refuse it with error -32022.")
	default:
		s.p.add("H15", doctor.Error, "The server chooses a protocol version that does not exist", "protocolVersion "+strconv.Quote(v),
			"Clients refuse to go on with a version that they do not know.", "Have the server answer with the version that was asked for, or with the newest one that it knows.")
	}
}

// checkUnknown sees what becomes of a client whose session the server has forgotten (H8).
func (s *session) checkUnknown(ctx context.Context) {
	if s == nil || s.id == "" {
		return
	}
	const unknown = "5a6f1c1e-0d0c-4b1e-9c57-3f1f2f7c9a10" // nobody else's either
	r := s.ask(ctx, "ping", nil, func(q *probe.Request) { q.Header[headerSession] = unknown })
	switch {
	case r.Err != nil || r.Skip() || r.Status == http.StatusNotFound || r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden:
		return
	case wasAnswered(r): // it does not need its sessions
		return
	}
	s.p.fault(doctor.Not404, "with an unknown session id, "+r.Line())
}

// endSession deletes a session; judge: and says what is wrong with that (H25).
func (p *prober) endSession(ctx context.Context, q probe.Request, judge bool) {
	r := p.Start(ctx, q)
	r.Close()
	switch {
	case !judge || r.Err != nil || r.Skip() || r.Status/100 == 2 || r.Status == http.StatusNotFound || p.report.Has("H7") || p.report.Has("H9"):
	case r.Status >= 500 && r.Status != http.StatusNotImplemented:
		p.fault(doctor.FailsDelete, r.Line())
	default:
		p.fault(doctor.NoDelete, r.Line())
	}
}
