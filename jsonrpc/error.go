package jsonrpc

import "strconv"

// Codes of JSON-RPC 2.0 (section 5.1).
const (
	CodeParseError     = -32700 // for text that is not JSON
	CodeInvalidRequest = -32600 // for JSON that is no valid message
	CodeMethodNotFound = -32601 // for a method that the receiver does not have
	CodeInvalidParams  = -32602 // for params that are wrong
	CodeInternalError  = -32603 // for any failure of the receiver
)

// Error says why bytes are not a valid message, and how to answer (J4).
type Error struct {
	Code    int    // JSON-RPC code: CodeParseError or CodeInvalidRequest
	Message string // what is wrong and where (byte offset); never the content itself
	ID      ID     // the id; zero if it is missing, invalid, null or too long, or if there are two

	// Kind is what the message would have been. It is Invalid for a message that is both
	// a request and a response, and for text that ends too early to know.
	Kind Kind

	// Marked says that the envelope has the key "jsonrpc". Log lines that look like
	// requests do not have it.
	Marked bool

	nullID bool // the id is null, as some peers write it into notifications: nobody waits for an answer

	// More is the byte offset at which the text goes on behind a whole value; 0 if that is not the fault.
	More int
}

// Error implements error: it returns Message.
func (e *Error) Error() string { return e.Message }

// newError makes the Error with this code for a fault at a byte offset; its Message
// says the fault and the offset.
func newError(code int, fault string, at int) *Error {
	text := "invalid message: "
	if code == CodeParseError {
		text = "parse error: "
	}
	return &Error{Code: code, Message: text + fault + " at byte " + strconv.Itoa(at)}
}

// IsAnswer reports whether the invalid message of a server was probably meant as the
// answer to the request e.ID. This is so for a response, and for a JSON object with an
// id whose Kind is Invalid (no method, result or error, or several of them). The
// client should then get an error, because the server will not answer again.
func (e *Error) IsAnswer() bool {
	known := !e.ID.IsZero() && e.ID != NullID
	return known && (e.Kind == Response || e.Kind == Invalid && e.Code == CodeInvalidRequest)
}

// IsRequest reports whether the invalid message of a server was meant as a request, so
// that the server waits for an answer: to e.ID, or to an id that could not be read. It
// is false for text without "jsonrpc", which may be a line of a log, and if the id is
// null.
func (e *Error) IsRequest() bool { return e.Kind == Request && e.Marked && !e.nullID }

// Reply returns the error response for the sender of an invalid message. An id that could
// not be read is null (J4). ok is false if the message must not be answered: it was a
// notification (J6) or a response.
func (e *Error) Reply() (m Message, ok bool) {
	if e.Kind == Notification || e.Kind == Response {
		return Message{}, false
	}
	id := e.ID
	if id.IsZero() {
		id = NullID
	}
	return NewError(id, e.Code, e.Message, nil), true
}
