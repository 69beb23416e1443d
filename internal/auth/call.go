package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/reach"
)

// Bounds of what a server may send.
const (
	maxDocument  = 1 << 20 // a document or an answer
	maxRedirects = 3       // of a request for a document; all others may not be redirected at all
	callTimeout  = 30 * time.Second
)

// A Caller makes the requests of this package. Its zero value works. It may be used concurrently,
// and may not be changed then. It has nothing to close.
type Caller struct {
	// HTTP makes the requests: its Transport has the proxies, the certificates and the rules for
	// addresses; if it has a method PlainHTTP, that says what Caller.PlainHTTP does. Its Jar and its CheckRedirect are not used. nil: http.DefaultClient.
	HTTP *http.Client

	// Timeout bounds each request with its answer. 0: 30 s.
	Timeout time.Duration

	// Now is the clock. nil: time.Now.
	Now func() time.Time

	// Version is sent as MCP-Protocol-Version with requests for metadata, as revision 2025-03-26
	// asks. "": no such header.
	Version string

	// IssuerAliases pins, by an issuer as it is announced, the issuer that its metadata may name
	// instead. Without an entry both must be the same (RFC 8414, 3.3).
	IssuerAliases map[string]string
}

func (c *Caller) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// client returns a copy of the HTTP client with these rules for redirects.
func (c *Caller) client(redirect func(*http.Request, []*http.Request) error) *http.Client {
	hc := http.Client{}
	if c.HTTP != nil {
		hc = *c.HTTP
	}
	hc.Jar, hc.CheckRedirect = nil, redirect
	return &hc
}

// withTimeout gives a request its time.
func (c *Caller) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Timeout > 0 {
		return context.WithTimeout(ctx, c.Timeout)
	}
	return context.WithTimeout(ctx, callTimeout)
}

// errRedirect is a redirect that is not followed.
type errRedirect struct{ what string }

func (e *errRedirect) Error() string { return e.what }

// followDocument is the rule for redirects of documents: few, never away from TLS, and only to
// where a document may be.
func (c *Caller) followDocument(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return &errRedirect{fmt.Sprintf("it redirects more than %d times", maxRedirects)}
	case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
		return &errRedirect{"it redirects away from https"}
	}
	if err := c.checkURL(req.URL.String()); err != nil {
		return &errRedirect{"it redirects to an address that is not allowed: " + err.Error()}
	}
	return nil
}

// get reads a JSON document. What is not there, or is no JSON, is NotFound: a server that answers
// everything with its page has no such document.
func (c *Caller) get(ctx context.Context, doing, addr string, accept ...string) ([]byte, error) {
	if err := c.checkURL(addr); err != nil {
		return nil, &Error{Kind: Invalid, Operation: doing, URL: displayURL(addr), Problem: "the address is not allowed", Err: err}
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr, nil)
	if err != nil {
		return nil, &Error{Kind: Invalid, Operation: doing, URL: displayURL(addr), Problem: "the address is not valid"}
	}
	req.Header.Set("Accept", strings.Join(append([]string{"application/json"}, accept...), ", "))
	if c.Version != "" {
		req.Header.Set("MCP-Protocol-Version", c.Version)
	}
	resp, err := c.client(c.followDocument).Do(req)
	if err != nil {
		return nil, requestError(doing, addr, err, false)
	}
	defer func() { _ = resp.Body.Close() }()
	e := &Error{Kind: NotFound, Operation: doing, URL: displayURL(addr), Status: resp.StatusCode}
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		e.Kind, e.RetryAfter = Unavailable, c.retryAfter(resp.Header)
		e.Problem = "the server answered with status " + strconv.Itoa(code)
		return nil, e
	case code != http.StatusOK:
		e.Problem = "there is none: the server answered with status " + strconv.Itoa(code)
		return nil, e
	case !isJSON(resp.Header.Get("Content-Type")):
		e.Problem = fmt.Sprintf("there is none: the answer is not JSON, it is %.60q", resp.Header.Get("Content-Type"))
		return nil, e
	}
	body, err := readBody(resp.Body)
	if err != nil {
		e := requestError(doing, addr, err, false)
		e.Status = resp.StatusCode
		return nil, e
	}
	return body, nil
}

// isJSON tells media types of JSON. None is left to who reads the body.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)) &&
		(media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}

// errTooLarge is an answer that is larger than maxDocument.
var errTooLarge = errors.New("the answer is larger than 1 MiB")

// readBody reads an answer within the limit.
func readBody(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if len(body) > maxDocument {
		return nil, errTooLarge
	}
	return body, err
}

// requestError makes the error of a request that had no answer.
func requestError(doing, addr string, err error, sent bool) *Error {
	e := &Error{Kind: Unavailable, Operation: doing, URL: displayURL(addr), Problem: "no answer", RequestSent: sent}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // its text would repeat the address, with its query
	}
	if r, ok := errors.AsType[*errRedirect](err); ok {
		e.Kind, e.Problem, e.Advice = Invalid, r.what, tellOperator
		return e
	}
	if errors.Is(err, errTooLarge) {
		e.Kind, e.Problem, e.Advice = Invalid, err.Error(), tellOperator
		return e
	}
	if refused, ok := reach.AsError(err); ok {
		e.Kind, e.Problem, e.Err, e.Advice = Invalid, "the address is not allowed", refused, refused.Hint()
		return e
	}
	e.Err = err
	return e
}

// retryAfter reads Retry-After (RFC 9110, 10.2.3): seconds or a date. At most a day.
func (c *Caller) retryAfter(h http.Header) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	d := time.Duration(0)
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		d = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(v); err == nil {
		d = at.Sub(c.now())
	}
	return min(max(d, 0), 24*time.Hour)
}

// An answer is what came back to a POST.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// post sends a body, follows no redirect, and reads the answer.
func (c *Caller) post(ctx context.Context, doing, addr string, header http.Header, body string) (answer, error) {
	if err := c.checkURL(addr); err != nil {
		return answer{}, &Error{Kind: Invalid, Operation: doing, URL: displayURL(addr), Problem: "the address is not allowed", Err: err}
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	var sent atomic.Bool // the transport's goroutine tells
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) { sent.Store(i.Err == nil) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, addr, strings.NewReader(body))
	if err != nil {
		return answer{}, &Error{Kind: Invalid, Operation: doing, URL: displayURL(addr), Problem: "the address is not valid"}
	}
	req.Header = header
	req.Header.Set("Accept", "application/json")
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := c.client(stay).Do(req)
	if err != nil {
		return answer{}, requestError(doing, addr, err, sent.Load())
	}
	defer func() { _ = resp.Body.Close() }()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.status >= 300 && a.status < 400 {
		return a, &Error{Kind: Invalid, Operation: doing, URL: displayURL(addr), Status: a.status,
			Problem: "the server redirects the request, which would give what it holds to another address",
			Advice:  "the address in the server's metadata must be the one that answers"}
	}
	if a.body, err = readBody(resp.Body); err != nil {
		e := requestError(doing, addr, err, true)
		e.Status = a.status
		return a, e
	}
	return a, nil
}

// PlainHTTP reports whether addresses may begin with http:// also where they are not this machine.
func (c *Caller) PlainHTTP() bool {
	if c.HTTP == nil {
		return false
	}
	t, ok := c.HTTP.Transport.(interface{ PlainHTTP() bool })
	return ok && t.PlainHTTP()
}

// checkURL checks an address that comes from a document.
func (c *Caller) checkURL(addr string) error { return checkURL(addr, c.PlainHTTP()) }

// checkURL checks an address that comes from a document: https with a host; http on loopback only
// (OAuth 2.1, 1.5), unless plain; nothing that a request would hide.
func checkURL(addr string, plain bool) error {
	u, err := url.Parse(addr)
	switch {
	case err != nil:
		return errors.New("it is not a valid URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("its scheme is %.20q, not https", u.Scheme)
	case u.Hostname() == "" || u.Opaque != "":
		return errors.New("it has no host")
	case u.User != nil:
		return errors.New("it contains a user name")
	case strings.Contains(addr, "#"):
		return errors.New("it contains a fragment")
	case u.Scheme == "http" && !plain && !isLoopbackName(u.Hostname()):
		return errors.New("it is not https, and its host is not this machine (in a private network --allow-private-auth allows that)")
	}
	return nil
}

// isLoopbackName reports whether a host is this machine by its name.
func isLoopbackName(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// sameOrigin reports whether two URLs have the same scheme, host and port (RFC 6454, 5).
func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// port returns the port of a URL, also where it is not written.
func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case strings.EqualFold(u.Scheme, "https"):
		return "443"
	case strings.EqualFold(u.Scheme, "http"):
		return "80"
	}
	return ""
}
