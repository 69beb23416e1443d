package trace

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// LinePrefix is how each line begins that Append makes.
const LinePrefix = `{"v":1,`

// Append appends the line of a record, with its line feed. It allocates to make dst larger, to sort headers, and a few bytes for each
// second in which there are records.
func Append(dst []byte, r *Record) []byte {
	return (*memberCache)(nil).appendLine(dst, r)
}

// appendLine appends the line of a record, with its line feed. c keeps the members that many records share; nil: all are made
// anew.
func (c *memberCache) appendLine(dst []byte, r *Record) []byte {
	w := objectWriter{append(dst, LinePrefix[:len(LinePrefix)-1]...)}
	w.uint(`,"seq":`, r.Seq)
	w.time(`,"ts":`, r.Time)
	w.text(`,"srv":`, r.Server)
	w.text(`,"ses":`, r.Session)
	w.text(`,"str":`, r.Stream)
	w.hopAndDir(r.Hop, r.Dir)
	w.uint(`,"cause":`, r.CauseSeq)
	c.subject(&w, subject{r.Kind, r.Era, r.Transport, r.Method, r.Name})
	if !r.ID.IsZero() {
		w.key(`,"id":`)
		w.dst = append(w.dst, r.ID.String()...)
	}
	w.bool(`,"earlier":`, r.Earlier)
	w.int(`,"size":`, int64(r.Size))
	w.micros(`,"bridge_us":`, r.TimeInBridge)
	w.micros(`,"dur_us":`, r.Duration)
	w.int(`,"code":`, int64(r.Code))
	w.bool(`,"failed":`, r.Failed)
	w.text(`,"why":`, r.Reason)
	w.uint(`,"lost":`, r.Lost)
	if r.HTTP != nil {
		w.exchange(r.HTTP)
	}
	if r.Event != nil {
		w.event(r.Event)
	}
	w.body(&r.Body, r.Kind.IsMessage() || r.Kind == Drop)
	w.int(`,"cut":`, int64(r.Body.OmittedBytes))
	w.list(`,"redacted":`, r.Redacted)
	return append(w.dst, '}', '\n')
}

// subject is the part of a record that is the same in many records.
type subject struct {
	kind      Kind   // Record.Kind
	era       string // Record.Era
	transport string // Record.Transport
	method    string // Record.Method
	name      string // Record.Name
}

// memberCache keeps the JSON members that were made of the latest subjects: there are few different ones. The zero value is
// empty.
type memberCache [32]struct {
	of      subject // the subject of which members were made
	members []byte  // the JSON members of that subject, each with a comma before it; empty: none were made
}

// maxCachedSubject is how long the members of a subject may be, in bytes, for a memberCache to keep them.
const maxCachedSubject = 256

// subject writes the members of a subject: those that c keeps, or else new ones, which c then keeps. A nil c keeps none.
func (c *memberCache) subject(w *objectWriter, s subject) {
	if c == nil {
		w.subject(&s)
		return
	}
	kept := &c[uint(len(s.kind)+3*len(s.transport)+5*len(s.method)+7*len(s.name))%uint(len(c))]
	if len(kept.members) > 0 && kept.of == s {
		w.dst = append(w.dst, kept.members...)
		return
	}
	begin := len(w.dst)
	w.subject(&s)
	if members := w.dst[begin:]; len(members) <= maxCachedSubject {
		kept.of, kept.members = s, append(kept.members[:0], members...)
	}
}

// objectWriter appends members to a JSON object, each with a comma before it. A member with the zero value is left out. The
// argument name of its methods is the key in quotes, with the comma before it and the colon behind it.
type objectWriter struct {
	dst []byte // what was written so far
}

// subject writes the members of a subject, without a cache.
func (w *objectWriter) subject(s *subject) {
	w.text(`,"kind":`, string(s.kind))
	w.text(`,"era":`, s.era)
	w.text(`,"tr":`, s.transport)
	w.text(`,"method":`, s.method)
	w.text(`,"name":`, s.name)
}

// key begins a member: it appends name, which is `,"KEY":`.
func (w *objectWriter) key(name string) { w.dst = append(w.dst, name...) }

// end makes an object of the members that were appended since dst was begin bytes long; none: the empty object. The comma of the
// first member becomes the opening brace, and the closing brace is appended.
func (w *objectWriter) end(begin int) {
	if len(w.dst) == begin {
		w.dst = append(w.dst, ',')
	}
	w.dst[begin] = '{' // it was a comma
	w.dst = append(w.dst, '}')
}

// text writes a member that is a string; "": nothing.
func (w *objectWriter) text(name, value string) {
	if value != "" {
		w.key(name)
		w.dst = appendString(w.dst, value)
	}
}

// hopAndDir writes the members "hop" and "dir": where a message passed, and where it goes.
func (w *objectWriter) hopAndDir(hop, dir string) {
	switch {
	case hop == Downstream && dir == ToServer: // each message has one of these
		w.key(`,"hop":"down","dir":"c2s"`)
	case hop == Downstream && dir == ToClient:
		w.key(`,"hop":"down","dir":"s2c"`)
	case hop == Upstream && dir == ToServer:
		w.key(`,"hop":"up","dir":"c2s"`)
	case hop == Upstream && dir == ToClient:
		w.key(`,"hop":"up","dir":"s2c"`)
	default:
		w.text(`,"hop":`, hop)
		w.text(`,"dir":`, dir)
	}
}

// int writes a member that is a number; 0: nothing.
func (w *objectWriter) int(name string, value int64) {
	if value != 0 {
		w.key(name)
		w.dst = strconv.AppendInt(w.dst, value, 10)
	}
}

// uint writes a member that is a number without a sign; 0: nothing.
func (w *objectWriter) uint(name string, value uint64) {
	if value != 0 {
		w.key(name)
		w.dst = strconv.AppendUint(w.dst, value, 10)
	}
}

// bool writes a member that is true; false: nothing.
func (w *objectWriter) bool(name string, value bool) {
	if value {
		w.key(name)
		w.dst = append(w.dst, "true"...)
	}
}

// micros writes a duration as a number of microseconds; 0: nothing. A shorter duration than a microsecond is written as 0.
func (w *objectWriter) micros(name string, d time.Duration) {
	if d != 0 {
		w.key(name)
		w.dst = strconv.AppendInt(w.dst, d.Microseconds(), 10)
	}
}

// time writes a time in UTC with microseconds; zero: nothing. It is many times as quick as Time.AppendFormat.
func (w *objectWriter) time(name string, t time.Time) {
	if t.IsZero() {
		return
	}
	w.key(name)
	d := append(w.dst, '"')
	if now := lastSecond.Load(); now != nil && now.unix == t.Unix() {
		d = append(d, now.text...)
	} else {
		now = &secondText{unix: t.Unix(), text: string(appendSecond(nil, t.UTC()))}
		lastSecond.Store(now)
		d = append(d, now.text...)
	}
	d = appendDigits(append(d, '.'), t.Nanosecond()/1000, 6)
	w.dst = append(d, 'Z', '"')
}

// secondText is a second and how it is spelled. Thousands of records have the same.
type secondText struct {
	unix int64  // the second, since 1970
	text string // the second in UTC, as appendSecond writes it
}

// lastSecond is the second that objectWriter.time has spelled last; nil: none was.
var lastSecond atomic.Pointer[secondText]

// appendSecond appends a time, which is in UTC, up to its second: "2026-01-02T03:04:05".
func appendSecond(d []byte, t time.Time) []byte {
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	d = appendDigits(d, year, 4)
	d = appendDigits(append(d, '-'), int(month), 2)
	d = appendDigits(append(d, '-'), day, 2)
	d = appendDigits(append(d, 'T'), hour, 2)
	d = appendDigits(append(d, ':'), minute, 2)
	return appendDigits(append(d, ':'), second, 2)
}

// appendDigits appends n in width digits, with leading zeros; width is at most 6.
func appendDigits(dst []byte, n, width int) []byte {
	at := len(dst)
	dst = append(dst, "000000"[:width]...)
	for i := at + width - 1; i >= at; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

// list writes a member that is an array of strings; without values: nothing.
func (w *objectWriter) list(name string, values []string) {
	if len(values) == 0 {
		return
	}
	w.key(name)
	w.dst = appendStrings(w.dst, values)
}

// appendStrings appends a JSON array of values, of which there is at least one.
func appendStrings(dst []byte, values []string) []byte {
	for i, v := range values {
		dst = append(dst, "[,"[min(i, 1)])
		dst = appendString(dst, v)
	}
	return append(dst, ']')
}

// body writes the text of a Body. message: it is that of a message, which stands there as it is ("msg") if it is whole, valid
// and in one line. Other texts become a string ("raw"), or Base64 ("b64") if they are not UTF-8, or are long and would be
// longer as a string.
func (w *objectWriter) body(b *Body, message bool) {
	switch {
	case b.Text == nil:
	case message && b.OmittedBytes == 0 && (b.oneLine || !hasLineBreak(b.Text)) && (b.valid || jsonrpc.Valid(b.Text)):
		w.key(`,"msg":`)
		w.dst = append(w.dst, b.Text...)
	case utf8.Valid(b.Text) && utf8.Valid(b.Tail) && !isShorterInBase64(b.Text) && !isShorterInBase64(b.Tail):
		w.key(`,"raw":`)
		w.dst = appendString(w.dst, b.Text)
		if b.Tail != nil {
			w.key(`,"tail":`)
			w.dst = appendString(w.dst, b.Tail)
		}
	default:
		w.key(`,"b64":`)
		w.base64(b.Text)
		if b.Tail != nil {
			w.key(`,"tail":`)
			w.base64(b.Tail)
		}
	}
}

// isShorterInBase64 reports whether a text is shorter in Base64 than as a JSON string, because of its escapes. For texts up to 1 MiB it
// does not look, and is false.
func isShorterInBase64(text []byte) bool {
	if len(text) <= 1<<20 {
		return false
	}
	more := 0
	for _, c := range text {
		switch {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			more++
		case c < ' ' || c == 0x7f:
			more += len(`\u007f`) - 1
		}
	}
	return more > len(text)/3
}

// hasLineBreak reports whether there is an LF or CR in a text.
func hasLineBreak(text []byte) bool {
	return bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0
}

// base64 appends text in Base64 as a JSON string, without a key.
func (w *objectWriter) base64(text []byte) {
	w.dst = append(w.dst, '"')
	w.dst = base64.StdEncoding.AppendEncode(w.dst, text)
	w.dst = append(w.dst, '"')
}

// exchange writes the member "http" with the members of an Exchange.
func (w *objectWriter) exchange(x *Exchange) {
	w.key(`,"http":`)
	begin := len(w.dst)
	w.text(`,"method":`, x.Method)
	if len(x.URL) > 0 && x.URL[0] == '/' {
		w.text(`,"path":`, x.URL)
	} else {
		w.text(`,"url":`, x.URL)
	}
	w.text(`,"proto":`, x.Proto)
	w.text(`,"remote":`, x.RemoteAddr)
	w.int(`,"status":`, int64(x.Status))
	w.header(`,"req":`, x.RequestHeader, x.requestHeaderJSON)
	w.header(`,"resp":`, x.ResponseHeader, x.responseHeaderJSON)
	w.int(`,"in":`, x.RequestBytes)
	w.int(`,"out":`, x.ResponseBytes)
	w.text(`,"rule":`, x.Rule)
	w.text(`,"why":`, x.Reason)
	w.micros(`,"ttfb_us":`, x.FirstByte)
	w.micros(`,"us":`, x.Duration)
	w.text(`,"err":`, x.Err)
	w.end(begin)
}

// header writes headers in the order of their names; none: nothing. rendered is the member's value, already made; empty: it is
// made of h.
func (w *objectWriter) header(name string, h http.Header, rendered []byte) {
	if len(rendered) > 0 {
		w.key(name)
		w.dst = append(w.dst, rendered...)
		return
	}
	var fields sortedFields
	if fields.set(h); len(fields) == 0 {
		return
	}
	w.key(name)
	for i, f := range fields {
		w.dst = appendField(append(w.dst, "{,"[min(i, 1)]), f.name, h[f.name], func(value string) string { return value })
	}
	w.dst = append(w.dst, '}')
}

// event writes the member "event" with the members of an Event.
func (w *objectWriter) event(e *Event) {
	w.key(`,"event":`)
	begin := len(w.dst)
	w.text(`,"what":`, e.Action)
	w.int(`,"pid":`, int64(e.PID))
	w.text(`,"program":`, e.Program)
	w.text(`,"step":`, e.Step)
	w.bool(`,"asked":`, e.StopRequested)
	w.text(`,"client":`, e.Client)
	w.text(`,"version":`, e.Version)
	w.text(`,"rev":`, e.Revision)
	w.uint(`,"calls":`, e.Calls)
	w.text(`,"from":`, e.FromEventID)
	w.text(`,"how":`, e.Reason)
	w.text(`,"err":`, e.Err)
	w.micros(`,"us":`, e.Duration)
	w.text(`,"code":`, e.Code)
	w.text(`,"text":`, e.Text)
	w.end(begin)
}

// needsNoEscape is true for the ASCII characters that appendString does not escape.
var needsNoEscape = func() (all [256]bool) {
	for c := 0x20; c < 0x7f; c++ {
		all[c] = c != '"' && c != '\\'
	}
	return all
}()

// isPlain reports whether a text is all ASCII and has nothing that appendString escapes.
func isPlain(text []byte) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		w := binary.LittleEndian.Uint64(text)
		quote, slash, del := w^each*'"', w^each*'\\', w^each*0x7f
		// In each term the highest bit of a byte says that the byte, or one before it, is below ' ', or is one of these.
		if (w|(w-each*' ')|(quote-each)|(slash-each)|(del-each))&high != 0 {
			return false
		}
	}
	for _, c := range text {
		if !needsNoEscape[c] {
			return false
		}
	}
	return true
}

// appendString appends a JSON string. It escapes what JSON demands, and DEL. Bytes that are not UTF-8
// become U+FFFD.
func appendString[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	begin := len(dst)
	if dst = append(dst, s...); isPlain(dst[begin:]) {
		return append(dst, '"')
	}
	dst = dst[:begin]
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if needsNoEscape[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			var room [utf8.UTFMax]byte
			r, n := utf8.DecodeRune(room[:copy(room[:], s[i:])])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[from:i]...), "\uFFFD"...)
				from = i + n
			}
			i += n
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}
