package probe

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
)

// A Reply is what came back for a Request, or why nothing did. It is for one goroutine at
// a time.
type Reply struct {
	Method string // HTTP method of the request
	ID     int    // JSON-RPC id of the request; 0: none
	Err    error  // why there is no reply (Status is 0), or why its body could not be read on; nil: nothing went wrong

	Status     int         // HTTP status; 0: there is no reply
	Header     http.Header // headers; nil: there is no reply
	Proto      string      // "HTTP/1.1"; "": there is no reply
	ReusedConn bool        // the connection had been used for an earlier request

	StartedAt time.Time     // when the request was begun
	Duration  time.Duration // from StartedAt until Client.Do had read the body; 0: there is no reply, or Do has not made the request

	Text       []byte          // the body, if it is no event stream and Client.Do has read it, or what came of it before Err; maxBodyBytes at most
	LastEvent  Event           // the event that NextEvent has read last
	EventCount int             // how many events NextEvent has read
	EventTimes []time.Duration // when NextEvent has read each event, since StartedAt
	Messages   []Message       // the JSON-RPC messages in what was read of the body
	HasEnded   bool            // the body was read to its end, or by Client.Do up to maxBodyBytes

	body          io.Reader            // what is read, decompressed
	lexer         streamLexer          // takes an event stream apart
	closeFunc     func()               // what Close calls; it may be called more than once
	recordMessage func(message []byte) // puts a message into the Recording; nil: there is no reply
}

// A Message is a JSON-RPC message in a reply, decoded.
type Message struct {
	ID     json.RawMessage `json:"id"`     // as JSON; nil: it has none
	Method string          `json:"method"` // "": it is a response
	Result json.RawMessage `json:"result"` // of a response; nil: there is none
	Error  *RPCError       `json:"error"`  // of a response; nil: there is none
	Params json.RawMessage `json:"params"` // of a request or notification; nil: there are none
}

// An RPCError is the JSON-RPC error with which a request was answered.
type RPCError struct {
	Code    int             `json:"code"`    // JSON-RPC code
	Message string          `json:"message"` // text of the error
	Data    json.RawMessage `json:"data"`    // as JSON; nil: there is none
}

// IsResponse reports whether m answers a request.
func (m *Message) IsResponse() bool { return m.Method == "" && (m.Result != nil || m.Error != nil) }

// writeJSON appends v, which can be encoded, as JSON to b.
func writeJSON(b *bytes.Buffer, v any) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // only what this package has put together is encoded
	}
}

// Close ends the reply: no more of it can be read. It may be called more than once, and while NextEvent waits, which returns then.
func (r *Reply) Close() { r.closeFunc() }

// MediaType returns the media type in Content-Type, in lower case and without parameters; "": there is none.
func (r *Reply) MediaType() string {
	t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return t
}

// IsStream reports whether the body is an event stream, with status 200: it is read with NextEvent.
func (r *Reply) IsStream() bool {
	return r.Err == nil && r.Status == http.StatusOK && r.MediaType() == "text/event-stream"
}

// NextEvent reads the next event of a stream into LastEvent, and its message into Messages; false: the stream has ended
// (HasEnded), it cannot be read on (Err), or it has too many bytes. An event without data counts if it has an id.
func (r *Reply) NextEvent() bool {
	for {
		if e, ok := r.lexer.nextEvent(); ok {
			r.LastEvent = e
			r.EventCount++
			r.EventTimes = append(r.EventTimes, time.Since(r.StartedAt))
			r.addEventMessage(e)
			return true
		}
		if r.HasEnded || r.Err != nil || r.lexer.totalBytes > maxBodyBytes {
			return false
		}
		var chunk [16 << 10]byte
		n, err := r.body.Read(chunk[:])
		r.lexer.feed(chunk[:n])
		if errors.Is(err, io.EOF) {
			r.HasEnded = true
			r.lexer.finish()
		} else if err != nil {
			r.Err = err
		}
	}
}

// addEventMessage adds the message in the data of e, if there is one, to Messages, and notes a fault of the event.
func (r *Reply) addEventMessage(e Event) {
	if len(e.Data) == 0 {
		return
	}
	var m Message
	switch err := json.Unmarshal(e.Data, &m); {
	case err == nil && (e.Name == "" || e.Name == "message"):
		r.recordIfWanted(e.Data)
		r.Messages = append(r.Messages, m)
	case err == nil && (m.IsResponse() || m.Method != ""):
		r.lexer.addFault(FaultEventName, "event: "+e.Name)
		r.recordIfWanted(e.Data)
		r.Messages = append(r.Messages, m)
	case err != nil && (e.Name == "" || e.Name == "message"):
		r.lexer.addFault(FaultDataNotMessage, "data: "+string(e.Data))
	}
}

// readMessages puts the messages in Text into Messages, if it is a JSON-RPC message or an array of them, whatever its Content-Type.
func (r *Reply) readMessages() {
	text := bytes.TrimSpace(r.Text)
	var m Message
	if len(text) > 0 && text[0] == '[' {
		var all []json.RawMessage
		if json.Unmarshal(text, &r.Messages) == nil && json.Unmarshal(text, &all) == nil {
			for _, one := range all {
				r.recordIfWanted(one)
			}
		}
	} else if json.Unmarshal(text, &m) == nil && (m.IsResponse() || m.Method != "") {
		r.recordIfWanted(text)
		r.Messages = append(r.Messages, m)
	}
}

// recordIfWanted calls recordMessage, unless that is nil.
func (r *Reply) recordIfWanted(message []byte) {
	if r.recordMessage != nil {
		r.recordMessage(message)
	}
}

// Response returns the response in the reply to the request with ID; nil: there was none. An error without an id counts, and so
// does "7" for 7.
func (r *Reply) Response() *Message {
	for i := range r.Messages {
		m := &r.Messages[i]
		id := strings.Trim(string(m.ID), `"`)
		if m.IsResponse() && (id == strconv.Itoa(r.ID) || m.Error != nil && (id == "" || id == "null")) {
			return m
		}
	}
	return nil
}

// Result returns the JSON-RPC result of the request; nil: there is none, Err is set, or the status is not 2xx.
func (r *Reply) Result() json.RawMessage {
	if r.Err == nil && r.Status/100 == 2 {
		if m := r.Response(); m != nil && m.Error == nil {
			return m.Result
		}
	}
	return nil
}

// HasResult reports whether the request got a JSON-RPC result, with a status 2xx.
func (r *Reply) HasResult() bool { return r.Result() != nil }

// RPCError returns the JSON-RPC error in the response to the request, whatever the status; nil: there is none.
func (r *Reply) RPCError() *RPCError {
	if m := r.Response(); m != nil {
		return m.Error
	}
	return nil
}

// TimedOut reports whether Err is a time-out, and the request was begun about as long ago as after, or longer.
func (r *Reply) TimedOut(after time.Duration) bool {
	var t interface{ Timeout() bool }
	late := errors.Is(r.Err, context.DeadlineExceeded) || errors.As(r.Err, &t) && t.Timeout()
	return late && time.Since(r.StartedAt) > after-after/10
}

// IsInconclusive reports whether the reply says nothing about the server: the request was not made (ErrRequestLimit), it was
// cancelled, or it was answered 429.
func (r *Reply) IsInconclusive() bool {
	return errors.Is(r.Err, ErrRequestLimit) || errors.Is(r.Err, context.Canceled) || r.Status == http.StatusTooManyRequests
}

// IsHTML reports whether the body is a page of HTML.
func (r *Reply) IsHTML() bool {
	t := r.MediaType()
	return t == "text/html" || t == "application/xhtml+xml" || bytes.HasPrefix(bytes.ToLower(bytes.TrimSpace(r.Text)), []byte("<!doctype html"))
}

var (
	// titleTag matches the title of a page of HTML.
	titleTag = lazyregexp.New(`(?is)<title[^>]*>\s*(.*?)\s*</title>`)
	// productName matches the name and version of a program at the beginning of a header, such as Server.
	productName = lazyregexp.New(`^[\w.\- ]{1,30}(/[\w.]{1,20})?`)
)

// Intermediary returns the names of the programs that the reply has come from or through, as far as headers such as Server and Via tell
// them; "the server": they tell none.
func (r *Reply) Intermediary() string {
	var names []string
	for _, name := range []string{"Server", "Via", "X-Powered-By"} {
		if v := productName.FindString(r.Header.Get(name)); v != "" {
			if name == "Via" {
				v = "a proxy (Via: " + v + ")"
			}
			names = append(names, v)
		}
	}
	if r.Header.Get("Cf-Ray") != "" && !strings.Contains(strings.Join(names, " "), "cloudflare") {
		names = append(names, "cloudflare")
	}
	if len(names) == 0 {
		return "the server"
	}
	return strings.Join(names, ", ")
}

// Summary says in one line what came back: method, status, media type, who has answered, and a BodyExcerpt; or why nothing did.
func (r *Reply) Summary() string {
	if r.Err != nil && r.Status == 0 {
		return r.Method + ": " + NetErrorText(r.Err)
	}
	text := fmt.Sprintf("%s was answered %d %s", r.Method, r.Status, http.StatusText(r.Status))
	if t := r.MediaType(); t != "" {
		text += ", " + t
	}
	if who := r.Intermediary(); who != "the server" {
		text += ", by " + who
	}
	if x := r.BodyExcerpt(); x != "" {
		text += ": " + x
	}
	return text
}

// BodyExcerpt returns what the body says to people: the JSON-RPC error in the first message, the title of a page, or the first
// line; "": nothing.
func (r *Reply) BodyExcerpt() string {
	const (
		maxText = 160
		maxRPC  = 600 // an error for a program; a bridge's has the last lines of the server's stderr
	)
	if len(r.Messages) > 0 {
		if e := r.Messages[0].Error; e != nil {
			return fmt.Sprintf("error %d, %s", e.Code, quoteStart(e.Message, maxRPC))
		}
	}
	if r.IsHTML() {
		if m := titleTag.FindSubmatch(r.Text); m != nil {
			return "a page with the title " + quoteStart(string(m[1]), maxText)
		}
		return "a page"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(r.Text)), "\n")
	if line == "" {
		return ""
	}
	return quoteStart(line, maxText)
}

// quoteStart returns the first most characters of a text in quotes, with "…" at the end if there are more.
func quoteStart(text string, most int) string {
	if all := []rune(text); len(all) > most {
		text = string(all[:most]) + "…"
	}
	return strconv.Quote(text)
}

// NetErrorText returns the text of an error of the network. For a deadline that has passed, and in place of a text that may hold a URL,
// in which there may be credentials, it returns words of its own.
func NetErrorText(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "nothing came in time"
	}
	if text := err.Error(); !strings.Contains(text, "://") && !strings.Contains(text, "@") {
		return text
	}
	return "the connection failed"
}

// LifeSigns returns how many comments and retry fields an event stream had so far: they show that it is alive.
func (r *Reply) LifeSigns() int { return r.lexer.lifeSigns }

// StreamFaults returns what breaks the rules of event streams in the body so far, the first few faults.
func (r *Reply) StreamFaults() []StreamFault { return r.lexer.faults }

// gzipBody is a reader that decompresses a body as it comes.
type gzipBody struct {
	compressed   io.Reader    // the body as it comes
	decompressed *gzip.Reader // reads compressed; nil: nothing was read so far
}

// Read reads what is decompressed; it implements io.Reader.
func (u *gzipBody) Read(b []byte) (n int, err error) {
	if u.decompressed == nil {
		if u.decompressed, err = gzip.NewReader(u.compressed); err != nil {
			return 0, err
		}
	}
	return u.decompressed.Read(b)
}
