package streamhttp

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Reasons that error responses of the client carry in data.reason (C.7).
const (
	reasonUnreachable = "unreachable"            // no connection: refused, no such host, network down
	reasonTLS         = "tls"                    // no trust, or no TLS at the other end
	reasonTimeout     = "timeout"                // no answer in time
	reasonBroken      = "connection_lost"        // the connection ended before the answer
	reasonAuth        = "authorization_required" // 401
	reasonForbidden   = "forbidden"              // 403
	reasonRedirect    = "redirect"               // a redirect that is not followed
	reasonStatus      = "http_status"            // any other status that is no success
	reasonNotMCP      = "not_mcp"                // an answer of another content type
	reasonTooLarge    = "too_large"              // an answer over MaxMessageSize
	reasonInvalid     = "invalid_message"        // an answer that is no JSON-RPC
	reasonNoAnswer    = "no_answer"              // a success without the response
	reasonResultLost  = "result_lost"            // processed perhaps, but the result cannot be had
	reasonSessionLost = "session_lost"           // the server forgot the session and gives no new one
	reasonDown        = "server_down"            // not initialized yet; being retried in the background
	reasonTooMany     = "too_many_requests"      // over MaxInFlight
	reasonRefused     = "initialize_refused"     // the server answered the bridge's initialize with an error
)

// clientFault says why a message got no answer, to people and to programs. It
// holds nothing of what messages contain, but for own.
type clientFault struct {
	reason string
	status int             // HTTP status, 0: none
	text   string          // what, where, and what to do
	own    jsonrpc.Message // the server's own error response, if it sent one

	lost       bool          // the session is gone, and the message was not processed
	transient  bool          // it may work later, without anybody changing anything
	busy       bool          // the server says: not now (429, 502, 503, 504)
	retryAfter time.Duration // what it said about when, 0: nothing
}

func (f *clientFault) Error() string { return f.text }

// response returns the error response for the request id.
func (f *clientFault) response(id jsonrpc.ID) jsonrpc.Message {
	if f.own.Kind() == jsonrpc.Response {
		return withAnyID(f.own, id)
	}
	data := []byte(`{"reason":"` + f.reason + `"}`)
	if f.status != 0 {
		data = []byte(`{"reason":"` + f.reason + `","status":` + strconv.Itoa(f.status) + `}`)
	}
	return jsonrpc.NewError(id, jsonrpc.CodeInternalError, f.text, data)
}

// withAnyID gives a response the id, also where it has none.
func withAnyID(m jsonrpc.Message, id jsonrpc.ID) jsonrpc.Message {
	if !m.ID().IsZero() {
		return m.WithID(id)
	}
	raw := append([]byte(`{"id":`+id.String()+`,`), m.Bytes()[1:]...)
	withID, err := jsonrpc.Parse(raw)
	if err != nil { // cannot be: a response has members
		return jsonrpc.NewError(id, jsonrpc.CodeInternalError, "the server sent an error without an id", nil)
	}
	return withID
}

// netFault explains an error of the network.
func (c *clientConn) netFault(err error) *clientFault {
	f := &clientFault{reason: reasonBroken, transient: true}
	var (
		op      *net.OpError
		dns     *net.DNSError
		cert    *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		timeout interface{ Timeout() bool }
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		f.reason = reasonTimeout
		f.text = fmt.Sprintf("%s did not answer in time", c.where)
	case errors.As(err, &dns):
		f.reason = reasonUnreachable
		f.text = fmt.Sprintf("cannot reach %s: %s; is the host name right?", c.where, netText(err))
	case errors.As(err, &op) && op.Op == "dial":
		f.reason = reasonUnreachable
		f.text = fmt.Sprintf("cannot reach %s: %s; is the server running?", c.where, netText(err))
	case errors.As(err, &cert), errors.As(err, &record), errors.As(err, &alert), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		f.reason = reasonTLS
		f.text = fmt.Sprintf("no secure connection to %s: %s", c.where, netText(err))
	case strings.Contains(err.Error(), "malformed"): // err repeats what the server sent
		f.reason, f.transient = reasonNotMCP, false
		f.text = fmt.Sprintf("%s does not speak HTTP", c.where)
	default:
		f.text = fmt.Sprintf("the connection to %s was lost before the answer came: %s", c.where, netText(err))
	}
	return f
}

// netText returns what err says, unless there is a URL in it, of a proxy
// perhaps: then it may quote credentials.
func netText(err error) string {
	if text := err.Error(); !strings.Contains(text, "://") && !strings.Contains(text, "@") {
		return text
	}
	return "its details hold a URL and are not shown"
}

// statusFault explains an HTTP status that is no success.
func (c *clientConn) statusFault(resp *http.Response) *clientFault {
	status := resp.StatusCode
	f := &clientFault{reason: reasonStatus, status: status}
	f.text = fmt.Sprintf("%s answered %s", c.where, statusText(status))
	switch {
	case status == http.StatusUnauthorized:
		f.reason = reasonAuth
		f.text += `: authentication is needed; give credentials with --header "Authorization: Bearer ..."`
	case status == http.StatusForbidden:
		f.reason = reasonForbidden
		f.text += ": access is denied; check the credentials given with --header"
	case status == http.StatusProxyAuthRequired:
		f.text += ": the proxy wants credentials; they go into the proxy's URL in the environment"
	case status == http.StatusNotFound:
		f.text += ": is the path of the URL right? It is often /mcp"
	case status == http.StatusMethodNotAllowed:
		f.text += ": there is no Streamable HTTP server at this path; is it an older HTTP+SSE server?"
	case status == http.StatusRequestEntityTooLarge:
		f.reason = reasonTooLarge
		f.text += ": the message is too large for the server"
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		f.transient = true
	}
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		f.busy = true
		f.retryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	}
	return f
}

// plainDetail returns what a server says in plain words about an error: the
// first line, if it is short. HTML and the like is for other eyes, and a line
// that repeats the path or the query of the URL as well.
func plainDetail(body []byte, u *url.URL) string {
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
	return fmt.Sprintf("; it says: %q", line)
}

func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}

// retryAfter parses a Retry-After header (RFC 9110, 10.2.3).
func retryAfter(v string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(v); err == nil {
		return time.Duration(min(max(n, 0), 1<<31)) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// invalidFault explains a message from the server that is none.
func (c *clientConn) invalidFault(err error) *clientFault {
	return &clientFault{reason: reasonInvalid, text: fmt.Sprintf("%s sent what is no JSON-RPC message: %v", c.where, err)}
}

func (c *clientConn) tooManyFault() *clientFault {
	return &clientFault{reason: reasonTooMany, text: "too many requests in progress"}
}

func (c *clientConn) tooLargeFault() *clientFault {
	return &clientFault{reason: reasonTooLarge, text: fmt.Sprintf("%s sent a message larger than the limit of %d bytes", c.where, c.opts.MaxMessageSize)}
}

// deadSession matches the 400 that many deployed servers give for a session
// they do not know, where the specification has 404: the examples of the
// TypeScript SDK answer -32000 "Bad Request: No valid session ID provided",
// or "Server not initialized" when they have been restarted. Only whole texts
// count: an error that merely mentions a session must not end one that lives.
func deadSession(m jsonrpc.Message) bool {
	if code, _ := strconv.Atoi(string(m.Lookup("error", "code"))); code != -32000 {
		return false
	}
	var text string
	if json.Unmarshal(m.Lookup("error", "message"), &text) != nil {
		return false
	}
	text = strings.TrimPrefix(strings.ToLower(text), "bad request: ")
	switch strings.TrimRight(text, ".") {
	case "no valid session id provided", "server not initialized", "session not found",
		"invalid session id", "invalid or missing session id":
		return true
	}
	return false
}
