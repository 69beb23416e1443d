package eventlog

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// exchanges is an observe.Watcher that writes a line for each request that was answered, for
// each that was cancelled, and for each that will not be answered.
type exchanges struct {
	out   hclog.Logger
	shown func(text string) string // see Log
}

// Event implements observe.Watcher.
func (x *exchanges) Event(e observe.Event) {
	if e, ok := e.(observe.Unanswered); ok && e.Hop == observe.Downstream && e.Call != nil && !e.Cancelled {
		x.line(e.Session, e.Call, time.Since(e.Call.Began()), "status", "no answer")
	}
}

// Message implements observe.Watcher.
func (x *exchanges) Message(p *observe.Passed) {
	if p.Hop != observe.Downstream || p.Call == nil {
		return
	}
	switch p.Message.Kind() {
	case jsonrpc.Response:
		x.line(p.Session, p.Call, p.Duration, "answer_bytes", p.Message.Size(), "status", outcome(&p.Message))
	case jsonrpc.Notification: // of its sender
		x.line(p.Session, p.Call, p.At().Sub(p.Call.Began()), "status", "cancelled")
	}
}

func (x *exchanges) line(s *observe.Session, c *observe.Call, took time.Duration, how ...any) {
	fields := serverFields(s.Server, nil, "session", s.Name, "id", x.shown(c.ID.String()), "method", x.shown(c.Method))
	switch c.Method {
	case "tools/call":
		fields = append(fields, "tool", x.shown(c.Name))
	case "prompts/get":
		fields = append(fields, "prompt", x.shown(c.Name))
	}
	if c.Dir == observe.ToClient {
		fields = append(fields, "by", "server")
	}
	fields = append(fields, "ms", float64(took.Microseconds())/1000, "asked_bytes", c.Size)
	fields = append(fields, how...)
	if x.out.IsTrace() {
		fields = append(fields, "began", c.Began().Format("15:04:05.000000"))
	}
	x.out.Debug("exchange", fields...)
}

// outcome returns what a response says: "ok", "tool error", or the code of its error.
func outcome(m *jsonrpc.Message) string {
	switch {
	case m.IsError():
		return "error " + clean(string(m.Lookup("error", "code")))
	case string(m.Lookup("result", "isError")) == "true":
		return "tool error"
	}
	return "ok"
}
