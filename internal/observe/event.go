package observe

import (
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// An Event is something that happens beside the messages. Its concrete types are the structs
// of this file. A Watcher changes nothing in it; it may keep it.
type Event interface{ event() }

// SessionOpened says that a client's session is there: the client has said who it is. A
// client of 2026-07-28 has no session over HTTP, and none is opened for its requests.
type SessionOpened struct{ Session *Session }

// SessionEnded says that a session of which SessionOpened was told is over.
type SessionEnded struct {
	Session *Session
	Err     error  // what went wrong; nil: it has ended in an orderly way
	Reason  string // the same in words, or how else it has ended; holds no content
	Lasted  time.Duration
	Calls   uint64 // requests of the client
}

// SessionFailed says that a client's connection has ended with an error before there was a
// session: its server could not be started, for instance.
type SessionFailed struct {
	Session *Session
	Err     error
	Lasted  time.Duration
}

// CallLate says that a request of a client still has no answer, 10 seconds after it came and
// again after 60.
type CallLate struct {
	Server  string
	Session *Session // nil: the request is one of 2026-07-28 over HTTP
	Method  string
	ID      jsonrpc.ID
	Since   time.Time
}

// WaitingCallEnded says that a request has ended that WaitingCalls has returned, and whose answer nobody is told of: one of
// 2026-07-28 over HTTP. It was answered or cancelled.
type WaitingCallEnded struct {
	Server  string
	Session *Session
	Method  string
	ID      jsonrpc.ID
	Since   time.Time
}

// CallTimedOut says that the bridge has answered a request of a client itself, because the
// server has not done so in time (--request-timeout).
type CallTimedOut struct {
	Server  string
	Session *Session // as in CallLate
	Method  string
	ID      jsonrpc.ID
	Since   time.Time
	Timeout time.Duration
}

// ProcessStarted says that a process of a server was started.
type ProcessStarted struct {
	Server  string
	Session *Session // nil: it is not started for one client
	PID     int
	Program string // the name of its program, without folder and arguments

	// Kill ends the process at once, and returns when it has ended.
	Kill func() error
}

// ProcessStopping says that a process was asked to end, in one more way.
type ProcessStopping struct {
	Server string
	PID    int
	Step   string // "close stdin", "terminate", "kill"
}

// ProcessEnded says that a process has ended.
type ProcessEnded struct {
	Server        string
	Session       *Session // as in ProcessStarted
	PID           int
	Program       string // as in ProcessStarted
	Err           error  // nil: with exit status 0
	StopRequested bool   // the bridge has asked it to end
	Lasted        time.Duration
}

// Stderr is one line that a process has written to its stderr, as it stands there.
type Stderr struct {
	Server  string
	Session *Session // as in ProcessStarted
	PID     int
	Line    string
}

// Noise is output of a process that is no message.
type Noise struct {
	Server  string
	Session *Session // as in ProcessStarted
	PID     int
	Bytes   int
	Reason  string
}

// Dropped says that a message reached nobody.
type Dropped struct {
	Server  string
	Session *Session // nil: not known
	Message jsonrpc.Message
	Reason  string // holds no content
}

// Refused says that a request, of HTTP or in it, was refused.
type Refused struct {
	Server     string   // "": it was for none
	Session    *Session // nil: for none
	Rule       string   // the rule id of the protocol catalogue, or a short word; "": none
	Method     string   // of HTTP
	Path       string   // without the query
	RemoteAddr string   // the client's address
	Host       string   // of a request refused for its Host or Origin: what it names, 100 bytes at most
	Origin     string   // likewise
	Status     int
	Reason     string // what the client was told
	Cause      string // in a few words of a fixed set, why a credential is refused, which the client was not told; "": it is not known
}

// Exchange is an HTTP exchange that has ended, of a client with the bridge (Downstream) or of the
// bridge with a server (Upstream). It is told only while somebody watches messages. URL and headers
// hold credentials: a Watcher must take them out before it shows or keeps them. The Event is a pointer, because the struct is
// large.
type Exchange struct {
	Server                      string
	Session                     *Session // nil: not known
	Hop                         Hop
	Method                      string
	URL                         string // Downstream: path and query. Upstream: all of it
	Proto                       string // "HTTP/1.1"
	RemoteAddr                  string // the peer's address
	Status                      int
	RequestHeader               http.Header
	ResponseHeader              http.Header
	RequestBytes, ResponseBytes int64         // bytes of the body of the request, and of the reply
	FirstByte                   time.Duration // until the reply began
	Duration                    time.Duration
	Began                       time.Time
	Rule, Reason                string // of a refusal
	Err                         error  // nil: it has ended in an orderly way
}

// Stream says that a stream of events was opened, resumed or closed, or a WebSocket.
type Stream struct {
	Server      string
	Session     *Session
	Hop         Hop
	Name        string // of the stream, in its session
	Action      string // "opened", "resumed", "closed"
	FromEventID string // of a resumed one: the event id from which
	Reason      string // of a closed one
}

// Unanswered says that a request will have no answer that is known: its Conn was closed, its
// session is over, it could not be sent, or another request has its id.
type Unanswered struct {
	Session *Session
	Hop     Hop
	Call    *Call

	// Cancelled says that who has sent it wants no answer. That was told when it was cancelled; this may come much later.
	Cancelled bool
}

// Note is a remark about traffic that looks wrong: a diagnosis in passing.
type Note struct {
	Server  string
	Session *Session
	Code    string // of the diagnosis, as in docs/doctor.md
	Text    string
}

func (SessionOpened) event()    {}
func (SessionEnded) event()     {}
func (SessionFailed) event()    {}
func (CallLate) event()         {}
func (CallTimedOut) event()     {}
func (WaitingCallEnded) event() {}
func (ProcessStarted) event()   {}
func (ProcessStopping) event()  {}
func (ProcessEnded) event()     {}
func (Stderr) event()           {}
func (Noise) event()            {}
func (Dropped) event()          {}
func (Refused) event()          {}
func (*Exchange) event()        {}
func (Stream) event()           {}
func (Unanswered) event()       {}
func (Note) event()             {}
