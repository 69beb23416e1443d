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

// How many cookies of a server are kept, and how large they may be.
const (
	maxCookies        = 64      // how many cookies of a server are kept at a time
	maxSetCookieBytes = 4 << 10 // the longest Set-Cookie header, in bytes, that is not ignored
)

// A cookieStore has the cookies that one server has set, for one Conn (LE17). The zero
// cookieStore is empty. Its methods may be called concurrently.
type cookieStore struct {
	hasAny atomic.Bool // a cookie was set; it may have expired

	mu      sync.Mutex      // guards what follows
	jar     *cookiejar.Jar  // the cookies; nil: none was set
	setKeys map[string]bool // the name, domain and path of each cookie that was set in jar
}

// store keeps the cookies in resp, the reply to a request for u. A cookie that is too long is ignored;
// where there are too many, all that were set before are forgotten.
func (c *cookieStore) store(u *url.URL, resp *http.Response) {
	if len(resp.Header["Set-Cookie"]) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	set := resp.Cookies()
	for _, cookie := range set[:min(len(set), maxCookies)] {
		key := cookie.Name + ";" + cookie.Domain + ";" + cookie.Path
		if len(cookie.Raw) > maxSetCookieBytes {
			continue
		}
		if c.jar == nil || !c.setKeys[key] && len(c.setKeys) >= maxCookies {
			c.jar, _ = cookiejar.New(nil) // which has no errors
			c.setKeys = make(map[string]bool)
		}
		c.setKeys[key] = true
		c.jar.SetCookies(u, []*http.Cookie{cookie})
		c.hasAny.Store(true)
	}
}

// withCookies returns the request with the cookies that go with it, behind those
// that the user has configured. req stays as it is: it may be sent again.
func (c *cookieStore) withCookies(req *http.Request) *http.Request {
	if !c.hasAny.Load() {
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
