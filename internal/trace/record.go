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
	Request      Kind = "request"      // a JSON-RPC request has passed one end of the bridge
	Response     Kind = "response"     // a JSON-RPC response has passed one end of the bridge
	Notification Kind = "notification" // a JSON-RPC notification has passed one end of the bridge
	HTTP         Kind = "http"         // an HTTP exchange, of a client with the bridge or of the bridge with a server, that has ended
	Refused      Kind = "refused"      // a client's request that the bridge has refused
	Stream       Kind = "stream"       // a stream was opened, resumed or closed
	Session      Kind = "session"      // a client's session was opened, has ended, or could not be opened
	Process      Kind = "process"      // a server process was started, is to end, has ended
	Stderr       Kind = "stderr"       // a line that a process has written to stderr
	Noise        Kind = "noise"        // output of a process on stdout that is no message
	Drop         Kind = "drop"         // a message that the bridge has dropped: it has reached nobody
	Gap          Kind = "gap"          // in place of records that are missing here
	Note         Kind = "note"         // a remark about a request or other traffic that looks wrong
)

// IsMessage reports whether a Record of this kind is a message that has passed one end of the bridge.
func (k Kind) IsMessage() bool { return k == Request || k == Response || k == Notification }

// Where a message passed, and where it goes: the values of Record.Hop and Record.Dir.
const (
	Downstream = "down" // a value of Record.Hop: between the clients and the bridge
	Upstream   = "up"   // a value of Record.Hop: between the bridge and the servers
	ToServer   = "c2s"  // a value of Record.Dir: from the client to the server
	ToClient   = "s2c"  // a value of Record.Dir: from the server to the client
)

// Record is one line of a trace. The zero value of a field says that the line has no such
// member. A Record that Parse returns may refer to the line.
type Record struct {
	Seq  uint64    // number of the record, in the order in which things began; grows, with holes; 0: a Gap, or Earlier
	Time time.Time // when it passed or happened; of an HTTP, and with Earlier: when it began
	Kind Kind      // what the record is about: a message, a session, a process, ...

	Server  string // the configured name of the server
	Session string // the bridge's own name of the session in one run, such as "s1"; never the session's id
	Stream  string // name of the stream on which the message passed, or of which a Stream tells
	Hop     string // Downstream or Upstream
	Dir     string // ToServer or ToClient

	// CauseSeq is Seq of the received message that this one was made of, or that a Drop tells of. 0: the message was
	// received, the bridge itself has made it, or the received one has no record.
	CauseSeq uint64

	Era       string // what the client speaks, "legacy" or "modern"; not at the servers' end
	Transport string // the client's transport, at the servers' end the server's: "http", "sse", "websocket", "socket", "tcp", "stdio"

	Method string     // MCP method of the message; of a response, that of its request
	Name   string     // name of the tool or prompt, or URI of the resource, that the request is for; of a response or a cancellation, that of its request
	ID     jsonrpc.ID // JSON-RPC id of the message, or of the request that a Note is about; zero: it has none
	Size   int        // length in bytes of the message, of the line of stderr or of the noise, as it passed

	// Earlier is true of a Request that came before somebody looked, and still has no answer: nothing else is known
	// of it.
	Earlier bool

	TimeInBridge time.Duration // of a message that was made of another: how long after that one (see CauseSeq) it passed
	Duration     time.Duration // of a response: since its request passed here; of a Note about a request: since the request came; with Earlier: how long the request waits
	Outcome
	Body   Body   // the text of a message, a Drop, or a line of stderr
	Reason string // of a Drop: why the message was dropped; of a Noise: why it is no message; of a Stream: why it was closed
	Lost   uint64 // of a Gap: how many records are missing

	// Redacted is what was taken out of Body and HTTP: paths such as "params.arguments.token" and
	// "http.req.Authorization"; "raw" for a Body that is no message; "*" for all of a message, or for further paths.
	Redacted []string

	HTTP  *Exchange // of an HTTP or a Refused: the HTTP exchange; nil: of other kinds
	Event *Event    // of a Stream, Session, Process, Stderr, Noise or Note: what has happened; nil: of other kinds
}

// Outcome says whether a response reports a failure.
type Outcome struct {
	Code   int  // JSON-RPC code of an error; 0: it is no error, or see Failed
	Failed bool // it is a tool's result with isError, or an error whose code is 0
}

// Body is the text of a message or line, or as much of it as is kept.
type Body struct {
	Text         []byte // the text; only its beginning if OmittedBytes is not 0; nil: nothing is kept
	Tail         []byte // the end of the text if OmittedBytes is not 0; nil: only the beginning is kept
	OmittedBytes int    // how many bytes are left out between Text and Tail

	valid   bool // Text is one JSON value in UTF-8; false: that is not known
	oneLine bool // there is no line break in Text; false: that is not known
}

// Exchange is an HTTP exchange, or as much of it as a refusal knows.
type Exchange struct {
	Method         string        // HTTP method: "POST"
	URL            string        // of a client's request (Downstream), path and query, of a Refused only the path; of one to a server (Upstream), the whole URL
	Proto          string        // version of HTTP, such as "HTTP/1.1"; "": of a Refused, or there was no reply
	RemoteAddr     string        // the peer's address; "": not known
	Status         int           // HTTP status of the reply; 0: there was no reply
	RequestHeader  http.Header   // headers of the request; of a Refused, at most Host and Origin
	ResponseHeader http.Header   // headers of the reply
	RequestBytes   int64         // length of the request's body in bytes; 0: it had none, or that is not known
	ResponseBytes  int64         // length of the reply's body in bytes; 0: it had none, or that is not known
	FirstByte      time.Duration // time from the beginning of the request until the reply began; 0: there was no reply
	Duration       time.Duration // time from the beginning of the request until the end of the reply
	Rule           string        // of a refusal: the rule of docs/rules.md that the request breaks, or a short word
	Reason         string        // of a refusal: what the client was told
	Err            string        // why it has not ended in an orderly way; "": it has

	requestHeaderJSON  []byte // headers of the request as they stand in the line; a Recorder sets it in place of RequestHeader; nil: RequestHeader counts
	responseHeaderJSON []byte // headers of the reply as they stand in the line; a Recorder sets it in place of ResponseHeader; nil: ResponseHeader counts
}

// Event is the part of a Record that tells what has happened to a Stream, Session or Process, what a Note says, and of which process
// a Stderr or Noise is.
type Event struct {
	// Action is "opened", "resumed" or "closed" of a Stream; "opened", "ended" or "failed" of a Session;
	// "started", "stopping" or "ended" of a Process.
	Action string

	PID           int    // id of the process that it is about, or that works for the session; 0: none
	Program       string // name of the process's program, without arguments
	Step          string // of a process that is to end: how it is told: "close stdin", "terminate", "kill"
	StopRequested bool   // of a process that has ended: the bridge had asked it to

	Client   string // name of the session's client
	Version  string // version of the session's client
	Revision string // protocol version of a session that was opened: negotiated, or named by a modern client
	Calls    uint64 // of a session that has ended: how many requests its client has made

	FromEventID string        // id of the event after which a stream was resumed
	Reason      string        // of a session that has ended: how, in words
	Err         string        // of a session or process: what went wrong; "": it has ended in an orderly way
	Duration    time.Duration // of a session or process that has ended: how long it lasted
	Code        string        // of a Note: a word for what it says, such as "late"
	Text        string        // of a Note: what it says, in a sentence
}
