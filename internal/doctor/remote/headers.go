package remote

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
)

// checkMediaTypes adds H10 if a Content-Type with a charset is refused.
func (p commonChecks) checkMediaTypes(ctx context.Context) {
	const charset = typeJSON + "; charset=utf-8"
	r := p.requester.ask(ctx, p.requester.harmlessMethod(), nil, func(q *probe.Request) { q.Header["Content-Type"] = charset })
	if r.Status == http.StatusUnsupportedMediaType {
		p.addFinding("H10", doctor.Warning, "A Content-Type with a charset is refused", "with Content-Type: "+charset+", "+r.Summary(),
			"Clients in .NET, Java and others send the charset: they are refused.", "Have the server compare the media type without its parameters.")
	}
}

// explainMediaTypes adds H10: the server refuses, with r, the Accept or Content-Type that the protocol prescribes. It tries
// others, and says with which the server answers.
func (p identification) explainMediaTypes(ctx context.Context, r *probe.Reply) {
	const both = typeJSON + ", " + typeSSE
	works := ""
	for _, try := range [][2]string{{"Accept", typeSSE}, {"Accept", typeJSON}, {"Accept", "*/*"}, {"Content-Type", typeJSON + "; charset=utf-8"}} {
		if p.initialize(ctx, func(q *probe.Request) { q.Header[try[0]] = try[1] }).HasResult() {
			works = "; with " + try[0] + ": " + try[1] + " it answers"
			break
		}
	}
	p.addFault(doctor.RefusesMediaTypes, "with Accept: "+both+" and Content-Type: "+typeJSON+", "+r.Summary()+works)
}

// browserOrigin is the Origin that the checks of CORS send: that of a page of the MCP Inspector.
const browserOrigin = "http://localhost:6274"

// checkCORS sends a preflight, as a browser does, and notes the fact "browsers": whether web pages are admitted. If they are,
// it adds H16 where they fail all the same.
func (p corsChecks) checkCORS(ctx context.Context) {
	needs, q := p.neededHeaders()
	q.Method, q.Body = http.MethodOptions, nil
	q.IsForOtherServer, q.Header = true, map[string]string{"Origin": browserOrigin, "Access-Control-Request-Method": http.MethodPost,
		"Access-Control-Request-Headers": strings.ToLower(strings.Join(needs, ","))}
	r := p.doAndCheck(ctx, q)
	allowed := r.Header.Get("Access-Control-Allow-Origin")
	if r.Err != nil || r.IsInconclusive() {
		return
	}
	if allowed != "*" && allowed != browserOrigin || r.Status/100 != 2 {
		p.setFact("browsers", "pages of %s are not admitted", browserOrigin)
		return
	}
	p.setFact("browsers", "pages of %s are admitted", browserOrigin)
	var missing []string
	for _, name := range needs {
		if !headerLists(r.Header, "Access-Control-Allow-Headers", name) && !(name != "Authorization" && headerLists(r.Header, "Access-Control-Allow-Headers", "*")) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		p.addCORS("Access-Control-Allow-Headers of the preflight lacks "+strings.Join(missing, ", "),
			"Access-Control-Allow-Headers: "+strings.Join(needs, ", "))
	}
	p.checkExposedHeaders(ctx)
}

// neededHeaders returns the names of the headers that a browser must ask permission for in a preflight, and a request with the
// URL to which it sends that.
func (p corsChecks) neededHeaders() (names []string, like probe.Request) {
	names = []string{"Content-Type"}
	if p.Header.Get("Authorization") != "" {
		names = append(names, "Authorization")
	}
	if p.found.legacy != nil || p.found.modern != nil {
		names = append(names, "MCP-Protocol-Version")
	}
	if p.found.legacy != nil && p.found.legacy.id != "" {
		names = append(names, "Mcp-Session-Id")
	}
	if p.found.modern != nil {
		names = append(names, "Mcp-Method", "Mcp-Name")
	}
	if p.found.sse != nil {
		return names, probe.Request{URL: p.found.sse.endpoint}
	}
	return names, probe.Request{}
}

// checkExposedHeaders adds H16 if a page may not read the replies to its requests, or the headers in them that it needs; and
// H15 if another session has another revision. It does nothing if no session with an id was found.
func (p corsChecks) checkExposedHeaders(ctx context.Context) {
	if p.found.legacy == nil || p.found.legacy.id == "" {
		return
	}
	fromPage := func(q *probe.Request) { q.Header["Origin"] = browserOrigin }
	r := p.initialize(ctx, fromPage)
	if !r.HasResult() {
		return
	}
	switch {
	case r.Header.Get("Access-Control-Allow-Origin") == "":
		p.addCORS("the preflight is answered, and the reply to POST has no Access-Control-Allow-Origin", "Access-Control-Allow-Origin: * (or the page's origin), on every reply")
		return
	case !headerLists(r.Header, "Access-Control-Expose-Headers", "Mcp-Session-Id") && !headerLists(r.Header, "Access-Control-Expose-Headers", "*"):
		p.addCORS("Access-Control-Expose-Headers of the reply to initialize lacks Mcp-Session-Id", "Access-Control-Expose-Headers: Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate")
	}
	if s := p.sessionOf(r); s != nil && s.protocolVersion != p.found.legacy.protocolVersion {
		p.addFinding("H15", doctor.Warning, "The negotiated version differs from one initialize to the next", fmt.Sprintf("%q, then %q", p.found.legacy.protocolVersion, s.protocolVersion),
			"Clients see other tools and rules from one session to the next.", "See whether all replicas of the server have the same version.")
	}
	gone := p.found.legacy.ask(ctx, "ping", nil, func(q *probe.Request) {
		fromPage(q)
		q.Header[headerSession] = "5a6f1c1e-0d0c-4b1e-9c57-3f1f2f7c9a11"
	})
	if gone.Status == http.StatusNotFound && gone.Header.Get("Access-Control-Allow-Origin") == "" {
		p.addCORS("the reply 404 to a session that is gone has no Access-Control-Allow-Origin", "Access-Control-Allow-Origin: * (or the page's origin), on errors too (nginx: add_header ... always)")
	}
}

// addCORS adds H16: pages are admitted, and fail all the same; do is the header to send.
func (p corsChecks) addCORS(seen, do string) {
	p.addFinding("H16", doctor.Warning, "Pages in browsers are admitted, and fail all the same (CORS)", "with Origin: "+browserOrigin+", "+seen,
		"Clients that run in a browser, such as the MCP Inspector without its proxy, cannot use the server.", "Send "+do+".")
}

// headerLists reports whether the value of a header, which is a list, has name in it.
func headerLists(h http.Header, header, name string) bool {
	return slices.ContainsFunc(strings.Split(strings.Join(h.Values(header), ","), ","), func(s string) bool {
		return strings.EqualFold(strings.TrimSpace(s), name)
	})
}
