package observe

import (
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// An Event is something that happens beside the messages. Its concrete types are the structs of this file; of Exchange it is the
// pointer. A Watcher changes nothing in an Event, but may keep it.
type Event interface {
	event() // does nothing: it marks the types that are Events
}

// SessionOpened says that a client's session is there: the client has said who it is, with an initialize that was answered without
// error, or with a first request of 2026-07-28. Over HTTP a client of 2026-07-28 has no session, and none is opened for its requests.
type SessionOpened struct {
	Session *Session // the new session
}

// SessionEnded says that a session of which SessionOpened was told is over.
type SessionEnded struct {
	Session *Session      // the session that is over
	Err     error         // what went wrong; nil: it has ended in an orderly way
	Reason  string        // Err in words, or how else the session has ended; holds no content
	Lasted  time.Duration // since Session.Began
	Calls   uint64        // how many requests the client has made
}

// SessionFailed says that a client's connection has ended with an error before there was a
// session: its server could not be started, for instance.
type SessionFailed struct {
	Session *Session      // what is known of the client; SessionOpened was not told of it
	Err     error         // why the connection has ended; never nil
	Lasted  time.Duration // since Session.Began
}

// CallLate says that a request of a client still has no answer, about 10 seconds after it came and
// again after 60. Nobody is told so of subscriptions/listen.
type CallLate struct {
	Server  string     // the name of the server that the request is for
	Session *Session   // the session of the client; nil: the request is one of 2026-07-28 over HTTP, nobody watched when it came, and WaitingCalls has not returned it
	Method  string     // the method of the request
	ID      jsonrpc.ID // at the client's end
	Since   time.Time  // when the request came
}

// WaitingCallEnded says that a request of 2026-07-28 over HTTP waits no more: the server or the bridge has answered it, or it was
// cancelled. Nobody watched when it came, so Watchers are not told of its answer; but WaitingCalls has returned it.
type WaitingCallEnded struct {
	Server  string     // the name of the server that the request is for
	Session *Session   // the Session that WaitingCalls has made for it
	Method  string     // the method of the request
	ID      jsonrpc.ID // the request's id at the client's end
	Since   time.Time  // when the request came
}

// CallTimedOut says that the bridge has answered a request of a client itself, because the
// server has not done so in time (--request-timeout).
type CallTimedOut struct {
	Server  string        // the name of the server that the request is for
	Session *Session      // the session of the client; nil: as in CallLate
	Method  string        // the method of the request
	ID      jsonrpc.ID    // the request's id at the client's end
	Since   time.Time     // when the request came
	Timeout time.Duration // how long the server had: the limit that has passed
}

// ProcessStarted says that a process of a server was started.
type ProcessStarted struct {
	Server  string   // the name of the server that the process belongs to
	Session *Session // the session of its client; a process that clients share has one of its own; nil: it was started before any client came
	PID     int      // the process id
	Program string   // the name of its program, without folder and arguments

	// Kill ends the process at once, and returns when it has ended. While the process is still being started, it returns an error.
	Kill func() error
}

// ProcessStopping says that the bridge takes one more step to end a process.
type ProcessStopping struct {
	Server string // the name of the server that the process belongs to
	PID    int    // the process id
	Step   string // what is done now: "close stdin", "terminate", "kill"
}

// ProcessEnded says that a process has ended.
type ProcessEnded struct {
	Server        string        // the name of the server that the process belongs to
	Session       *Session      // the session that the process worked for, as in ProcessStarted, or that of the client that took it later; nil: no client came
	PID           int           // the process id, as in ProcessStarted
	Program       string        // the name of its program, as in ProcessStarted
	Err           error         // how the process has ended; nil: with exit status 0
	StopRequested bool          // the bridge has asked it to end
	Answered      bool          // it has answered a request, be it with an error
	Lasted        time.Duration // how long the process has run
}

// Stderr is one line that a process has written to its stderr, as it stands there.
type Stderr struct {
	Server  string   // the name of the server that the process belongs to
	Session *Session // the session that the process works for, as in ProcessEnded
	PID     int      // the process id
	Line    string   // the line, without its end; it may hold secrets
}

// Noise is output of a process on stdout that is no message. It reaches nobody.
type Noise struct {
	Server  string   // the name of the server that the process belongs to
	Session *Session // the session that the process works for, as in ProcessEnded
	PID     int      // the process id
	Bytes   int      // how long the output is
	Reason  string   // what is wrong with it
}

// Dropped says that a message reached nobody.
type Dropped struct {
	Server  string          // the name of the server that the message came from or was for
	Session *Session        // the session of the message; nil: not known, as it always is so far
	Message jsonrpc.Message // the message that reached nobody
	Reason  string          // why the message reached nobody; holds no content
}

// Refused says that a request, of HTTP or in it, was refused.
type Refused struct {
	Server     string   // "": it was for none, or that is not known
	Session    *Session // the session of the request; nil: not known, as it always is so far
	Rule       string   // the rule of docs/rules.md that the request breaks, or a short word; "": none
	Method     string   // the HTTP method
	Path       string   // the path of the request's URL, without the query
	RemoteAddr string   // the client's address
	Host       string   // of a request refused for its Host or Origin: its header Host, 100 bytes at most
	Origin     string   // of a request refused for its Host or Origin: its header Origin, 100 bytes at most
	Status     int      // the HTTP status of the reply
	Reason     string   // what the client was told, or why there is no place for it, which may be more than it was told
	Cause      string   // why a credential is refused, in words of a fixed set; the client was not told; "": not known, or it is not about a credential
}

// Exchange is an HTTP exchange that has ended, of a client with the bridge (Downstream) or of the
// bridge with a server (Upstream). It is told only while somebody watches exchanges. URL and headers
// hold credentials: a Watcher must take them out before it shows or keeps them. The Event is a pointer, because the struct is
// large.
type Exchange struct {
	Server                      string        // the name of the server that the exchange is for; "": it is for none, or that is not known
	Session                     *Session      // the session that the exchange belongs to; nil: not known
	Hop                         Hop           // with whom: Downstream a client, Upstream a server
	Method                      string        // the HTTP method of the request
	URL                         string        // of a client's request (Downstream), path and query; of one to a server (Upstream), the whole URL
	Proto                       string        // the version of HTTP, such as "HTTP/1.1"; "": Upstream, and there was no reply
	RemoteAddr                  string        // the peer's address; "": not known
	Status                      int           // the HTTP status of the reply; 0: there was no reply
	RequestHeader               http.Header   // the headers of the request
	ResponseHeader              http.Header   // the headers of the reply; nil: there was no reply
	RequestBytes, ResponseBytes int64         // bytes of the body of the request, and of the reply; 0: there were none, or their number is not known
	FirstByte                   time.Duration // how long after Began the reply began; 0: there was no reply
	Duration                    time.Duration // how long the exchange took, bodies included; of one that became a connection to a server, until that
	Began                       time.Time     // when the exchange began
	Rule, Reason                string        // of an exchange in which a request was refused: Rule and Reason of the event Refused; "": of others
	Err                         error         // what went wrong; nil: it has ended in an orderly way
}

// Stream says that a stream of events or a WebSocket was opened or closed, or a stream of events resumed.
type Stream struct {
	Server      string   // the name of the server
	Session     *Session // the session that the stream belongs to
	Hop         Hop      // with whom: Downstream a client, Upstream a server
	Name        string   // the name of the stream, in its session; "": the connection is the stream
	Action      string   // what has happened to the stream: "opened", "resumed", "closed"
	FromEventID string   // of a resumed stream: the id of the event after which it goes on
	Reason      string   // of a closed stream: why it was closed; "": not known
}

// Unanswered says that a request will have no answer that is known: its Conn was closed, its
// session is over, it could not be sent, another request has its id, too many are open, or it was
// cancelled and so many were cancelled after it (maxCancelled) that a late answer would not be known
// to be its own.
type Unanswered struct {
	Session *Session // the session in which the request passed
	Hop     Hop      // at which end of the bridge the request passed
	Call    *Call    // the request

	// Cancelled says that the sender has cancelled the request. Watchers were told of the cancellation when it passed, which may be long ago.
	Cancelled bool
}

// Note is a remark about traffic that looks wrong: a diagnosis in passing.
type Note struct {
	Server  string   // the name of the server that the remark is about
	Session *Session // the session in which it was seen; nil: in none
	Code    string   // the code of the diagnosis, as in docs/doctor.md
	Text    string   // the remark in words, with what to do; it may quote what peers have said
}

// event marks SessionOpened as an Event. It does nothing.
func (SessionOpened) event() {}

// event marks SessionEnded as an Event. It does nothing.
func (SessionEnded) event() {}

// event marks SessionFailed as an Event. It does nothing.
func (SessionFailed) event() {}

// event marks CallLate as an Event. It does nothing.
func (CallLate) event() {}

// event marks CallTimedOut as an Event. It does nothing.
func (CallTimedOut) event() {}

// event marks WaitingCallEnded as an Event. It does nothing.
func (WaitingCallEnded) event() {}

// event marks ProcessStarted as an Event. It does nothing.
func (ProcessStarted) event() {}

// event marks ProcessStopping as an Event. It does nothing.
func (ProcessStopping) event() {}

// event marks ProcessEnded as an Event. It does nothing.
func (ProcessEnded) event() {}

// event marks Stderr as an Event. It does nothing.
func (Stderr) event() {}

// event marks Noise as an Event. It does nothing.
func (Noise) event() {}

// event marks Dropped as an Event. It does nothing.
func (Dropped) event() {}

// event marks Refused as an Event. It does nothing.
func (Refused) event() {}

// event marks *Exchange as an Event. It does nothing.
func (*Exchange) event() {}

// event marks Stream as an Event. It does nothing.
func (Stream) event() {}

// event marks Unanswered as an Event. It does nothing.
func (Unanswered) event() {}

// event marks Note as an Event. It does nothing.
func (Note) event() {}
