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
	maxDocumentBytes = 1 << 20          // how long a document, or the answer to a request, may be
	maxRedirects     = 3                // how many redirects a request for a document follows; a POST follows none
	callTimeout      = 30 * time.Second // how long a request with its answer may take, unless EndpointCaller.Timeout says otherwise
)

// An EndpointCaller sends requests to the endpoints of authorization servers, and reads their documents and those of resources. Its zero value works. It may be used concurrently,
// and may not be changed then. It has nothing to close.
type EndpointCaller struct {
	// HTTP makes the requests. Its Transport has the proxies, the certificates and the rules for
	// addresses; if the Transport has a method PlainHTTP, AllowsPlainHTTP returns what that returns. The
	// Jar and the CheckRedirect of HTTP are not used. nil: http.DefaultClient.
	HTTP *http.Client

	// Timeout bounds each request with its answer. 0: 30 s.
	Timeout time.Duration

	// Now is the clock. nil: time.Now.
	Now func() time.Time

	// ProtocolVersion is sent as MCP-Protocol-Version with requests for documents (metadata, keys), as revision
	// 2025-03-26 asks. "": no such header.
	ProtocolVersion string

	// IssuerAliases pins, by an issuer as it is announced, the issuer that its metadata may name
	// instead. Without an entry both must be the same (RFC 8414, 3.3).
	IssuerAliases map[string]string
}

// now returns the time by the clock Now.
func (c *EndpointCaller) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// httpClient returns a copy of the HTTP client without a cookie jar, with checkRedirect as its rule for
// redirects.
func (c *EndpointCaller) httpClient(checkRedirect func(*http.Request, []*http.Request) error) *http.Client {
	hc := http.Client{}
	if c.HTTP != nil {
		hc = *c.HTTP
	}
	hc.Jar, hc.CheckRedirect = nil, checkRedirect
	return &hc
}

// withTimeout returns a ctx that ends when the time for one request and its answer is over (Timeout).
func (c *EndpointCaller) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Timeout > 0 {
		return context.WithTimeout(ctx, c.Timeout)
	}
	return context.WithTimeout(ctx, callTimeout)
}

// redirectError is the error for a redirect that the rules do not allow to follow.
type redirectError struct {
	problem string // what is wrong with the redirect, for people
}

// Error returns the problem.
func (e *redirectError) Error() string { return e.problem }

// checkDocumentRedirect is a CheckRedirect for requests for documents. It refuses more than maxRedirects,
// redirects from https to http, and addresses that checkURL refuses.
func (c *EndpointCaller) checkDocumentRedirect(req *http.Request, via []*http.Request) error {
	switch {
	case len(via) > maxRedirects:
		return &redirectError{fmt.Sprintf("it redirects more than %d times", maxRedirects)}
	case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
		return &redirectError{"it redirects away from https"}
	}
	if err := c.checkURL(req.URL.String()); err != nil {
		return &redirectError{"it redirects to an address that is not allowed: " + err.Error()}
	}
	return nil
}

// getJSON fetches a JSON document by GET, and does not parse it. doing becomes Operation of an Error; accept
// are media types besides application/json. NotFound: the status is not 200, or the Content-Type is not JSON,
// because some servers answer everything with a page. Unavailable: 408, 429, 5xx, or no answer. Invalid: addr, or an
// address that it redirects to, is not allowed, or the document is too large.
func (c *EndpointCaller) getJSON(ctx context.Context, doing, addr string, accept ...string) ([]byte, error) {
	if err := c.checkURL(addr); err != nil {
		return nil, &Error{Kind: Invalid, Operation: doing, URL: redactURL(addr), Problem: "the address is not allowed", Err: err}
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr, nil)
	if err != nil {
		return nil, &Error{Kind: Invalid, Operation: doing, URL: redactURL(addr), Problem: "the address is not valid"}
	}
	req.Header.Set("Accept", strings.Join(append([]string{"application/json"}, accept...), ", "))
	if c.ProtocolVersion != "" {
		req.Header.Set("MCP-Protocol-Version", c.ProtocolVersion)
	}
	resp, err := c.httpClient(c.checkDocumentRedirect).Do(req)
	if err != nil {
		return nil, newRequestError(doing, addr, err, false)
	}
	defer func() { _ = resp.Body.Close() }()
	e := &Error{Kind: NotFound, Operation: doing, URL: redactURL(addr), Status: resp.StatusCode}
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
		e := newRequestError(doing, addr, err, false)
		e.Status = resp.StatusCode
		return nil, e
	}
	return body, nil
}

// isJSON reports whether a Content-Type is one of JSON. "" counts as JSON too: whoever parses the body finds
// out.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)) &&
		(media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}

// errTooLarge says that an answer has more than maxDocumentBytes.
var errTooLarge = errors.New("the answer is larger than 1 MiB")

// readBody reads an answer to its end; nil and errTooLarge if it has more than maxDocumentBytes. With another error it
// returns what came before that.
func readBody(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxDocumentBytes+1))
	if len(body) > maxDocumentBytes {
		return nil, errTooLarge
	}
	return body, err
}

// newRequestError returns the Error for a request to addr that had no answer, or whose answer could not be read or
// followed, because of err. doing becomes Operation, sent RequestSent.
func newRequestError(doing, addr string, err error, sent bool) *Error {
	e := &Error{Kind: Unavailable, Operation: doing, URL: redactURL(addr), Problem: "no answer", RequestSent: sent}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // its text would repeat the address, with its query
	}
	if r, ok := errors.AsType[*redirectError](err); ok {
		e.Kind, e.Problem, e.Advice = Invalid, r.problem, adviceTellOperator
		return e
	}
	if errors.Is(err, errTooLarge) {
		e.Kind, e.Problem, e.Advice = Invalid, err.Error(), adviceTellOperator
		return e
	}
	if refused, ok := reach.AsError(err); ok {
		e.Kind, e.Problem, e.Err, e.Advice = Invalid, "the address is not allowed", refused, refused.Hint()
		return e
	}
	e.Err = err
	return e
}

// retryAfter returns how long the header Retry-After (RFC 9110, 10.2.3), seconds or a date, says to wait: at
// most a day. 0: it is missing, in the past, or cannot be read.
func (c *EndpointCaller) retryAfter(h http.Header) time.Duration {
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

// A response is the answer to a POST.
type response struct {
	status int         // the HTTP status
	header http.Header // the header fields of the answer
	body   []byte      // what the server has sent, at most maxDocumentBytes; with an error of post, nil or only a part of it
}

// post sends a body by POST, follows no redirect (a 3xx is an Error), and reads the answer, whatever its
// status is. doing becomes Operation of an Error. It adds Accept to header.
func (c *EndpointCaller) post(ctx context.Context, doing, addr string, header http.Header, body string) (response, error) {
	if err := c.checkURL(addr); err != nil {
		return response{}, &Error{Kind: Invalid, Operation: doing, URL: redactURL(addr), Problem: "the address is not allowed", Err: err}
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	var sent atomic.Bool // the transport's goroutine tells
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) { sent.Store(i.Err == nil) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, addr, strings.NewReader(body))
	if err != nil {
		return response{}, &Error{Kind: Invalid, Operation: doing, URL: redactURL(addr), Problem: "the address is not valid"}
	}
	req.Header = header
	req.Header.Set("Accept", "application/json")
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := c.httpClient(stay).Do(req)
	if err != nil {
		return response{}, newRequestError(doing, addr, err, sent.Load())
	}
	defer func() { _ = resp.Body.Close() }()
	a := response{status: resp.StatusCode, header: resp.Header}
	if a.status >= 300 && a.status < 400 {
		return a, &Error{Kind: Invalid, Operation: doing, URL: redactURL(addr), Status: a.status,
			Problem: "the server redirects the request, which would give what it holds to another address",
			Advice:  "the address in the server's metadata must be the one that answers"}
	}
	if a.body, err = readBody(resp.Body); err != nil {
		e := newRequestError(doing, addr, err, true)
		e.Status = a.status
		return a, e
	}
	return a, nil
}

// AllowsPlainHTTP reports whether addresses in documents may begin with http:// also where they are not this
// machine. The Transport of HTTP decides that.
func (c *EndpointCaller) AllowsPlainHTTP() bool {
	if c.HTTP == nil {
		return false
	}
	t, ok := c.HTTP.Transport.(interface{ PlainHTTP() bool })
	return ok && t.PlainHTTP()
}

// checkURL returns why an address that comes from a document is not allowed; nil: it is. It must be https
// with a host, without user name and fragment; http is for loopback only, unless AllowsPlainHTTP.
func (c *EndpointCaller) checkURL(addr string) error { return checkURL(addr, c.AllowsPlainHTTP()) }

// checkURL returns why an address that comes from a document is not allowed; nil: it is. It must be https
// with a host, without user name and fragment; http is for loopback only (OAuth 2.1, 1.5), unless
// allowsPlainHTTP.
func checkURL(addr string, allowsPlainHTTP bool) error {
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
	case u.Scheme == "http" && !allowsPlainHTTP && !isLoopbackName(u.Hostname()):
		return errors.New("it is not https, and its host is not this machine (in a private network --allow-private-auth allows that)")
	}
	return nil
}

// isLoopbackName reports whether a host is "localhost" or a loopback address.
func isLoopbackName(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// isSameOrigin reports whether two URLs have the same scheme, host and port (RFC 6454, 5).
func isSameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}

// portOf returns the port of a URL, or else that of its scheme, http or https; "": neither is known.
func portOf(u *url.URL) string {
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
