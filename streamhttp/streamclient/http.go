package streamclient

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// newRequest makes a request with the headers that all have (LE1, LE3, LE4): those of the session, if
// that is not nil, among them.
func (c *conn) newRequest(ctx context.Context, method string, session *session) *http.Request {
	req := c.target.NewRequest(ctx, method)
	if session != nil {
		c.ledger.Lock()
		version := session.version
		c.ledger.Unlock()
		if session.id != "" {
			req.Header[wire.HeaderSession] = []string{session.id}
		}
		if version != "" {
			req.Header[wire.HeaderVersion] = []string{version}
		}
	}
	return req
}

// openStream asks for a stream, by GET: the standalone one if lastID is "", otherwise what follows the
// event lastID of any stream. A response is a success, and the caller closes its body.
func (c *conn) openStream(ctx context.Context, session *session, lastID string) (*http.Response, *httpdial.Fault) {
	req := c.newRequest(ctx, http.MethodGet, session)
	req.Header["Accept"] = valueAcceptSSE
	if lastID != "" {
		req.Header[wire.HeaderLastEventID] = []string{lastID}
	}
	resp, fault := c.target.Do(req)
	if fault != nil {
		return nil, fault
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, c.readRefusal(nil, resp)
	}
	return resp, nil
}

// openStreamWithin asks for a stream by GET, as openStream does, but gives up if the server has not answered within limit.
func (c *conn) openStreamWithin(ctx context.Context, limit time.Duration, session *session, lastID string) (*http.Response, *httpdial.Fault) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(limit, cancel)
	resp, fault := c.openStream(ctx, session, lastID)
	inTime := late.Stop()
	switch {
	case fault != nil:
		cancel()
	case inTime:
		resp.Body = &cancelOnCloseBody{resp.Body, cancel}
	default:
		resp.Body.Close()
	}
	if !inTime {
		return nil, c.target.Peer.NetFault(context.DeadlineExceeded)
	}
	return resp, fault
}

// cancelOnCloseBody is a body whose request has a context of its own, which Close ends.
type cancelOnCloseBody struct {
	io.ReadCloser
	cancel context.CancelFunc // ends the context of the request
}

// Close closes the body, and ends the context of its request.
func (b *cancelOnCloseBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// deleteSession ends a session at the server, if it has an id, and waits for the answer, for CloseTimeout at most (LE11).
// Nothing depends on the answer.
func (c *conn) deleteSession(session *session) {
	if session.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(httpdial.Unattended(context.Background()), c.opts.CloseTimeout)
	defer cancel()
	resp, fault := c.target.Do(c.newRequest(ctx, http.MethodDelete, session))
	if fault != nil {
		c.log.Debug("could not end the session", "reason", fault.Reason)
		return
	}
	httpdial.DrainShortBody(resp)
	resp.Body.Close()
}
