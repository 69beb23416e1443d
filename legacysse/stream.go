package legacysse

import (
	"context"
	"errors"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse/internal/wire"
	"github.com/mcp-bridge/mcp-bridge/sse"
)

// ServeSSE answers a GET with the event stream of a new session (SS1), and
// ends the session when the stream ends (SS5).
func (h *Handler) ServeSSE(w http.ResponseWriter, r *http.Request) {
	if r = h.admitRequest(w, r); r == nil {
		return
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET")
		refuse(w, r, "SS1", http.StatusMethodNotAllowed, jsonrpc.ID{}, "method "+r.Method+" is not allowed here; use GET")
		return
	}
	if !httpserve.Accepts(r.Header, wire.TypeSSE) {
		refuse(w, r, "LI4", http.StatusNotAcceptable, jsonrpc.ID{}, "the Accept header must admit text/event-stream")
		return
	}
	s, err := h.startSession(r)
	if err != nil {
		if r.Context().Err() == nil { // the client has not gone while it waited
			h.logRefused(r, err.Error())
			httpserve.RefuseBusy(w, r, jsonrpc.ID{}, admission.PublicReason(err), err)
		}
		return
	}
	defer close(s.streamEnded)
	err = h.writeStream(w, r, s)
	level := hclog.Debug
	if err == errStalled || err == errIdle { // it was not the client's doing
		level = hclog.Info
	}
	h.opts.Logger.Log(level, "event stream ended", "session", s.logName(), "reason", err)
	s.end(err)
}

// messageURL returns the path for POSTs as the client of r must see it.
func (h *Handler) messageURL(r *http.Request) string {
	if h.opts.MessageURL != nil {
		return h.opts.MessageURL(r)
	}
	path := strings.TrimLeft(r.URL.EscapedPath(), "/") // two slashes would begin a host name
	return h.opts.Guard.Prefix(r) + "/" + path[:strings.LastIndexByte(path, '/')+1] + "message"
}

// endpointURL returns the address for the POSTs of a session.
func endpointURL(messageURL, id string) string {
	if strings.Contains(messageURL, "?") {
		return messageURL + "&sessionId=" + id
	}
	return messageURL + "?sessionId=" + id
}

// writeStream writes the event stream until the session is over, and returns why it is.
func (h *Handler) writeStream(w http.ResponseWriter, r *http.Request, s *session) error {
	out := sse.NewWriter(w, h.opts.StallAfter)
	out.Begin()
	out.Event(sse.Event{Name: "endpoint", Data: []byte(endpointURL(h.messageURL(r), s.id))})

	interval := h.opts.KeepAlive
	if interval < 0 {
		interval = math.MaxInt64
	}
	keepAlive := time.NewTimer(interval)
	defer keepAlive.Stop()
	idle := newIdleTimer(h.opts.SessionTimeout)
	defer idle.Stop()
	var batch [][]byte
	for isLast := false; ; {
		for _, line := range batch {
			out.Line(sse.Event{Name: "message"}, line)
		}
		clear(batch)
		if isLast && s.endCause() == bridge.ErrReclaimed { // the transport has no better place for it
			out.Comment(bridge.ErrReclaimed.Error())
		}
		if err := out.Flush(); err != nil {
			return explainWriteError(err)
		}
		if isLast {
			return errSessionEnded
		}
		if len(batch) == 0 {
			select {
			case <-s.out.Ready():
			case <-r.Context().Done():
				return errClientGone
			case <-idle.C:
				left := h.opts.SessionTimeout - s.idleTime()
				if left <= 0 {
					return errIdle
				}
				idle.Reset(left)
				continue
			case <-keepAlive.C:
				out.Comment("keep-alive")
			}
			keepAlive.Reset(interval)
		}
		batch, isLast = s.out.TakeAll(batch[:0])
	}
}

// newIdleTimer returns a timer of d; one that never fires if d is 0 or negative.
func newIdleTimer(d time.Duration) *time.Timer {
	if d <= 0 {
		d = math.MaxInt64
	}
	return time.NewTimer(d)
}

// explainWriteError returns why a session is over whose event stream could not be written, from the error of the write:
// errStalled if the write has run into its deadline, otherwise errClientGone.
func explainWriteError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return errStalled
	}
	return errClientGone
}
