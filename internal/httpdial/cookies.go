package httpdial

import (
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// What a server may have kept for it.
const (
	maxCookies   = 64      // at a time
	longestField = 4 << 10 // of a Set-Cookie, in bytes
)

// cookies are those that one server has set, for one Conn (LE17). The zero
// cookies are empty. Their methods may be called concurrently.
type cookies struct {
	any atomic.Bool // there may be some

	mu    sync.Mutex
	jar   *cookiejar.Jar
	known map[string]bool // by name, domain and path: all that were set
}

// note keeps the cookies in the reply to a request for u. A field that is too
// long is ignored; where there are too many, those that were set before are
// forgotten.
func (c *cookies) note(u *url.URL, resp *http.Response) {
	if len(resp.Header["Set-Cookie"]) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	set := resp.Cookies()
	for _, cookie := range set[:min(len(set), maxCookies)] {
		key := cookie.Name + ";" + cookie.Domain + ";" + cookie.Path
		if len(cookie.Raw) > longestField {
			continue
		}
		if c.jar == nil || !c.known[key] && len(c.known) >= maxCookies {
			c.jar, _ = cookiejar.New(nil) // which has no errors
			c.known = make(map[string]bool)
		}
		c.known[key] = true
		c.jar.SetCookies(u, []*http.Cookie{cookie})
		c.any.Store(true)
	}
}

// sentWith returns the request with the cookies that go with it, behind those
// that the user has configured. req stays as it is: it may be sent again.
func (c *cookies) sentWith(req *http.Request) *http.Request {
	if !c.any.Load() {
		return req
	}
	c.mu.Lock()
	jar := c.jar
	c.mu.Unlock()
	kept := jar.Cookies(req.URL)
	if len(kept) == 0 {
		return req
	}
	pairs := slices.Clone(req.Header["Cookie"])
	for _, cookie := range kept {
		pairs = append(pairs, cookie.String())
	}
	next := req.WithContext(req.Context())
	next.Header = maps.Clone(req.Header)
	next.Header["Cookie"] = []string{strings.Join(pairs, "; ")}
	return next
}
