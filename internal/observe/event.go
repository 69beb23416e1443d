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

// CallLate says that a request of a client still has no answer, about 10 seconds after it came and
// again after 60. Nobody is told so of subscriptions/listen.
type CallLate struct {
	Server  string
	Session *Session // nil: the request is one of 2026-07-28 over HTTP, and nobody watched when it came
	Method  string
	ID      jsonrpc.ID // at the client's end
	Since   time.Time  // when the request came
}

// WaitingCallEnded says that a request of 2026-07-28 over HTTP was answered or cancelled. Nobody watched when it came, so
// Watchers are not told of its answer; but WaitingCalls has returned it.
type WaitingCallEnded struct {
	Server  string
	Session *Session // that WaitingCalls has made for it
	Method  string
	ID      jsonrpc.ID
	Since   time.Time // when the request came
}

// CallTimedOut says that the bridge has answered a request of a client itself, because the
// server has not done so in time (--request-timeout).
type CallTimedOut struct {
	Server  string
	Session *Session // as in CallLate
	Method  string
	ID      jsonrpc.ID
	Since   time.Time // when the request came
	Timeout time.Duration
}

// ProcessStarted says that a process of a server was started.
type ProcessStarted struct {
	Server  string
	Session *Session // of its client; a process that clients share has one of its own; nil: it was started before any client came
	PID     int
	Program string // the name of its program, without folder and arguments

	// Kill ends the process at once, and returns when it has ended. While the process is still being started, it returns an error.
	Kill func() error
}

// ProcessStopping says that the bridge has taken one more step to end a process.
type ProcessStopping struct {
	Server string
	PID    int
	Step   string // "close stdin", "terminate", "kill"
}

// ProcessEnded says that a process has ended.
type ProcessEnded struct {
	Server        string
	Session       *Session // as in ProcessStarted, or the client's that took the process later
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
	Reason  string // what is wrong with it
}

// Dropped says that a message reached nobody.
type Dropped struct {
	Server  string
	Session *Session // nil: not known, as it always is so far
	Message jsonrpc.Message
	Reason  string // holds no content
}

// Refused says that a request, of HTTP or in it, was refused.
type Refused struct {
	Server     string   // "": it was for none, or that is not known
	Session    *Session // nil: not known, as it always is so far
	Rule       string   // the rule id of the protocol catalogue, or a short word; "": none
	Method     string   // of HTTP
	Path       string   // without the query
	RemoteAddr string   // the client's address
	Host       string   // of a request refused for its Host or Origin: its header Host, 100 bytes at most
	Origin     string   // likewise, its header Origin
	Status     int
	Reason     string // what the client was told
	Cause      string // why a credential is refused, in words of a fixed set; the client was not told; "": not known, or it is not about a credential
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
	Name        string // of the stream, in its session; "": the connection is the stream
	Action      string // "opened", "resumed", "closed"
	FromEventID string // of a resumed one: the event id from which
	Reason      string // of a closed one
}

// Unanswered says that a request will have no answer that is known: its Conn was closed, its
// session is over, it could not be sent, another request has its id, or too many are open.
type Unanswered struct {
	Session *Session
	Hop     Hop
	Call    *Call

	// Cancelled says that the sender has cancelled the request. Watchers were told of the cancellation when it passed, which may be long ago.
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
