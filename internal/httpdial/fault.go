package httpdial

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Reasons that error responses of the clients carry in data.reason (C.7).
const (
	ReasonUnreachable           = "unreachable"            // no connection: refused, no such host, network down, no way through the proxy, no file descriptor left
	ReasonTLS                   = "tls"                    // no trust in the server's certificate or in ours, or TLS at one end only
	ReasonTimeout               = "timeout"                // no answer in time
	ReasonConnectionLost        = "connection_lost"        // the connection ended before the answer
	ReasonAuthRequired          = "authorization_required" // somebody has to sign in, or to give other credentials: the server answered 401 or 403, or there is no token to ask it with
	ReasonAuthFailed            = "authorization_failed"   // no way to sign in that works, until somebody changes something
	ReasonAuthServerUnavailable = "authorization_server"   // the authorization server gives no usable answer now
	ReasonForbidden             = "forbidden"              // the server answered 403
	ReasonRedirect              = "redirect"               // the server answered with a redirect that is not followed
	ReasonHTTPStatus            = "http_status"            // the server answered with another HTTP status that is no success
	ReasonNotMCP                = "not_mcp"                // the server's answer is neither JSON nor an event stream, or no HTTP; or it does not speak WebSocket at a WebSocket URL
	ReasonTooLarge              = "too_large"              // a message is larger than one side allows
	ReasonInvalidMessage        = "invalid_message"        // the server's answer is no JSON-RPC message, or gives a session id that is not allowed
	ReasonNoAnswer              = "no_answer"              // the reply was a success, but had no response to the request
	ReasonResultLost            = "result_lost"            // the request was processed perhaps, but its result cannot be had
	ReasonSessionLost           = "session_lost"           // the server has forgotten the session, and there is no new one yet
	ReasonServerDown            = "server_down"            // there is no session now, a first one or one in the place of a lost one; the bridge keeps trying in the background
	ReasonTooManyRequests       = "too_many_requests"      // the client has more requests in progress than the bridge allows
	ReasonAlreadyInitialized    = "already_initialized"    // a second initialize in a session
	ReasonInitializeRefused     = "initialize_refused"     // the server answered the bridge's initialize with an error
)

// credentialsHint is what to do about a 401 where no credentials were sent.
const credentialsHint = `give credentials with --header "Authorization: Bearer ...", or with --header-env Authorization=NAME from a variable`

// credentialsRefusedHint is what to do about a 401 where credentials were sent.
const credentialsRefusedHint = "the credentials that were sent are refused: are those of --header or --header-env right, and still valid?"

// missingSchemeHint is what to do about a 401 where the Authorization that was sent is a token alone.
const missingSchemeHint = `the Authorization header that was sent has no scheme: most servers want "Bearer TOKEN", not the token alone`

// missingTokenHint is what to do about a 401 where the Authorization that was sent is a scheme alone.
const missingTokenHint = `the Authorization header that was sent ends after "Bearer": is the variable with the token empty?`

// Fault says why a message got no answer, to people and to programs. It holds
// nothing of what messages contain, but for what the server itself has said, in Text and
// ServerError. It is not changed any more once it is handed on.
type Fault struct {
	Reason      string          // why, in one word: a Reason constant, or one of a transport's own
	Status      int             // the HTTP status of the reply; 0: there was none
	SuspectPath string          // the path of the URL, without what may be a key, if the path may be the wrong one; "": it is not in question
	Code        int             // the code of the error response; 0: jsonrpc.CodeInternalError
	Text        string          // what went wrong, where, and what to do: the message of the error response
	ServerError jsonrpc.Message // the server's own error response; zero: it sent none
	DataMembers []byte          // more members of the error's data, as ,"name":value; nil: none

	logText string // what a log gets in the place of Text where Status is not 0, as Text may repeat a message; it may have what the server says of the credentials. "": the log gets neither
	hint    string // where Status is 401: what a log is told to do about it; "": nothing

	SessionLost bool          // the session is gone, and the message was not processed
	Transient   bool          // the same may work later, without anybody changing anything. It is true for Status 501, too, where that is unlikely
	ServerBusy  bool          // the server says: not now (429, 502, 503, 504)
	RetryAfter  time.Duration // how long the server wants its client to wait before the next attempt; 0: it has not said
}

// FollowUpFault returns the fault of a message that cannot be sent because of why, an earlier fault. It has this reason and text,
// and the Status of why. But if why is that a credential is missing (IsMissingCredential), its Reason takes the place of reason,
// and the new fault has its DataMembers, so that clients are still told where to sign in.
func FollowUpFault(why *Fault, reason, text string) *Fault {
	f := &Fault{Reason: reason, Status: why.Status, Text: text}
	if why.IsMissingCredential() {
		f.Reason, f.DataMembers = why.Reason, why.DataMembers
	}
	return f
}

// IsMissingCredential reports whether the request got no answer for want of a credential: somebody has to sign in, nobody can, or
// the authorization server gives no answer now. ErrorData then has where to sign in, if that is known.
func (f *Fault) IsMissingCredential() bool {
	return f.Reason == ReasonAuthRequired || f.Reason == ReasonAuthFailed || f.Reason == ReasonAuthServerUnavailable
}

// WithLoggedText has LogAttrs return all of Text, also where Status is not 0, and returns f. It is for a Text that holds nothing of
// what messages contain, and is called before f is handed on.
func (f *Fault) WithLoggedText() *Fault {
	f.logText = f.Text
	return f
}

// Error returns Text. It is for the client: it may repeat what the server has said. A log gets
// LogAttrs.
func (f *Fault) Error() string { return f.Text }

// AlreadyInitializedFault returns the Fault with which the bridge answers a client's second initialize in
// an open session, in the server's place (rule LE16).
func AlreadyInitializedFault() *Fault {
	return &Fault{Reason: ReasonAlreadyInitialized, Code: jsonrpc.CodeInvalidRequest, Text: "the session has begun already: initialize is sent once"}
}

// AppendSentence returns text with more appended: after a question as a sentence of its own, otherwise
// after a semicolon. If more is "", it returns text.
func AppendSentence(text, more string) string {
	switch {
	case more == "":
		return text
	case !strings.HasSuffix(text, "?"):
		return text + "; " + more
	}
	if c := more[0]; 'a' <= c && c <= 'z' {
		more = string(c-'a'+'A') + more[1:]
	}
	return text + " " + more
}

// LogAttrs returns what a log is told of a fault, as pairs of key and value. What the server has said may repeat a message, and is
// left out, but at 401 and 403: there it is about the credentials.
func (f *Fault) LogAttrs() []any {
	if f.Status == 0 {
		return []any{"reason", f.Reason, "error", f.Text}
	}
	attrs := []any{"reason", f.Reason, "status", f.Status}
	if f.SuspectPath != "" {
		attrs = append(attrs, "path", f.SuspectPath)
	}
	if f.logText != "" {
		attrs = append(attrs, "error", f.logText)
	}
	if f.hint != "" {
		attrs = append(attrs, "hint", f.hint)
	}
	return attrs
}

// Response returns the error response for the request id: the server's own,
// or one with Text, and with Reason, Status and DataMembers as its data.
func (f *Fault) Response(id jsonrpc.ID) jsonrpc.Message {
	if f.ServerError.Kind() == jsonrpc.Response {
		return ResponseWithID(f.ServerError, id)
	}
	return jsonrpc.NewError(id, cmp.Or(f.Code, jsonrpc.CodeInternalError), f.Text, f.ErrorData())
}

// ErrorData returns the data of the error response, a JSON object: Reason, Status and DataMembers.
func (f *Fault) ErrorData() []byte {
	data := []byte(`{"reason":"` + f.Reason + `"`)
	if f.Status != 0 {
		data = append(data, `,"status":`+strconv.Itoa(f.Status)...)
	}
	return append(append(data, f.DataMembers...), '}')
}

// ResponseWithID returns the response m with this id, also where m has none: servers send errors
// without an id when they could not read the request.
func ResponseWithID(m jsonrpc.Message, id jsonrpc.ID) jsonrpc.Message {
	if !m.ID().IsZero() {
		return m.WithID(id)
	}
	raw := append([]byte(`{"id":`+id.String()+`,`), m.Bytes()[1:]...)
	withID, err := jsonrpc.Parse(raw)
	if err != nil { // cannot be: a response has members
		return jsonrpc.NewError(id, jsonrpc.CodeInternalError, "the server sent an error without an id", nil)
	}
	return withID
}
