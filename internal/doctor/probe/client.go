package probe

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
)

const (
	maxRequests           = 60      // after how many requests a Client makes only those that ignore this limit (Request.IgnoresRequestLimit)
	maxConcurrentRequests = 8       // how many requests may wait for the headers of their replies at a time
	maxBodyBytes          = 8 << 20 // how many bytes of a reply's body are read
)

// ErrRequestLimit says that a request was not made, because there were maxRequests
// before it, or the server has answered one with 429.
var ErrRequestLimit = errors.New("no more requests are made")

// Options say whom a Client talks to, and how. The zero value works, except that ReplyTimeout must be set.
type Options struct {
	ReplyTimeout    time.Duration           // how long Client.Do waits for the whole of a reply; it must be above 0
	Header          http.Header             // headers that the user has added, as with --header: they go with requests to the server, and never to another one
	ReservedHeaders []string                // names of headers that requests set themselves: those in Header are ignored
	TLS             *tls.Config             // which servers are trusted, and the client certificate; nil: the system's authorities, and no client certificate
	OnSecrets       func(secrets ...string) // is told what must not be shown, as it becomes known; nil: nobody is told
}

// A Client makes the requests of one diagnosis. After maxRequests of them, or a reply with 429, it makes only requests that ignore
// this limit. Its methods may be called concurrently, except MoveTo and Close. Of its fields only ReplyTimeout may be changed.
type Client struct {
	URL    *url.URL       // the URL of the server, without user and password
	Header http.Header    // the headers of each request to the server, unless Request.Header says otherwise: the user's without Host, and, if the user has not set them, Authorization from the URL and User-Agent
	Host   string         // the Host header that the user has set; "": that of the URL
	Jar    http.CookieJar // cookies that the server has set
	TLS    *tls.Config    // Options.TLS; nil: the system's authorities, and no client certificate

	// ReplyTimeout is how long Do waits for the whole of a reply, unless its context ends before.
	// It may be changed while nothing else is going on.
	ReplyTimeout time.Duration

	onSecrets func(secrets ...string) // Options.OnSecrets; never nil
	redactor  *httpdial.Peer          // takes the credentials out of a text, for WithoutCredentials; it makes no request
	transport *http.Transport         // makes the requests, except those with UsesFreshConn
	slots     chan struct{}           // has an element for each request that waits for the headers of its reply
	startedAt time.Time               // when New was called

	mu                sync.Mutex // guards what follows
	requestCount      int        // how many requests were begun, those that ignore the limit included
	first429          *Reply     // the first reply with 429 (too many requests); nil: there was none
	requestsBefore429 int        // how many requests had been begun when first429 came, that one included
	lastID            int        // the id that NewID has returned last
}

// New returns a Client for the server at an http or https URL. It makes no request. The
// caller calls Close in the end. The error says that the URL or a header is not valid.
func New(address string, o Options) (*Client, error) {
	u, err := httpdial.ParseURL(address, "http", "https")
	if err != nil {
		return nil, err
	}
	header, err := httpdial.RequestHeader(o.Header, u.User, o.ReservedHeaders...)
	if err != nil {
		return nil, err
	}
	c := &Client{ReplyTimeout: o.ReplyTimeout, Header: header, Host: header.Get("Host"), TLS: o.TLS, onSecrets: o.OnSecrets, slots: make(chan struct{}, maxConcurrentRequests), startedAt: time.Now(), lastID: 100}
	if c.onSecrets == nil {
		c.onSecrets = func(...string) {}
	}
	header.Del("Host")
	if password, ok := u.User.Password(); ok {
		c.onSecrets(password, url.PathEscape(password), url.QueryEscape(password))
	}
	u.User = nil
	c.hideCredentials(u)
	c.MoveTo(u)
	c.Jar, _ = cookiejar.New(nil) // which has no errors
	c.transport = c.newTransport()
	return c, nil
}

// MoveTo makes u, which has the same origin, the address of the server from now on. No other method may run meanwhile.
func (c *Client) MoveTo(u *url.URL) {
	c.URL, c.redactor = u, httpdial.NewPeer(u, c.Header, nil)
}

// WithoutCredentials returns text without the credentials that the requests to the server have.
func (c *Client) WithoutCredentials(text string) string { return c.redactor.WithholdSecrets(text) }

// First429 returns the first reply with 429 (too many requests); nil: there was none. requests is how many had been begun
// by then, this one included, and since how long after New this one was begun.
func (c *Client) First429() (first *Reply, requests int, since time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first429 == nil {
		return nil, 0, 0
	}
	return c.first429, c.requestsBefore429, c.first429.StartedAt.Sub(c.startedAt)
}

// newTransport returns a Transport for requests, with connections of its own.
func (c *Client) newTransport() *http.Transport {
	return httpdial.NewTransport(httpdial.TransportOptions{ConnectTimeout: 4 * time.Second, TLS: c.TLS, MaxIdleConnsPerHost: maxConcurrentRequests})
}

// Close closes idle connections. All replies must have been closed before.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// NewID returns a JSON-RPC id that no other request of the Client has.
func (c *Client) NewID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	return c.lastID
}

// A Request is an HTTP request that a Client can make.
type Request struct {
	Method string            // method of HTTP; "": POST
	URL    *url.URL          // where it goes; nil: Client.URL
	Host   string            // the header Host; "": Client.Host, or that of the URL
	Header map[string]string // headers besides Client.Header; the value "" takes a header away
	Body   []byte            // the JSON-RPC message; nil: none
	ID     int               // JSON-RPC id of the request in Body; 0: there is none

	UsesFreshConn       bool // it is made over a connection of its own
	IsForOtherServer    bool // it goes to another server: without Client.Header, and without cookies
	NoCookies           bool // it has no cookies, and those of its reply are not kept
	IgnoresRequestLimit bool // it is made also after maxRequests or a reply with 429

	Timeout time.Duration // how long the whole reply may take, the wait for it included; 0: as long as the context lasts. Client.Do also has ReplyTimeout
}

// acquireSlot waits until there is a place in slots for a request, and counts the request. must: it ignores the limit. The
// caller gives the place back if there is no error, which is ErrRequestLimit or that of ctx.
func (c *Client) acquireSlot(ctx context.Context, must bool) error {
	c.mu.Lock()
	over := !must && (c.requestCount >= maxRequests || c.first429 != nil)
	if !over {
		c.requestCount++
	}
	c.mu.Unlock()
	if over {
		return ErrRequestLimit
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Start makes a request and returns its reply as soon as the headers are there. The body
// can be read until ctx is done, or q.Timeout has passed. If there is no reply, its Err
// says why. The caller calls Close of the Reply in any case.
func (c *Client) Start(ctx context.Context, q Request) *Reply {
	r := &Reply{Method: cmp.Or(q.Method, http.MethodPost), ID: q.ID, StartedAt: time.Now(), closeFunc: func() {}}
	if r.Err = c.acquireSlot(ctx, q.IgnoresRequestLimit); r.Err != nil {
		return r
	}
	defer func() { <-c.slots }()
	r.StartedAt = time.Now()
	connTrace := &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { r.ReusedConn = i.Reused },
	}
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(ctx, connTrace))
	if q.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, q.Timeout)
	}
	r.closeFunc = cancel
	trip := c.transport
	if q.UsesFreshConn {
		trip = c.newTransport()
		r.closeFunc = func() { cancel(); trip.CloseIdleConnections() }
	}
	req := c.newHTTPRequest(ctx, q)
	record := newExchangeRecord(req, q.Body)
	resp, err := trip.RoundTrip(req)
	if err != nil {
		record.recordFailure(err)
		r.Err = err
		r.Close()
		return r
	}
	if !q.IsForOtherServer && !q.NoCookies {
		c.Jar.SetCookies(req.URL, resp.Cookies())
	}
	for _, cookie := range resp.Cookies() {
		c.onSecrets(cookie.Value)
	}
	c.onSecrets(resp.Header.Get("Mcp-Session-Id"))
	r.Status, r.Header, r.Proto, r.body = resp.StatusCode, resp.Header, resp.Proto, resp.Body
	record.recordReply(resp)
	r.recordMessage = record.recordMessage
	if resp.Header.Get("Content-Encoding") == "gzip" {
		r.body = &gzipBody{compressed: resp.Body}
	}
	r.closeFunc = func() {
		cancel()
		resp.Body.Close()
		if q.UsesFreshConn {
			trip.CloseIdleConnections()
		}
	}
	if r.Status == http.StatusTooManyRequests {
		c.note429(r)
	}
	return r
}

// newHTTPRequest returns q as net/http makes it, with its headers and cookies, and the Client's.
func (c *Client) newHTTPRequest(ctx context.Context, q Request) *http.Request {
	header := http.Header{"User-Agent": {"mcp-bridge"}}
	if !q.IsForOtherServer {
		header = maps.Clone(c.Header)
	}
	header["Accept-Encoding"] = []string{"gzip"} // as most clients send it
	for name, value := range q.Header {
		header.Del(name)
		if value != "" {
			header.Set(name, value)
		}
	}
	u := c.URL
	if q.URL != nil {
		u = q.URL
	}
	req := (&http.Request{Method: cmp.Or(q.Method, http.MethodPost), URL: u, Host: cmp.Or(q.Host, c.Host), Header: header}).WithContext(ctx)
	if q.IsForOtherServer {
		req.Host = ""
	} else if !q.NoCookies {
		for _, cookie := range c.Jar.Cookies(u) {
			req.AddCookie(cookie)
		}
	}
	if q.Body != nil {
		httpdial.SetBody(req, q.Body)
	}
	if header.Get("Idempotency-Key") == "" {
		header["Idempotency-Key"] = nil // net/http may send it again if a kept connection is closed
	}
	return req
}

// note429 keeps r, a reply with 429, if it is the first: after it only requests that ignore the limit are made.
func (c *Client) note429(r *Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first429 == nil {
		c.first429, c.requestsBefore429 = r, c.requestCount
	}
}

// Do makes a request and reads its reply, within ReplyTimeout: all of it, or of an event stream until lingerTime after the
// response to the request. The Reply is closed.
func (c *Client) Do(ctx context.Context, q Request) *Reply {
	ctx, cancel := context.WithTimeout(ctx, c.ReplyTimeout)
	defer cancel()
	r := c.Start(ctx, q)
	if r.Err != nil {
		return r
	}
	defer r.Close()
	if r.IsStream() {
		for r.NextEvent() {
			if r.Response() != nil {
				defer time.AfterFunc(lingerTime, r.closeFunc).Stop()
			}
		}
		if r.Response() != nil {
			r.Err = nil // nobody waited for the end
		}
		r.Duration = time.Since(r.StartedAt)
	} else {
		var err error
		r.Text, err = io.ReadAll(io.LimitReader(r.body, maxBodyBytes))
		r.Duration, r.HasEnded = time.Since(r.StartedAt), err == nil
		if err != nil {
			r.Err = err
		}
		r.readMessages()
	}
	return r
}

// lingerTime is for how long Client.Do goes on reading an event stream after the response: faults may follow.
const lingerTime = 500 * time.Millisecond

// hideCredentials tells onSecrets which values of Header and which parts of u are likely credentials: of Header, all of seven bytes
// and more but User-Agent.
func (c *Client) hideCredentials(u *url.URL) {
	for name, values := range c.Header {
		for _, v := range values {
			if name == "User-Agent" || len(v) < 7 {
				continue
			}
			c.onSecrets(v)
			if _, credentials, ok := strings.Cut(v, " "); ok && name == "Authorization" {
				c.onSecrets(credentials)
			}
		}
	}
	c.HideURLCredentials(u)
}

// HideURLCredentials tells onSecrets what in a URL is likely a credential: the values of its query, and
// segments of the path that look random.
func (c *Client) HideURLCredentials(u *url.URL) {
	for _, values := range u.Query() {
		for _, v := range values {
			if len(v) >= 7 {
				c.onSecrets(v, url.QueryEscape(v))
			}
		}
	}
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if looksRandom(segment) {
			c.onSecrets(segment)
		}
	}
}

// looksRandom reports whether a segment of a URL's path may be a key: it is long, and has digits and no dot.
func looksRandom(s string) bool {
	return len(s) >= 20 && strings.ContainsAny(s, "0123456789") && !strings.Contains(s, ".")
}

// DisplayURL returns a URL as it may be shown, with "?..." in place of its query.
func DisplayURL(u *url.URL) string {
	text := u.Scheme + "://" + u.Host + u.EscapedPath()
	if u.RawQuery != "" {
		text += "?..."
	}
	return text
}

// URLForUser returns a URL for somebody who is to use it: in place of its query, which may have a secret, it says that there is
// one.
func URLForUser(u *url.URL) string {
	text := u.Scheme + "://" + u.Host + u.EscapedPath()
	if u.RawQuery != "" {
		text += " with its query, which is not shown here"
	}
	return text
}

// EncodeMessage returns m, all members of a JSON-RPC message, as JSON. It adds nothing, and panics at a value that JSON cannot hold.
func EncodeMessage(m map[string]any) []byte {
	var b bytes.Buffer
	writeJSON(&b, m)
	return bytes.TrimSpace(b.Bytes())
}
