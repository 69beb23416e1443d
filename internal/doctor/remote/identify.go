package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
)

// identify finds out which protocols the address speaks, and notes the facts. If the address speaks none, identify adds the finding that
// says why. It follows one redirect.
func (p identification) identify(ctx context.Context) foundProtocols {
	for moved := false; ; moved = true {
		f, legacy, modern := p.probeBothEras(ctx)
		if f.legacy != nil || f.modern != nil {
			p.noteFound(f, legacy, modern)
			return f
		}
		if target := p.checkRedirect(legacy); target != nil && !moved {
			p.MoveTo(target)
			continue
		}
		f.sse = p.findSSE(ctx, legacy)
		switch {
		case f.sse != nil:
			p.setFact("transport", "HTTP+SSE, of revision %s", era.Version2024_11_05)
		case !p.hasBufferedStream.Load():
			p.explainNoMCP(ctx, legacy, modern)
		}
		return f
	}
}

// probeBothEras sends initialize and server/discover at the same time. It returns both replies (legacy and modern), and which
// protocols they tell of.
func (p identification) probeBothEras(ctx context.Context) (f foundProtocols, legacy, modern *probe.Reply) {
	var both sync.WaitGroup
	both.Go(func() { modern = p.discover(ctx) })
	both.Go(func() { legacy = p.initialize(ctx, nil) })
	both.Wait()
	if legacy.Err == nil { // its cookies are those of the session
		p.Jar.SetCookies(p.URL, (&http.Response{Header: legacy.Header}).Cookies())
	}
	return foundProtocols{legacy: p.sessionOf(legacy), modern: p.modernServerOf(modern)}, legacy, modern
}

// noteFound notes the facts about a server that speaks Streamable HTTP, and adds what is wrong with its clock, or with its
// answer to server/discover. legacy and modern are the replies to initialize and server/discover.
func (p identification) noteFound(f foundProtocols, legacy, modern *probe.Reply) {
	sessions := "without sessions"
	if f.legacy != nil && f.legacy.id != "" {
		sessions = "with sessions"
	}
	first := legacy
	if f.legacy == nil {
		first = modern
	}
	p.setFact("transport", "Streamable HTTP, %s, %s", first.Proto, sessions)
	p.setFact("revision", "%s", f.revisions())
	p.setFact("first answer", "%s, as %s", millis(first.Duration), first.MediaType())
	if off := describeClockSkew(first.Header, nil); off != "" {
		p.addFinding("H2", doctor.Note, "The clocks of this machine and of the server differ", off,
			"Tokens and certificates that are good may be refused.", "Set both clocks (NTP).")
	}
	if f.modern == nil {
		p.addDroppedHeader(modern)
		p.addNewestFails(modern)
	}
}

// checkRedirect adds H4 or H5 if r, the reply to a POST, is a redirect, and returns the address at which to go on; nil: r is
// none, or leads to nothing that may be examined.
func (p identification) checkRedirect(r *probe.Reply) *url.URL {
	if r.Err != nil || r.Status/100 != 3 || r.Status == http.StatusNotModified {
		return nil
	}
	target, err := p.URL.Parse(r.Header.Get("Location"))
	if err != nil || r.Header.Get("Location") == "" || target.Host == "" {
		p.addFinding("H4", doctor.Error, "POST is redirected to nowhere", r.Summary(), "Every client fails.", "Correct the redirect: it has no Location, or no valid one.")
		return nil
	}
	target.User = nil
	p.HideURLCredentials(target)
	same := httpdial.SameOrigin(p.URL, target)
	keeps := r.Status == http.StatusTemporaryRedirect || r.Status == http.StatusPermanentRedirect
	seen := fmt.Sprintf("POST was answered %d %s, Location: %s", r.Status, http.StatusText(r.Status), probe.DisplayURL(target))
	do := "Use the URL " + probe.URLForUser(target) + "."
	switch {
	case loginPagePattern.MatchString(target.Path) || loginPagePattern.MatchString(target.Host):
		p.addFinding("H5", doctor.Error, "A login page answers instead of MCP", seen, "Clients of MCP cannot sign in on a page.",
			"Exempt this path from the login of the proxy or portal before the server; protect it with tokens (Authorization: Bearer) or OAuth as MCP has it.")
		return nil
	case p.URL.Scheme == "https" && target.Scheme == "http":
		p.addFinding("H4", doctor.Error, "POST is redirected from https to http", seen, "Clients refuse to follow, or send their credentials in the clear.",
			"The server does not know that there is TLS before it: have the proxy send X-Forwarded-Proto and the server trust it, or use the URL that it redirects to, with https.")
		if httpdial.SameOrigin(p.URL, &url.URL{Scheme: "https", Host: target.Host}) {
			target.Scheme = "https" // what the user is told to try
			return target
		}
		return nil
	case !keeps:
		p.addFinding("H4", doctor.Error, "POST is redirected in a way that turns it into GET", seen,
			"With 301, 302 and 303 clients repeat the request as GET, without its message.", do)
	case !same:
		p.addFinding("H4", doctor.Error, "POST is redirected to another server", seen,
			"Clients do not follow, or follow without their credentials.", do+" Do so only if you trust that server.")
	default:
		p.addFinding("H4", doctor.Note, "POST is redirected", seen, "Each message takes two round trips, and some clients do not follow.", do)
	}
	if !same {
		return nil
	}
	return target
}

// loginPagePattern matches paths and hosts of pages where people sign in.
var loginPagePattern = lazyregexp.New(`(?i)\b(log-?in|sign-?in|sso|oauth2?/(start|authorize|sign_in)|saml|auth/realms)\b|^(login|accounts|sso|auth)\.|cloudflareaccess`)

// explainNoMCP adds the finding that says why nothing at the address speaks MCP. legacy and modern are the replies to
// initialize and server/discover.
func (p identification) explainNoMCP(ctx context.Context, legacy, modern *probe.Reply) {
	r := legacy
	switch {
	case r.IsInconclusive() || modern.IsInconclusive():
	case r.Err != nil && r.Status == 0:
		p.explainNoReply(ctx, r)
	case r.Status/100 == 3: // said before
	case r.Header.Get("Cf-Mitigated") != "" || r.Status == http.StatusForbidden && r.IsHTML() && botChallengePattern.Match(r.Text):
		p.addFinding("H5", doctor.Error, "A check for bots answers instead of MCP", r.Summary(), "Clients of MCP cannot solve such a challenge.",
			"Exempt this path from the bot protection at "+r.Intermediary()+".")
	case saysTLSNeeded(r):
		p.addOtherScheme(ctx, r)
	case r.Status == http.StatusUnauthorized:
		authorization(p).checkAuthorization(ctx, r)
	case r.Status == http.StatusForbidden || r.Status == http.StatusMisdirectedRequest || refusedHostPattern.MatchString(r.BodyExcerpt()):
		p.explainForbidden(ctx, r)
	case r.Status == http.StatusNotAcceptable || r.Status == http.StatusUnsupportedMediaType:
		p.explainMediaTypes(ctx, r)
	case r.Status == http.StatusNotFound || r.Status == http.StatusMethodNotAllowed || r.Status == http.StatusNotImplemented:
		p.checkPath(ctx, r)
	case r.Status >= 500:
		p.explainFailure(r)
	case r.IsHTML():
		p.checkPath(ctx, r)
	case p.addDroppedHeader(modern) || p.report.HasFinding("H10") || p.report.HasFinding("H22") || p.report.HasFinding("H23"):
	default:
		p.explainOtherAnswer(r, modern)
	}
}

// botChallengePattern matches pages that stand in the way of bots, such as a captcha.
var botChallengePattern = lazyregexp.New(`(?i)just a moment|captcha|are you (a )?human|challenge-platform|access denied.*bot`)

// explainNoReply adds the finding that says why there is no reply at all; r has the error.
func (p identification) explainNoReply(ctx context.Context, r *probe.Reply) {
	text := r.Err.Error()
	switch {
	case isAboutOurCertificate(r.Err):
		connection(p).addOurCertificateFinding(r.Err)
	case p.URL.Scheme == "http" && (strings.Contains(text, "malformed HTTP") || errors.Is(r.Err, io.EOF) || errors.Is(r.Err, io.ErrUnexpectedEOF) || strings.Contains(text, "reset")) && p.speaksTLS(ctx):
		p.addOtherScheme(ctx, r)
	case strings.Contains(text, "malformed HTTP"):
		p.addFinding("H5", doctor.Error, "What answers does not speak HTTP", "the answer to POST is no HTTP", "No client can talk with it over HTTP.",
			"Check the port: perhaps another service listens there.")
	case r.TimedOut(p.ReplyTimeout):
		p.addFinding("H1", doctor.Error, "The server takes requests and does not answer", "DNS, connect and TLS work; the answer to initialize did not come in "+p.ReplyTimeout.String(),
			"Clients wait until they give up, after a minute mostly.", "If the server needs that long to start, try again, or with --slow. Look at the server's log: perhaps it hangs while it starts. If it answers without a proxy, the proxy holds back its answer: turn off buffering for this path.")
	case strings.Contains(text, "Proxy Authentication Required") || strings.Contains(text, "proxyconnect"):
		p.addFinding("H1", doctor.Error, "The proxy in the environment does not let the connection through", probe.NetErrorText(r.Err), "Clients with this environment do not get to the server.",
			"Give the proxy's credentials in HTTPS_PROXY, or name the server's host in NO_PROXY.")
	default:
		p.addFinding("H1", doctor.Error, "The connection is lost before the answer", "the request was sent; "+probe.NetErrorText(r.Err), "Clients fail.",
			"Look at the log of the server, and of what stands before it: one of them ends the connection.")
	}
}

// saysTLSNeeded reports whether a reply says that the client has spoken HTTP at a port for HTTPS.
func saysTLSNeeded(r *probe.Reply) bool {
	return r.Status == http.StatusBadRequest && (strings.Contains(string(r.Text), "HTTP request to an HTTPS server") || strings.Contains(string(r.Text), "HTTP request was sent to HTTPS port"))
}

// speaksTLS reports whether the port in the server's URL, which is an http URL, answers a TLS handshake.
func (p identification) speaksTLS(ctx context.Context) bool {
	address := p.URL.Host
	if p.URL.Port() == "" {
		address = net.JoinHostPort(p.URL.Hostname(), "80")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, ServerName: p.URL.Hostname()}} // nothing is sent over it
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// addOtherScheme adds H3: an http URL was given for a port that speaks TLS. r is the reply.
func (p identification) addOtherScheme(_ context.Context, r *probe.Reply) {
	other := *p.URL
	other.Scheme = "https"
	p.addFinding("H3", doctor.Error, "The server speaks TLS at this port", r.Summary(), "An http:// URL cannot work there.", "Use "+probe.URLForUser(&other)+".")
}

// refusedHostPattern matches what servers say of a Host or an Origin that they do not admit.
var refusedHostPattern = lazyregexp.New(`(?i)invalid host|invalid origin|\bhost\b.*(not (allowed|admitted|permitted)|refused|rejected|mismatch)|\borigin\b.*(not (allowed|admitted|permitted)|refused|rejected)|forbidden origin|dns rebinding`)

// explainForbidden adds H17 if r refuses the request for its Origin or Host, or H5 if a page does so. If it is neither, it
// looks at the credentials (H18).
func (p identification) explainForbidden(ctx context.Context, r *probe.Reply) {
	try := func(change func(*probe.Request)) bool {
		a := p.initialize(ctx, change)
		return a.HasResult() || a.RPCError() != nil && a.Status != r.Status
	}
	const means = "The server guards against DNS rebinding: it admits only hosts and origins that it knows."
	if origin := p.Header.Get("Origin"); origin != "" && try(func(q *probe.Request) { q.Header["Origin"] = "" }) {
		p.addFinding("H17", doctor.Error, "The Origin is refused", "with Origin: "+origin+", "+r.Summary()+"; without it the server answers", means,
			"Allow the origin at the server, or do not send the header.")
		return
	}
	host := p.Host
	if host == "" {
		host = p.URL.Host
	}
	local := "localhost"
	if port := p.URL.Port(); port != "" {
		local += ":" + port
	}
	named := refusedHostPattern.MatchString(r.BodyExcerpt()) || r.Status == http.StatusMisdirectedRequest
	if works := try(func(q *probe.Request) { q.Host = local }); works || named {
		seen := "with Host: " + host + ", " + r.Summary()
		if works {
			seen += "; with Host: " + local + " it answers"
		}
		p.addFinding("H17", doctor.Error, "The host name is refused", seen, means+" Every client that uses this name is refused.",
			"Allow the host "+host+" at the server (--allow-host, allowed_hosts, allowedHosts), or have the proxy before it send the Host that it expects.")
		return
	}
	if r.IsHTML() {
		p.addFinding("H5", doctor.Error, "Something before the server refuses the request", r.Summary(), "Clients do not get to the server.",
			"Look at the rules of the firewall or the proxy that answers: "+r.Intermediary()+".")
		return
	}
	authorization(p).checkAuthorization(ctx, r)
}

// explainFailure adds H5: the server, or what stands before it, answers with the status 5xx of r.
func (p identification) explainFailure(r *probe.Reply) {
	title, do := "The server fails when a client begins", "Look at the server's log."
	switch r.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		title = "A gateway answers, and the server behind it does not"
		do = "See whether the server runs, and whether " + r.Intermediary() + " has its address and path right."
		if after := r.Header.Get("Retry-After"); after != "" {
			do += " It says to try again in " + after + " s."
		}
	}
	p.addFinding("H5", doctor.Error, title, r.Summary(), "Clients cannot begin.", do)
}

// explainOtherAnswer adds the finding for an answer that is none of those that explainNoMCP tells apart. r and modern are the
// replies to initialize and server/discover.
func (p identification) explainOtherAnswer(r, modern *probe.Reply) {
	e := r.RPCError()
	switch {
	case e != nil && (e.Code == era.CodeUnsupportedVersion || strings.Contains(strings.ToLower(e.Message), "protocol version")):
		p.addFinding("H15", doctor.Error, "The server takes none of the protocol versions that are known", r.Summary()+"; server/discover: "+modern.Summary(),
			"Clients cannot begin.", "Update the server, or the clients: they have no version in common.")
	case e != nil && missingHeaderPattern.MatchString(e.Message):
		p.addFinding("H9", doctor.Error, "A header of clients is lost on the way", "it was sent, and "+r.Summary(), "Clients cannot begin.", passHeaderAdvice(p.prober, "missing", "of requests"))
	case e != nil:
		p.addFinding("H5", doctor.Error, "The server refuses to begin", r.Summary(), "Clients cannot begin.", "Do what the error says, and look at the server's log.")
	case r.Status/100 == 2 && len(r.Text) == 0 && r.EventCount == 0:
		p.addFinding("H23", doctor.Error, "initialize gets no response", r.Summary()+", with an empty body", "Clients wait until they give up.",
			"Have the server answer a request in the reply to its own POST.")
	default:
		p.addFinding("H5", doctor.Error, "What answers does not speak MCP", r.Summary(), "Clients cannot begin.", "Check the URL: perhaps it is that of another service.")
	}
}

// checkPath looks for an MCP server at other paths of the site, and adds H5 or H6. r is the reply that says that there is none
// at the given path.
func (p identification) checkPath(ctx context.Context, r *probe.Reply) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	paths := []string{"/mcp", "/sse", "/"}
	works := make([]string, len(paths))
	var all sync.WaitGroup
	for i, path := range paths {
		u := *p.URL
		u.Path, u.RawPath, u.RawQuery = path, "", ""
		if path == p.URL.Path || path == "/" && p.URL.Path == "" {
			continue
		}
		all.Go(func() {
			if p.speaksMCPAt(ctx, &u) {
				works[i] = probe.DisplayURL(&u)
			}
		})
	}
	var resource string
	all.Go(func() { resource = authorization(p).publishedResource(ctx) })
	all.Wait()
	at := slices.DeleteFunc(works, func(u string) bool { return u == "" })
	if resource != "" && resource != p.URL.String() {
		at = append(at, resource+" (says the metadata of the site)")
	}
	if len(at) > 0 {
		p.addFinding("H6", doctor.Error, "The server is at another path", r.Summary()+"; an MCP server is at "+strings.Join(at, ", "), "Clients with this URL fail.", "Use "+strings.TrimSuffix(at[0], " (says the metadata of the site)")+".")
		return
	}
	if r.IsHTML() && r.Status/100 == 2 {
		p.addFinding("H5", doctor.Error, doctor.WebPageAnswers.Title, r.Summary(), doctor.WebPageAnswers.Consequence,
			"Check the path of the URL; tried without success: /mcp, /sse, /. Some sites answer every unknown path with their start page.")
		return
	}
	if r.Status == http.StatusNotImplemented { // it knows no POST at all, as servers of files do
		p.addFinding("H5", doctor.Error, "What answers is no MCP server", r.Summary()+"; no MCP server at /mcp, /sse and / either", "Every message of MCP over HTTP is a POST, which it does not know.",
			"Check host and port: another service listens there, such as a server of files. See whether the MCP server runs, and at which address.")
		return
	}
	p.addFinding("H6", doctor.Error, "There is no MCP server at this path", r.Summary()+"; none at /mcp, /sse and / either", "Clients with this URL fail.",
		"Ask for the exact URL, path and all; behind a proxy, see whether its prefix is passed on to the server or taken off.")
}

// isWithinResource reports whether u is the URL resource, or below it. It is false if resource is "".
func isWithinResource(resource string, u *url.URL) bool {
	of, err := url.Parse(resource)
	if err != nil || resource == "" || !httpdial.SameOrigin(of, u) || of.RawQuery != "" {
		return false
	}
	path := strings.TrimSuffix(of.EscapedPath(), "/")
	return u.EscapedPath() == path || strings.HasPrefix(u.EscapedPath(), path+"/")
}

// speaksMCPAt reports whether an MCP server answers at u, which is of the same origin as the server: so the user's headers are
// sent, but a stored credential only if it is for u.
func (p identification) speaksMCPAt(ctx context.Context, u *url.URL) bool {
	header := map[string]string{"Accept": typeSSE}
	foreign := p.options.UsesStoredCredential && !isWithinResource(p.options.CredentialResource, u)
	if foreign {
		header["Authorization"] = ""
	}
	if u.Path == "/sse" {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		r := p.Start(ctx, probe.Request{Method: http.MethodGet, URL: u, Header: header})
		defer r.Close()
		return r.IsStream() && r.NextEvent() && r.LastEvent.Name == "endpoint"
	}
	id := ""
	r := p.initialize(ctx, func(q *probe.Request) {
		if q.URL = u; foreign {
			q.Header["Authorization"] = ""
		}
	})
	if r.Err == nil {
		id = r.Header.Get(headerSession)
	}
	return r.HasResult() || id != "" || r.RPCError() != nil && r.RPCError().Code == era.CodeUnsupportedVersion
}
