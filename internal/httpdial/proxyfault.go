package httpdial

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
)

// proxyRefusal is the error of a request whose proxy has not let it through to its host.
type proxyRefusal struct {
	proxy  string // host and port of the proxy
	status int    // the HTTP status with which the proxy answered CONNECT
}

// Error says which proxy has refused the connection, and what to do if it wants credentials.
func (e *proxyRefusal) Error() string {
	text := fmt.Sprintf("the proxy %s (HTTPS_PROXY) answered %s to CONNECT", e.proxy, StatusText(e.status))
	if e.status == http.StatusProxyAuthRequired {
		text += "; its user and password go into HTTPS_PROXY, as in http://USER:PASSWORD@HOST"
	}
	return text
}

// checkProxyConnect returns a proxyRefusal if the proxy has refused a CONNECT; nil: it has let it through. It is for
// http.Transport.OnProxyConnectResponse: the transport's own error would not name the proxy.
func checkProxyConnect(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyRefusal{proxy.Host, resp.StatusCode}
}

// proxyHint says, in words, which proxy of the environment a request for an http URL has gone through: resp may be the proxy's answer.
// "": it has gone through none.
func proxyHint(resp *http.Response, proxyOf func(*http.Request) (*url.URL, error)) string {
	if resp.Request == nil || resp.Request.URL.Scheme != "http" {
		return ""
	}
	proxy, err := proxyOf(resp.Request)
	if err != nil || proxy == nil {
		return ""
	}
	return fmt.Sprintf("the request went through the proxy %s (HTTP_PROXY), and this may be its answer", proxy.Host)
}

// saysTLSExpected reports whether a server says in a reply to plain HTTP that it expects TLS: as Go, nginx and Apache do.
func saysTLSExpected(status int, body []byte) bool {
	if status != http.StatusBadRequest {
		return false
	}
	for _, text := range []string{"HTTP request to an HTTPS server", "plain HTTP request was sent to HTTPS port", "speaking plain HTTP to an SSL-enabled server port"} {
		if strings.Contains(string(body), text) {
			return true
		}
	}
	return false
}

// isTLSReplyErr reports whether err, of net/http, says that what came in the place of an HTTP reply begins like TLS.
func isTLSReplyErr(err error) bool {
	text := err.Error()
	return strings.Contains(text, `malformed HTTP response "\x15\x03`) || strings.Contains(text, `malformed HTTP status code "\x15\x03`)
}

// useHTTPSHint is the advice for an http URL of a port that speaks TLS.
const useHTTPSHint = "it speaks TLS at this port; does the URL begin with https:// (or wss://) there?"

// harmlessSegment is what a segment of a path looks like that is no secret: a word, perhaps with a number at its end.
var harmlessSegment = lazyregexp.New(`^[A-Za-z@~._-]{0,24}[0-9]{0,4}$`)

// redactedPath returns the path of u for people, with dots in the place of what may be a key, or names one; "/..." if it would
// have more than 200 bytes.
func redactedPath(u *url.URL) string {
	segments := strings.Split(u.EscapedPath(), "/")
	for i, s := range segments {
		if !harmlessSegment.MatchString(s) || isCredentialName(s) {
			segments[i] = "..."
		}
	}
	path := strings.Join(segments, "/")
	if len(path) > 200 {
		path = "/..."
	}
	return path
}
