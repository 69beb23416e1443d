package trace

import (
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Version is the version of the format. It goes up when a member changes its meaning or is
// taken away, not when one is added.
const Version = 1

// Kind is what a Record is about. A reader may meet others than these.
type Kind string

// The kinds.
const (
	Request      Kind = "request"      // a message
	Response     Kind = "response"     // a message
	Notification Kind = "notification" // a message
	HTTP         Kind = "http"         // an HTTP exchange that has ended
	Refused      Kind = "refused"      // a request that was refused
	Stream       Kind = "stream"       // a stream was opened, resumed or closed
	Session      Kind = "session"      // a client's session was opened or has ended
	Process      Kind = "process"      // a server process was started, is to end, has ended
	Stderr       Kind = "stderr"       // a line of a process
	Noise        Kind = "noise"        // output of a process that is no message
	Drop         Kind = "drop"         // a message that reached nobody
	Gap          Kind = "gap"          // records are missing here
	Note         Kind = "note"         // a remark about traffic that looks wrong
)

// IsMessage reports whether a Record of this kind is a message that has passed one end of the bridge.
func (k Kind) IsMessage() bool { return k == Request || k == Response || k == Notification }

// Where a message passed, and where it goes: the values of Record.Hop and Record.Dir.
const (
	Downstream = "down" // between the clients and the bridge
	Upstream   = "up"   // between the bridge and the servers
	ToServer   = "c2s"
	ToClient   = "s2c"
)

// Record is one line of a trace. The zero value of a field says that the line has no such
// member. A Record that Parse returns may refer to the line.
type Record struct {
	Seq  uint64    // in the order in which things began; grows, with holes; 0: a Gap, or Earlier
	Time time.Time // when it passed or happened; of an HTTP and one that is Earlier: when it began
	Kind Kind

	Server  string // its configured name
	Session string // a pseudonym, never the session id
	Stream  string // the stream of the session on which the message passed, or of which a Stream tells
	Hop     string // Downstream or Upstream
	Dir     string // ToServer or ToClient

	// CauseSeq is Seq of the received message that this one was made of, or that a Drop tells of. 0: the message was
	// received, the bridge itself has made it, or the received one has no record.
	CauseSeq uint64

	Era       string // "legacy" or "modern"
	Transport string // "http", "sse", "websocket", "socket", "stdio"

	Method string // of a response: of its request
	Name   string // of the tool or prompt, or the URI of the resource; of a response: of its request
	ID     jsonrpc.ID
	Size   int // of the message, of the noise, in bytes, as it passed

	// Earlier is true of a Request that came before somebody looked, and still has no answer: nothing else is known
	// of it.
	Earlier bool

	TimeInBridge time.Duration // since the message of CauseSeq came
	Duration     time.Duration // of a response: since its request passed here; of a Note about a request: since that came; of one that is Earlier: how long it waits
	Outcome
	Body   Body   // of a message, a Drop, a line of Stderr
	Reason string // of a Drop, a Noise, a Stream
	Lost   uint64 // of a Gap: how many records

	// Redacted is what was taken out of Body and HTTP: paths such as "params.arguments.token",
	// "http.req.Authorization".
	Redacted []string

	HTTP  *Exchange // of an HTTP, a Refused
	Event *Event    // of a Stream, Session, Process, Stderr, Noise, Note
}

// Outcome is what a response says.
type Outcome struct {
	Code   int  // of an error; 0: it is none, or Failed
	Failed bool // the result of a tool with isError, or an error with code 0
}

// Body is text, as exactly as it is kept.
type Body struct {
	Text         []byte // with OmittedBytes: the beginning; nil: nothing is kept
	Tail         []byte // with OmittedBytes: the end
	OmittedBytes int    // how many bytes are left out between Text and Tail

	valid   bool // Text is one JSON value in UTF-8; false: that is not known
	oneLine bool // there is no line break in Text; false: that is not known
}

// Exchange is an HTTP exchange, or as much of it as a refusal knows.
type Exchange struct {
	Method                      string
	URL                         string // Downstream: path and query; Upstream: the whole URL
	Proto                       string
	RemoteAddr                  string // the peer's address
	Status                      int
	RequestHeader               http.Header
	ResponseHeader              http.Header
	RequestBytes, ResponseBytes int64         // bytes of the body of the request, and of the reply
	FirstByte                   time.Duration // until the reply began
	Duration                    time.Duration
	Rule, Reason                string // of a refusal
	Err                         string // how it has ended; "": in an orderly way

	requestHeaderJSON, responseHeaderJSON []byte // of a Recorder's record, in the place of RequestHeader and ResponseHeader: as they stand in the line
}

// Event is the part of a Record that tells what has happened to a Stream, Session or Process, or the Note.
type Event struct {
	// Action is "opened", "resumed" or "closed" of a Stream; "opened", "ended" or "failed" of a Session;
	// "started", "stopping" or "ended" of a Process.
	Action string

	PID           int
	Program       string // its name, without arguments
	Step          string // of a stop: "close stdin", "terminate", "kill"
	StopRequested bool   // the bridge has asked the process to end

	Client   string // name of a session's client
	Version  string // of that client
	Revision string // negotiated protocol version
	Calls    uint64 // requests of a session's client

	FromEventID string        // of a resumed stream: the event id from which
	Reason      string        // how a session has ended
	Err         string        // what went wrong; "": it has ended in an orderly way
	Duration    time.Duration // how long it was there
	Code        string        // of a Note
	Text        string        // of a Note
}
