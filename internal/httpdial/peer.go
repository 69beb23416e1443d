package httpdial

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	maxRedirects        = 5               // how many requests Peer.Do makes at most: the first, and one for each redirect that it follows
	refusalBodyTimeout  = 5 * time.Second // how long it may take to read the body of a reply whose status is no success
	maxRefusalBodyBytes = 1 << 20         // how many bytes of such a body are read
	maxLoggedBytes      = 200             // how many bytes a log gets of what a server says in a reply with status 401 or 403
)

// Peer is a server that is talked to over HTTP. Its methods explain what goes
// wrong with it; they may be called concurrently.
type Peer struct {
	url               *url.URL          // the server's address
	origin            string            // scheme and host of url, for texts
	statusHints       map[int]string    // what texts about an HTTP status end in, by status
	configuredSecrets *strings.Replacer // takes out of texts the credentials that all requests have; nil: there are none
	sentSecrets       *strings.Replacer // takes out of texts the credentials of one request (WithholdingSent); nil: there are none
	cookies           *cookieStore      // the cookies that the server has set
	hasAnswered       *atomic.Bool      // the server has answered some request in HTTP; shared with the Peers of AtURL
	serverNamedPath   bool              // the server has said the path of url: texts do not show it, and no user has mistyped it
}

// NewPeer returns the Peer at u, which must not change any more. header is what
// goes with every request: the credentials in it, and those in the query of u,
// do not get into any text. hints are what the texts about an HTTP status end
// in, by status: what to do about it depends on the transport. Some statuses
// have a text of their own. The Peer keeps the cookies that the server sets.
func NewPeer(u *url.URL, header http.Header, hints map[int]string) *Peer {
	return &Peer{url: u, origin: u.Scheme + "://" + u.Host, statusHints: hints, configuredSecrets: newSecretReplacer(u, header), cookies: new(cookieStore), hasAnswered: new(atomic.Bool)}
}

// AtURL returns the Peer at another address of the same server and the same client: one
// that the server has named. Both share credentials and cookies. hints take the place of
// those of NewPeer.
func (p *Peer) AtURL(u *url.URL, hints map[int]string) *Peer {
	other := *p
	other.url, other.origin, other.statusHints, other.serverNamedPath = u, u.Scheme+"://"+u.Host, hints, true
	return &other
}

// WithholdSecrets returns text, which the server has said, without the credentials that it was given.
func (p *Peer) WithholdSecrets(text string) string {
	for _, secrets := range []*strings.Replacer{p.configuredSecrets, p.sentSecrets} {
		if secrets != nil {
			text = secrets.Replace(text)
		}
	}
	return text
}

// WithholdingSent returns the Peer that also withholds the credential that the request of resp had: one that was not in the header of
// NewPeer, and changes from request to request. It is the Peer itself if there was none.
func (p *Peer) WithholdingSent(resp *http.Response) *Peer {
	if resp.Request == nil || resp.Request.Header["Authorization"] == nil {
		return p
	}
	sent := http.Header{}
	for _, name := range []string{"Authorization", "Dpop"} {
		if values := resp.Request.Header[name]; values != nil {
			sent[name] = values
		}
	}
	other := *p
	other.sentSecrets = newSecretReplacer(&url.URL{}, sent)
	return &other
}

// String returns the server as people get to see it: no path and no query,
// there may be keys in them. Only a StatusFault about the path shows it, without
// what may be a key.
func (p *Peer) String() string { return p.origin }

// Do makes the request and follows redirects: only those that keep method and
// body, and only within the origin, so that no header can leak (LE14). The
// cookies that the server has set go along (LE17). A request with a body needs
// GetBody. A response that it returns may have any status but those of redirects (3xx,
// 304 excepted); the caller closes its body.
func (p *Peer) Do(rt http.RoundTripper, req *http.Request) (*http.Response, *Fault) {
	for range maxRedirects {
		resp, err := rt.RoundTrip(p.cookies.withCookies(req))
		if err != nil {
			return nil, p.NetFault(err)
		}
		if !p.hasAnswered.Load() {
			p.hasAnswered.Store(true)
		}
		p.cookies.store(req.URL, resp)
		if resp.StatusCode/100 != 3 || resp.StatusCode == http.StatusNotModified {
			return resp, nil
		}
		DrainShortBody(resp)
		resp.Body.Close()
		target, err := resp.Location()
		if err != nil {
			return nil, p.redirectFault(resp.StatusCode, nil)
		}
		keeps := resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect
		if !keeps || !SameOrigin(req.URL, target) {
			return nil, p.redirectFault(resp.StatusCode, target)
		}
		if req, err = redirectedRequest(req, target); err != nil {
			return nil, p.NetFault(err)
		}
	}
	return nil, &Fault{Reason: ReasonRedirect, Text: fmt.Sprintf("%s redirects too many times", p.origin)}
}

// redirectedRequest returns req for another address: with its method, headers, and its body from the
// beginning.
func redirectedRequest(req *http.Request, target *url.URL) (*http.Request, error) {
	next := req.WithContext(req.Context())
	next.URL = target
	next.URL.User = nil
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		next.Body = body
	}
	return next, nil
}

// redirectFault returns the fault of a request that was answered with a redirect, with this status and
// target (nil: none that can be read), which is not followed.
func (p *Peer) redirectFault(status int, target *url.URL) *Fault {
	f := &Fault{Reason: ReasonRedirect, Status: status}
	f.Text = fmt.Sprintf("%s answered %s, which is not followed", p.origin, StatusText(status))
	if target != nil && target.Host != "" {
		f.Text += fmt.Sprintf("; it points to %s://%s: if you trust that, give the URL that it is now", target.Scheme, target.Host)
	}
	return f
}

// SameOrigin reports whether two URLs have the same scheme, host and port.
func SameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(hostPort(a), hostPort(b))
}

// hostPort returns host and port of a URL; without a port, that of its scheme.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}[strings.ToLower(u.Scheme)]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// DrainShortBody reads what is left of the body of a reply, so that the connection can be used again,
// if its length is known and at most 64 KiB. Another one might never end.
func DrainShortBody(resp *http.Response) {
	if resp.ContentLength >= 0 && resp.ContentLength <= 64<<10 {
		io.Copy(io.Discard, resp.Body)
	}
}

// MediaType returns the media type of a reply, without parameters; "" if it names none, "unknown type" if that cannot be
// read. For a reply that is compressed, although that was not asked for, it returns "encoding" and the reply's encoding.
func MediaType(resp *http.Response) string {
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return "encoding " + e
	}
	switch v := resp.Header.Get("Content-Type"); v {
	case "", "application/json", "text/event-stream":
		return v
	default:
		mediaType, _, _ := mime.ParseMediaType(v)
		if mediaType == "" {
			return "unknown type"
		}
		return mediaType
	}
}

// NetFault returns the fault for the error of a request that got no reply. An error that is or wraps a *Fault, of the
// RoundTripper that adds the credentials (TargetOptions.Authorize), gives that Fault.
func (p *Peer) NetFault(err error) *Fault {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	f := &Fault{Reason: ReasonConnectionLost, Transient: true}
	var (
		op      *net.OpError
		dns     *net.DNSError
		cert    *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		record  tls.RecordHeaderError
		timeout interface{ Timeout() bool }
		refused *proxyRefusal
	)
	switch {
	case errors.As(err, &refused):
		f.Reason = ReasonUnreachable
		f.Text = fmt.Sprintf("cannot reach %s: %v", p.origin, refused)
	case errors.As(err, &op) && op.Op == "proxyconnect":
		f.Reason = ReasonUnreachable
		f.Text = fmt.Sprintf("cannot reach the proxy for %s: %s; is HTTP_PROXY or HTTPS_PROXY right? NO_PROXY names the hosts that need none", p.origin, publicNetErrText(op.Err))
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		f.Reason = ReasonTimeout
		f.Text = fmt.Sprintf("%s did not answer in time", p.origin)
	case errors.As(err, &dns):
		f.Reason = ReasonUnreachable
		f.Text = fmt.Sprintf("cannot reach %s: %s; is the host name right?", p.origin, publicNetErrText(err))
	case errors.Is(err, syscall.EMFILE):
		f.Reason = ReasonUnreachable
		f.Text = fmt.Sprintf("cannot reach %s: the bridge has no file descriptors left; raise its limit (ulimit -n), or have fewer calls in progress", p.origin)
	case errors.As(err, &op) && op.Op == "dial":
		f.Reason = ReasonUnreachable
		f.Text = fmt.Sprintf("cannot reach %s: %s; is the server running?", p.origin, publicNetErrText(err))
	case errors.As(err, &cert), errors.As(err, &record), isCertificateAlert(err), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		f.Reason = ReasonTLS
		f.Text = fmt.Sprintf("no secure connection to %s: %s", p.origin, publicNetErrText(err))
		switch {
		case errors.As(err, &unknown): // its text guesses at the cause
			f.Text = fmt.Sprintf("no secure connection to %s: %s", p.origin, untrustedCertText(unknown.Cert))
		case strings.Contains(err.Error(), "certificate required"):
			f.Text += "; the server asks its clients for a certificate: give one with --client-cert and --client-key"
		case errors.As(err, &record), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
			f.Text += "; does the URL begin with http:// (or ws://) there, without the s?"
		}
	case isTLSReplyErr(err):
		f.Reason, f.Transient = ReasonTLS, false
		f.Text = p.origin + " does not speak HTTP: " + useHTTPSHint
	case strings.Contains(err.Error(), "malformed") && p.hasAnswered.Load(): // half a line is malformed, too
		f.Text = fmt.Sprintf("the connection to %s was lost in the head of the answer", p.origin)
	case strings.Contains(err.Error(), "malformed"): // err repeats what the server sent
		f.Reason, f.Transient = ReasonNotMCP, false
		f.Text = fmt.Sprintf("%s does not speak HTTP", p.origin)
	default:
		f.Text = fmt.Sprintf("the connection to %s was lost before the answer came: %s", p.origin, publicNetErrText(err))
	}
	return f
}

// untrustedCertText says who has issued the server's certificate, which is not trusted, and how to trust the issuer. cert may be nil.
func untrustedCertText(cert *x509.Certificate) string {
	switch {
	case cert == nil:
		return "its certificate is from an authority that is not trusted here; if it is the right server, give the certificate of that authority with --ca-file FILE"
	case bytes.Equal(cert.RawIssuer, cert.RawSubject):
		return "its certificate is self-signed; if it is the right server, give that certificate with --ca-file FILE"
	}
	name := printable.Clip(cmp.Or(cert.Issuer.CommonName, cert.Issuer.String()), 80)
	return fmt.Sprintf("its certificate was issued by %q, which is not trusted here; if it is the right server, give the certificate of that authority with --ca-file FILE", name)
}

// isCertificateAlert reports whether the server has ended the handshake because of a certificate, ours or that it got none:
// in TLS 1.3 this comes when the handshake is over on our side.
func isCertificateAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" && strings.Contains(err.Error(), "certificate")
}

// publicNetErrText returns what err says. If there is "://" or "@" in that, it may be the URL of a
// proxy, with credentials: then the text says only that the details are not shown.
func publicNetErrText(err error) string {
	if text := err.Error(); !strings.Contains(text, "://") && !strings.Contains(text, "@") {
		return text
	}
	return "its details hold a URL and are not shown"
}

// StatusFault returns the fault for a reply whose status is no success: what the status means, and what to do about it. It does
// not read the body (RefusalFault does).
func (p *Peer) StatusFault(resp *http.Response) *Fault {
	status := resp.StatusCode
	f := &Fault{Reason: ReasonHTTPStatus, Status: status}
	where := p.origin
	if !p.serverNamedPath && (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) { // it is the path that is in question
		f.SuspectPath = redactedPath(p.url)
		where += f.SuspectPath
	}
	f.Text = fmt.Sprintf("%s answered %s", where, StatusText(status))
	switch {
	case status == http.StatusUnauthorized:
		f.Reason, f.logText = ReasonAuthRequired, f.Text
		switch {
		case sentBearerWithoutToken(resp.Request):
			f.hint = missingTokenHint
			f.Text += ": " + missingTokenHint
		case sentTokenWithoutScheme(resp.Request):
			f.hint = missingSchemeHint
			f.Text += ": " + missingSchemeHint
		case sentCredential(resp.Request):
			f.hint = credentialsRefusedHint
			f.Text += ": " + credentialsRefusedHint
		default:
			f.hint = credentialsHint
			f.Text += ": authentication is needed; " + credentialsHint
		}
	case status == http.StatusForbidden:
		f.Reason = ReasonForbidden
		f.Text += ": access is denied; check the credentials given with --header"
	case status == http.StatusProxyAuthRequired:
		f.Text += ": the proxy wants credentials; they go into the proxy's URL in the environment"
	case status == http.StatusRequestEntityTooLarge:
		f.Reason = ReasonTooLarge
		f.Text += ": the message is too large for the server"
	case p.statusHints[status] != "":
		f.Text += ": " + p.statusHints[status]
	}
	switch status {
	case http.StatusProxyAuthRequired, http.StatusForbidden, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.Text = AppendSentence(f.Text, proxyHint(resp, http.ProxyFromEnvironment))
	}
	f.logText = cmp.Or(f.logText, f.Text)
	f.Transient = status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.ServerBusy = true
		f.RetryAfter = parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	}
	return f
}

// RefusalFault returns the fault for a reply whose status is no success, as StatusFault does, with what
// the body says: a JSON-RPC error, or a few plain words. It reads the body, for refusalBodyTimeout at
// most; the caller closes it. Nothing of the fault repeats a credential of the request.
func (p *Peer) RefusalFault(resp *http.Response) *Fault {
	p = p.WithholdingSent(resp)
	fault := p.StatusFault(resp)
	defer time.AfterFunc(refusalBodyTimeout, func() { resp.Body.Close() }).Stop()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusalBodyBytes))
	if err != nil {
		return fault
	}
	if saysTLSExpected(resp.StatusCode, raw) && (p.url.Scheme == "http" || p.url.Scheme == "ws") {
		fault.Reason = ReasonTLS
		fault.Text = fmt.Sprintf("%s answered %s: %s", p.origin, StatusText(resp.StatusCode), useHTTPSHint)
		fault.logText = fault.Text
		return fault
	}
	detail := ""
	if m, err := jsonrpc.ParseDepth([]byte(p.WithholdSecrets(string(raw))), jsonrpc.DefaultMaxDepth); err == nil && m.IsError() {
		fault.ServerError = m
		detail, _ = jsonrpc.Text(m.Lookup("error", "message"))
	} else if mediaType := MediaType(resp); mediaType == "text/plain" || mediaType == "" {
		if detail = p.WithholdSecrets(plainTextDetail(raw, p.url)); detail != "" {
			fault.Text = AppendSentence(fault.Text, fmt.Sprintf("it says: %q", detail))
		}
	}
	if detail != "" && (fault.Status == http.StatusUnauthorized || fault.Status == http.StatusForbidden) {
		fault.logText = AppendSentence(fault.logText, fmt.Sprintf("it says: %q", printable.Clip(detail, maxLoggedBytes)))
	}
	return fault
}

// InvalidMessageFault returns the fault for what the server sent and is no JSON-RPC message; err says why.
func (p *Peer) InvalidMessageFault(err error) *Fault {
	return &Fault{Reason: ReasonInvalidMessage, Text: fmt.Sprintf("%s sent what is no JSON-RPC message: %v", p.origin, err)}
}

// TooLargeFault returns the fault for a message from the server that has more than limit bytes.
func (p *Peer) TooLargeFault(limit int) *Fault {
	return &Fault{Reason: ReasonTooLarge, Text: fmt.Sprintf("%s sent a message larger than %d bytes, which is the limit (--max-message-size)", p.origin, limit)}
}

// plainTextDetail returns what a server says in plain words about an error: the
// first line of body; "" if that is longer than 200 bytes, has control characters, or
// repeats the path or the query of u, the URL of the server. The caller looks at the media type.
func plainTextDetail(body []byte, u *url.URL) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	line = strings.TrimSpace(line)
	if line == "" || len(line) > 200 || !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) {
		return ""
	}
	for _, secret := range []string{u.Path, u.EscapedPath(), u.RawQuery} {
		if len(secret) > 1 && strings.Contains(line, secret) {
			return ""
		}
	}
	return line
}

// StatusText returns an HTTP status as number and words.
func StatusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}
