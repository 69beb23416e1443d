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

// A session is one of Streamable HTTP, of a revision up to 2025-11-25, or a server that has none. It does not change once it is
// open.
type session struct {
	prober          *prober                    // makes the requests
	id              string                     // the session id; "": the server has no sessions
	protocolVersion string                     // the revision that was negotiated
	capabilities    map[string]json.RawMessage // those that the server has declared, by name
	initializeReply *probe.Reply               // the reply to initialize
}

// legacyHeader returns the headers of a POST without a session: Content-Type and Accept.
func legacyHeader() map[string]string {
	return map[string]string{"Content-Type": typeJSON, "Accept": typeJSON + ", " + typeSSE}
}

// initialize sends initialize; change, if not nil, changes how it is sent. A session that the reply opens is deleted by
// cleanup.
func (p *prober) initialize(ctx context.Context, change func(*probe.Request)) *probe.Reply {
	id := p.NewID()
	q := probe.Request{Header: legacyHeader(), ID: id, Body: probe.EncodeMessage(map[string]any{"jsonrpc": "2.0", "id": id, "method": "initialize", "params": map[string]any{
		"protocolVersion": era.NewestLegacy, "capabilities": map[string]any{}, "clientInfo": json.RawMessage(buildinfo.Implementation())}})}
	if change != nil {
		change(&q)
	}
	r := p.doAndCheck(ctx, q)
	if r.Header.Get(headerSession) != "" {
		p.deleteSessionAtEnd(r, q, r.HasResult())
	}
	return r
}

// deleteSessionAtEnd has cleanup delete the session that the reply r has opened. q is the request to which r is the reply: its
// address and headers are used. judge: H25 is added if that fails.
func (p *prober) deleteSessionAtEnd(r *probe.Reply, q probe.Request, judge bool) {
	if q.URL == nil {
		q.URL = p.URL
	}
	q.Method, q.Body, q.ID, q.UsesFreshConn, q.IgnoresRequestLimit = http.MethodDelete, nil, 0, false, true
	q.Header = maps.Clone(q.Header)
	for _, name := range []string{"Accept", "Content-Type", headerMethod, headerVersion} {
		delete(q.Header, name)
	}
	q.Header[headerSession] = r.Header.Get(headerSession)
	p.onCleanup(func(ctx context.Context) { p.deleteSession(ctx, q, judge) })
}

// sessionOf returns the session that r, the reply to initialize, has opened, and notes the fact "server"; nil: r has no result that can be
// read. With HTTP+SSE only the revision and the capabilities of the session count.
func (p *prober) sessionOf(r *probe.Reply) *session {
	var result struct {
		ProtocolVersion string                     `json:"protocolVersion"`
		Capabilities    map[string]json.RawMessage `json:"capabilities"`
		ServerInfo      struct{ Name, Version string }
	}
	if !r.HasResult() || json.Unmarshal(r.Result(), &result) != nil {
		return nil
	}
	s := &session{prober: p, id: r.Header.Get(headerSession), protocolVersion: result.ProtocolVersion, capabilities: result.Capabilities, initializeReply: r}
	p.setFact("server", "%s %s", result.ServerInfo.Name, result.ServerInfo.Version)
	return s
}

// harmlessMethod returns ping, which changes nothing; it implements requester.
func (s *session) harmlessMethod() string { return "ping" }

// hasCapability reports whether the server has declared a capability; it implements requester.
func (s *session) hasCapability(capability string) bool { return s.capabilities[capability] != nil }

// requestHeaders returns the headers of a POST of the session: those of legacyHeader, revision and session id.
func (s *session) requestHeaders() map[string]string {
	h := legacyHeader()
	h[headerVersion] = s.protocolVersion
	if s.id != "" {
		h[headerSession] = s.id
	}
	return h
}

// ask makes a request in the session; change, if not nil, changes how it is sent. It implements requester.
func (s *session) ask(ctx context.Context, method string, params map[string]any, change func(*probe.Request)) *probe.Reply {
	id := s.prober.NewID()
	m := map[string]any{"jsonrpc": "2.0", "id": id, "method": method}
	if params != nil {
		m["params"] = params
	}
	q := probe.Request{Header: s.requestHeaders(), ID: id, Body: probe.EncodeMessage(m)}
	if change != nil {
		change(&q)
	}
	return s.prober.doAndCheck(ctx, q)
}

// checkSession sends notifications/initialized and several pings over connections of their own, and adds what is wrong: H7 if the session
// is not found by each, H9 or H15 if headers of a session are the reason, or if the notification is refused. It reports whether the
// session can be used for further checks.
func (s *session) checkSession(ctx context.Context) bool {
	s.checkRevision()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	initialized := s.prober.doAndCheck(ctx, probe.Request{Header: s.requestHeaders(), Body: probe.EncodeMessage(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})})
	pings := s.pingConcurrently(ctx, affinityPings, func(q *probe.Request) { q.UsesFreshConn, q.NoCookies = true, true })
	good, lost, worst := countReplies(pings)
	switch {
	case good == len(pings) && initialized.Status/100 == 2:
		return true
	case good == len(pings) && initialized.Err == nil && !initialized.IsInconclusive() && !isSessionLost(initialized):
		s.prober.addFinding("H9", doctor.Warning, "The server refuses notifications/initialized", initialized.Summary(),
			"Several clients end the session when this notification fails.", "Have the server answer notifications 202.")
		return true
	case worst == nil || worst.IsInconclusive() || worst.TimedOut(checkTimeout/2):
		return good > 0 // too slow for so many at once, perhaps
	case lost == 0 && good > 0: // errors of another kind, now and then
		s.prober.addFinding("H7", doctor.Warning, "Some requests of a session fail", fmt.Sprintf("%d of %d pings on fresh connections failed; %s", len(pings)-good, len(pings), worst.Summary()),
			"Calls fail at random.", "Look at the logs of the server's replicas, and of what balances the load: one of them may be ill.")
		return false
	}
	if cookies := s.cookiesHelp(ctx); cookies || good > 0 {
		s.addNoAffinity(len(pings), lost, worst, cookies)
		return cookies
	}
	s.explainLostSession(ctx, worst)
	return false
}

// affinityPings is how many pings of one session checkSession sends, over connections of their own. If two replicas are taken
// at random, the chance that all pings reach the same one is below one percent.
const affinityPings = 8

// pingConcurrently sends n pings in the session at once; change changes how each is sent.
func (s *session) pingConcurrently(ctx context.Context, n int, change func(*probe.Request)) []*probe.Reply {
	replies := make([]*probe.Reply, n)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i] = s.ask(ctx, "ping", nil, change) })
	}
	all.Wait()
	return replies
}

// sessionErrorPattern matches what servers say of a session that they do not know.
var sessionErrorPattern = lazyregexp.New(`(?i)session|not initialized`)

// wasAnswered reports whether a request was answered by the server: with a result, or with an error that is not about the
// session. There are servers without ping.
func wasAnswered(r *probe.Reply) bool {
	return r.HasResult() || r.Err == nil && r.Status == http.StatusOK && r.RPCError() != nil && !sessionErrorPattern.MatchString(r.RPCError().Message)
}

// isSessionLost reports whether a reply says that there is no session with this id.
func isSessionLost(r *probe.Reply) bool {
	return r.Status == http.StatusNotFound || r.Status/100 == 4 && sessionErrorPattern.MatchString(r.BodyExcerpt()) ||
		r.Status == http.StatusOK && r.RPCError() != nil && sessionErrorPattern.MatchString(r.RPCError().Message)
}

// countReplies returns how many replies are answers (wasAnswered), how many say that there is no such session, and one of those
// that are no answer; bad is nil if all are.
func countReplies(replies []*probe.Reply) (good, lost int, bad *probe.Reply) {
	for _, r := range replies {
		switch {
		case wasAnswered(r):
			good++
			continue
		case isSessionLost(r):
			lost++
			bad = r
		case bad == nil:
			bad = r
		}
	}
	return good, lost, bad
}

// cookiesHelp reports whether pings over fresh connections find the session if they have the cookies that the server has set.
// It is false if there are none.
func (s *session) cookiesHelp(ctx context.Context) bool {
	if len(s.prober.Jar.Cookies(s.prober.URL)) == 0 {
		return false
	}
	good, _, _ := countReplies(s.pingConcurrently(ctx, 4, func(q *probe.Request) { q.UsesFreshConn = true }))
	return good == 4
}

// addNoAffinity adds H7: of n pings over fresh connections, lost did not find the session, as the reply bad says. cookies: with
// cookies all find it.
func (s *session) addNoAffinity(n, lost int, bad *probe.Reply, cookies bool) {
	seen := fmt.Sprintf("%d of %d pings of one session on fresh connections did not find it; %s", lost, n, bad.Summary())
	if cookies {
		s.prober.addFinding("H7", doctor.Warning, "Sessions are bound to a replica by a cookie only", seen+"; with the cookies of the first reply, all do",
			"Clients that keep no cookies (most do not) lose their session again and again.",
			"Bind sessions by the Mcp-Session-Id header (or by the client's address) where the load is balanced, or keep sessions in a store that all replicas share.")
		return
	}
	if lost == n {
		s.prober.addFinding("H7", doctor.Error, "The session that the server has opened is not known to it", seen, "Clients begin, and then every call fails.",
			"If there are several replicas, see that requests of a session reach the one that has opened it. Otherwise look at the server's log.")
		return
	}
	s.prober.addFinding("H7", doctor.Error, doctor.ReplicasLoseSessions.Title, seen,
		fmt.Sprintf("About %d %% of all calls fail, and clients begin new sessions again and again.", 100*lost/n),
		doctor.ReplicasLoseSessions.Advice)
}

// explainLostSession adds the finding that says why no request of the session is answered (H7, H9, H15). bad is one of the
// replies.
func (s *session) explainLostSession(ctx context.Context, bad *probe.Reply) {
	without := s.ask(ctx, "ping", nil, func(q *probe.Request) { delete(q.Header, headerVersion) })
	if wasAnswered(without) {
		s.prober.addFinding("H15", doctor.Error, "The server refuses the protocol version that it has chosen", fmt.Sprintf("with MCP-Protocol-Version: %s: %s; without the header it works", s.protocolVersion, bad.Summary()),
			"Clients send this header with every request after initialize: all of them fail.",
			"Correct the server, or whatever checks this header before it: the version in the answer to initialize must be admitted.")
		return
	}
	if without.IsInconclusive() {
		return
	}
	if s.id == "" {
		if missingPattern.MatchString(bad.BodyExcerpt()) && sessionErrorPattern.MatchString(bad.BodyExcerpt()) {
			s.prober.addFinding("H9", doctor.Error, "The Mcp-Session-Id header of the server is lost on the way", "the answer to initialize had none, and then: "+bad.Summary(),
				"Clients do not learn the session's id: every call fails.", passHeaderAdvice(s.prober, "Mcp-Session-Id", "of replies"))
			return
		}
		s.addNoAnswerInSession("ping", bad)
		return
	}
	none := s.ask(ctx, "ping", nil, func(q *probe.Request) { delete(q.Header, headerSession) })
	switch {
	case isSessionLost(bad) && none.Status == bad.Status && none.BodyExcerpt() == bad.BodyExcerpt() && missingPattern.MatchString(bad.BodyExcerpt()):
		s.prober.addFinding("H9", doctor.Error, "The Mcp-Session-Id header of clients is lost on the way", "with and without the header: "+bad.Summary(),
			"The server does not learn which session a call is of: every call fails.", passHeaderAdvice(s.prober, "Mcp-Session-Id", "of requests"))
	case isSessionLost(bad):
		s.addNoAffinity(affinityPings, affinityPings, bad, false)
	default:
		s.addNoAnswerInSession("ping", bad)
	}
}

// missingPattern matches what servers say of something that did not come, such as a header.
var missingPattern = lazyregexp.New(`(?i)missing|required|without|absent|not (present|provided|sent|set)|no (valid )?(session|mcp)|must (have|include|be)`)

// passHeaderAdvice returns the advice for a header that is lost on its way; of is "of requests" or "of replies".
func passHeaderAdvice(p *prober, name, of string) string {
	return "Have every proxy, gateway and firewall before the server pass the " + name + " header " + of + " on; many have a list of headers that they let through."
}

// addNoAnswerInSession adds H7: the server opens sessions, but answers method in them with bad.
func (s *session) addNoAnswerInSession(method string, bad *probe.Reply) {
	s.prober.addFinding("H7", doctor.Error, "The server opens a session and does not answer in it", method+": "+bad.Summary(),
		"Clients can connect, and every call fails.", "Look at the server's log; if there are several replicas, see whether each knows the sessions of the others.")
}

// checkRevision adds H15 if the revision that was negotiated is none that has initialize.
func (s *session) checkRevision() {
	switch v := s.protocolVersion; {
	case era.IsLegacy(v):
	case era.IsStateless(v):
		s.prober.addFinding("H15", doctor.Warning, "initialize is answered with a revision that has no initialize", "protocolVersion "+strconv.Quote(v),
			"Clients of older revisions refuse to go on; those of the new one do not ask with initialize.",
			"Have the server answer initialize with "+era.NewestLegacy+" or older, or refuse it with error -32022.")
	default:
		s.prober.addFinding("H15", doctor.Error, "The server chooses a protocol version that does not exist", "protocolVersion "+strconv.Quote(v),
			"Clients refuse to go on with a version that they do not know.", "Have the server answer with the version that was asked for, or with the newest one that it knows.")
	}
}

// checkUnknownSession sends a request with a session id that nobody has, and adds H8 if it is not answered as such. It does
// nothing if s is nil or has no id.
func (s *session) checkUnknownSession(ctx context.Context) {
	if s == nil || s.id == "" {
		return
	}
	const unknown = "5a6f1c1e-0d0c-4b1e-9c57-3f1f2f7c9a10" // nobody else's either
	r := s.ask(ctx, "ping", nil, func(q *probe.Request) { q.Header[headerSession] = unknown })
	switch {
	case r.Err != nil || r.IsInconclusive() || r.Status == http.StatusNotFound || r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden:
		return
	case wasAnswered(r): // the server does not need its sessions
		return
	}
	s.prober.addFault(doctor.UnknownSessionNot404, "with an unknown session id, "+r.Summary())
}

// deleteSession deletes a session with the request q. judge: it adds H25 if that fails.
func (p *prober) deleteSession(ctx context.Context, q probe.Request, judge bool) {
	r := p.Start(ctx, q)
	r.Close()
	switch {
	case !judge || r.Err != nil || r.IsInconclusive() || r.Status/100 == 2 || r.Status == http.StatusNotFound || p.report.HasFinding("H7") || p.report.HasFinding("H9"):
	case r.Status >= 500 && r.Status != http.StatusNotImplemented:
		p.addFault(doctor.DeleteFails, r.Summary())
	default:
		p.addFault(doctor.DeleteUnsupported, r.Summary())
	}
}
