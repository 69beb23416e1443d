package jsonrpc

import "strconv"

// Codes of JSON-RPC 2.0 (section 5.1).
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603
)

// Error says why bytes are no valid message, and how to answer (J4).
//
// A message that is both a request and a response has Kind Invalid, and so has
// text that breaks off before it shows what it is; an id that stands twice is
// as good as unread.
type Error struct {
	Code    int    // JSON-RPC code: CodeParseError or CodeInvalidRequest
	Message string // what is wrong and where (byte offset); never the content itself
	ID      ID     // the id, where it could be read; zero otherwise
	Kind    Kind   // what the message would have been, where that could be told
	Marked  bool   // it has the key "jsonrpc", as logs that look like requests have not
}

// Error returns Message.
func (e *Error) Error() string { return e.Message }

func newError(code int, fault string, at int) *Error {
	text := "invalid message: "
	if code == CodeParseError {
		text = "parse error: "
	}
	return &Error{Code: code, Message: text + fault + " at byte " + strconv.Itoa(at)}
}

// Answers reports whether what a server has sent as e was meant as the answer
// to the request e.ID, as far as can be told: a response, or an object with an
// id that says neither what it asks nor what it answers. Nothing else will come,
// so whoever has asked is to hear of it.
func (e *Error) Answers() bool {
	known := !e.ID.IsZero() && e.ID != NullID
	return known && (e.Kind == Response || e.Kind == Invalid && e.Code == CodeInvalidRequest)
}

// Asks reports whether what a server has sent as e was meant as a request: it waits
// for the answer to e.ID.
func (e *Error) Asks() bool {
	return e.Kind == Request && e.Marked && !e.ID.IsZero() && e.ID != NullID
}

// Reply returns the response that tells the sender of an invalid message what
// was wrong with it; an id that could not be read is null (J4). ok is false
// where none is due: a notification is never answered (J6), nor is a response.
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
