package eventlog

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// exchangeWatcher is an observe.Watcher that writes a line for each request at the clients' end that was answered,
// that was cancelled, or that will not be answered.
type exchangeWatcher struct {
	logger   hclog.Logger             // where the lines go
	sanitize func(text string) string // makes a text that a peer has chosen fit for a line: Log.sanitized
}

// Event implements observe.Watcher: it writes the line of a request that will not be answered, unless that was cancelled: then
// Message has written its line.
func (x *exchangeWatcher) Event(e observe.Event) {
	if e, ok := e.(observe.Unanswered); ok && e.Hop == observe.Downstream && e.Call != nil && !e.Cancelled {
		x.logExchange(e.Session, e.Call, time.Since(e.Call.Began()), "status", "no answer")
	}
}

// Message implements observe.Watcher: it writes the line of a request that was answered or cancelled by this message. A
// request that was cancelled and is answered all the same gets two lines.
func (x *exchangeWatcher) Message(p *observe.Passed) {
	if p.Hop != observe.Downstream || p.Call == nil {
		return
	}
	switch p.Message.Kind() {
	case jsonrpc.Response:
		x.logExchange(p.Session, p.Call, p.Duration, "answer_bytes", p.Message.Size(), "status", responseStatus(&p.Message))
	case jsonrpc.Notification: // its sender has cancelled it
		x.logExchange(p.Session, p.Call, p.At().Sub(p.Call.Began()), "status", "cancelled")
	}
}

// logExchange writes the line of a request, at debug. took is how long it waited; how are the fields that say how it has ended.
func (x *exchangeWatcher) logExchange(s *observe.Session, c *observe.Call, took time.Duration, how ...any) {
	fields := serverFields(s.Server, nil, "session", s.Name, "id", x.sanitize(c.ID.String()), "method", x.sanitize(c.Method))
	switch c.Method {
	case "tools/call":
		fields = append(fields, "tool", x.sanitize(c.Name))
	case "prompts/get":
		fields = append(fields, "prompt", x.sanitize(c.Name))
	}
	if c.Dir == observe.ToClient {
		fields = append(fields, "by", "server")
	}
	fields = append(fields, "ms", float64(took.Microseconds())/1000, "asked_bytes", c.Size)
	fields = append(fields, how...)
	if x.logger.IsTrace() {
		fields = append(fields, "began", c.Began().Format("15:04:05.000000"))
	}
	x.logger.Debug("exchange", fields...)
}

// responseStatus returns what a response says: "ok", "tool error" for a result with isError, or "error" and the code of the error.
func responseStatus(m *jsonrpc.Message) string {
	switch {
	case m.IsError():
		return "error " + clipPrintable(string(m.Lookup("error", "code")))
	case string(m.Lookup("result", "isError")) == "true":
		return "tool error"
	}
	return "ok"
}
