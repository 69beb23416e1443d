package streamhttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
)

const mostRedirects = 5

// newRequest makes a request with the headers that all have (LE1, LE3, LE4).
func (c *clientConn) newRequest(ctx context.Context, method string, session *clientSession) *http.Request {
	header := maps.Clone(c.header)
	if session != nil {
		c.mu.Lock()
		version := session.version
		c.mu.Unlock()
		if session.id != "" {
			header[headerSession] = []string{session.id}
		}
		if version != "" {
			header[headerVersion] = []string{version}
		}
	}
	return (&http.Request{Method: method, URL: c.url, Host: c.host, Header: header}).WithContext(ctx)
}

func setBody(req *http.Request, body []byte) {
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
}

// do makes the request and follows redirects: only those that keep method and
// body, and only within the origin, so that no header can leak (LE14). The
// caller closes the body of the response.
func (c *clientConn) do(req *http.Request) (*http.Response, *clientFault) {
	for range mostRedirects {
		resp, err := c.rt.RoundTrip(req)
		if err != nil {
			return nil, c.netFault(err)
		}
		if resp.StatusCode/100 != 3 || resp.StatusCode == http.StatusNotModified {
			return resp, nil
		}
		drain(resp)
		resp.Body.Close()
		target, err := resp.Location()
		if err != nil {
			return nil, c.redirectFault(resp.StatusCode, nil)
		}
		keeps := resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect
		if !keeps || !sameOrigin(req.URL, target) {
			return nil, c.redirectFault(resp.StatusCode, target)
		}
		req = redirected(req, target)
	}
	return nil, &clientFault{reason: reasonRedirect, text: fmt.Sprintf("%s redirects too many times", c.where)}
}

func redirected(req *http.Request, target *url.URL) *http.Request {
	next := req.WithContext(req.Context())
	next.URL = target
	next.URL.User = nil
	if req.GetBody != nil {
		next.Body, _ = req.GetBody() // cannot fail, see setBody
	}
	return next
}

func (c *clientConn) redirectFault(status int, target *url.URL) *clientFault {
	f := &clientFault{reason: reasonRedirect, status: status}
	f.text = fmt.Sprintf("%s answered %s, which is not followed", c.where, statusText(status))
	if target != nil && target.Host != "" {
		f.text += fmt.Sprintf("; it points to %s://%s: if you trust that, give the URL that it is now", target.Scheme, target.Host)
		c.log.Debug("redirected", "path", target.EscapedPath())
	}
	return f
}

// sameOrigin compares scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(hostPort(a), hostPort(b))
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// get asks for a stream: the standalone one, or what follows the event lastID
// of any stream. A response is a success, and the caller closes its body.
func (c *clientConn) get(ctx context.Context, session *clientSession, lastID string) (*http.Response, *clientFault) {
	req := c.newRequest(ctx, http.MethodGet, session)
	req.Header["Accept"] = clientAcceptSSE
	if lastID != "" {
		req.Header[headerLastEventID] = []string{lastID}
	}
	resp, fault := c.do(req)
	if fault != nil {
		return nil, fault
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, c.readRefusal(nil, resp)
	}
	return resp, nil
}

// deleteSession ends a session at the server (LE11). Nothing depends on the answer.
func (c *clientConn) deleteSession(session *clientSession) {
	if session.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.CloseTimeout)
	defer cancel()
	resp, fault := c.do(c.newRequest(ctx, http.MethodDelete, session))
	if fault != nil {
		c.log.Debug("could not end the session", "reason", fault.reason)
		return
	}
	drain(resp)
	resp.Body.Close()
}
