package trace

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ErrVersion says that a line has a version of the format that this program does not know.
var ErrVersion = errors.New("it was written by a newer mcp-bridge, with a version of the format that this one does not know")

// ErrNotRecord says that a line is no valid record: no JSON, or without a member that it needs, or with a wrong one.
var ErrNotRecord = errors.New("it is no record of a trace")

// maxShortString is how long a name, a method, an id and the like may be, in bytes. A bridge writes shorter ones.
const maxShortString = 4 << 10

// Parse reads one line, with or without its line feed. Members that Parse does not know are ignored, and a Kind that it does
// not know is kept. The Record may refer to the memory of line. The error is ErrVersion, or wraps ErrNotRecord and says what is wrong.
func Parse(line []byte) (Record, error) {
	line = bytes.Trim(line, " \t\r\n")
	if len(line) == 0 || line[0] != '{' || !jsonrpc.Valid(line) {
		return Record{}, fmt.Errorf("%w: it is not one JSON object in UTF-8", ErrNotRecord)
	}
	var r Record
	var p parser
	var version []byte
	for m := range jsonrpc.Members(line) {
		if m.Key == "v" {
			version = m.Value
			continue
		}
		p.record(&r, m)
	}
	n, err := strconv.ParseUint(string(version[:min(len(version), maxShortString)]), 10, 64)
	switch { // before what else is wrong: another version may have other members
	case errors.Is(err, strconv.ErrRange) || n > Version:
		return Record{}, ErrVersion
	case err != nil || n == 0:
		return Record{}, fmt.Errorf("%w: it does not say its version of the format", ErrNotRecord)
	}
	if r.Kind == "" {
		p.fail("kind")
	}
	p.text(&r.Body)
	return r, p.err
}

// parser reads the members of one line into a Record. Its methods note a member that is not as it should be, and go on.
type parser struct {
	err      error  // the first fault that fail was told of; nil: none so far
	bodyForm string // key of the member that has the body: "msg", "raw" or "b64"; "": none was read so far
	body     []byte // the body of the record: the value of the member that bodyForm names, as JSON
	tail     []byte // value of the member "tail", as JSON
}

// fail notes in err that the member with this key is not as it should be, unless err has an earlier fault. The caller goes on.
func (p *parser) fail(key string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: its member %.40q is not as it should be", ErrNotRecord, key)
	}
}

// record reads one member of a Record into r; it ignores one that it does not know.
func (p *parser) record(r *Record, m jsonrpc.Member) {
	switch m.Key {
	case "seq":
		p.uint(&r.Seq, m)
	case "ts":
		p.time(&r.Time, m)
	case "kind":
		r.Kind = Kind(p.shortString(m))
	case "srv":
		r.Server = p.shortString(m)
	case "ses":
		r.Session = p.shortString(m)
	case "str":
		r.Stream = p.shortString(m)
	case "hop":
		r.Hop = p.shortString(m)
	case "dir":
		r.Dir = p.shortString(m)
	case "cause":
		p.uint(&r.CauseSeq, m)
	case "era":
		r.Era = p.shortString(m)
	case "tr":
		r.Transport = p.shortString(m)
	case "method":
		r.Method = p.shortString(m)
	case "name":
		r.Name = p.shortString(m)
	case "id":
		p.id(&r.ID, m)
	case "earlier":
		p.bool(&r.Earlier, m)
	case "size":
		p.count(&r.Size, m)
	case "bridge_us":
		p.micros(&r.TimeInBridge, m)
	case "dur_us":
		p.micros(&r.Duration, m)
	case "code":
		p.int(&r.Code, m)
	case "failed":
		p.bool(&r.Failed, m)
	case "msg", "raw", "b64":
		p.bodyForm, p.body = m.Key, m.Value
	case "tail":
		p.tail = m.Value
	case "cut":
		p.count(&r.Body.OmittedBytes, m)
	case "why":
		r.Reason = p.string(m)
	case "lost":
		p.uint(&r.Lost, m)
	case "redacted":
		r.Redacted = p.strings(m)
	case "http":
		r.HTTP = p.exchange(m)
	case "event":
		r.Event = p.event(m)
	}
}

// exchange reads the member "http".
func (p *parser) exchange(m jsonrpc.Member) *Exchange {
	x := &Exchange{}
	p.wantObject(m)
	for m := range jsonrpc.Members(m.Value) {
		switch m.Key {
		case "method":
			x.Method = p.string(m)
		case "path", "url":
			x.URL = p.string(m)
		case "proto":
			x.Proto = p.string(m)
		case "remote":
			x.RemoteAddr = p.string(m)
		case "status":
			p.count(&x.Status, m)
		case "req":
			x.RequestHeader = p.header(m)
		case "resp":
			x.ResponseHeader = p.header(m)
		case "in":
			p.bytesOf(&x.RequestBytes, m)
		case "out":
			p.bytesOf(&x.ResponseBytes, m)
		case "rule":
			x.Rule = p.string(m)
		case "why":
			x.Reason = p.string(m)
		case "ttfb_us":
			p.micros(&x.FirstByte, m)
		case "us":
			p.micros(&x.Duration, m)
		case "err":
			x.Err = p.string(m)
		}
	}
	return x
}

// event reads the member "event".
func (p *parser) event(m jsonrpc.Member) *Event {
	e := &Event{}
	p.wantObject(m)
	for m := range jsonrpc.Members(m.Value) {
		switch m.Key {
		case "what":
			e.Action = p.string(m)
		case "pid":
			p.int(&e.PID, m)
		case "program":
			e.Program = p.string(m)
		case "step":
			e.Step = p.string(m)
		case "asked":
			p.bool(&e.StopRequested, m)
		case "client":
			e.Client = p.string(m)
		case "version":
			e.Version = p.string(m)
		case "rev":
			e.Revision = p.string(m)
		case "calls":
			p.uint(&e.Calls, m)
		case "from":
			e.FromEventID = p.string(m)
		case "how":
			e.Reason = p.string(m)
		case "err":
			e.Err = p.string(m)
		case "us":
			p.micros(&e.Duration, m)
		case "code":
			e.Code = p.string(m)
		case "text":
			e.Text = p.string(m)
		}
	}
	return e
}

// wantObject notes a fault if the member is no object.
func (p *parser) wantObject(m jsonrpc.Member) {
	if m.Value[0] != '{' {
		p.fail(m.Key)
	}
}

// string returns the text of a member that is a string; any other is a fault (fail).
func (p *parser) string(m jsonrpc.Member) string {
	text, ok := jsonrpc.Text(m.Value)
	if !ok {
		p.fail(m.Key)
	}
	return text
}

// shortString returns the text of a member that is a string of at most maxShortString bytes; any other is a fault (fail). Readers keep
// such a text longer than the line.
func (p *parser) shortString(m jsonrpc.Member) string {
	if len(m.Value) <= 6*maxShortString+2 { // each byte may be escaped, \u001b
		if text := p.string(m); len(text) <= maxShortString {
			return text
		}
	}
	p.fail(m.Key)
	return ""
}

// strings returns the elements of a member that is an array of strings; any other is a fault (fail).
func (p *parser) strings(m jsonrpc.Member) (all []string) {
	if m.Value[0] != '[' {
		p.fail(m.Key)
	}
	for _, v := range jsonrpc.Elements(m.Value) {
		all = append(all, p.string(jsonrpc.Member{Key: m.Key, Value: v}))
	}
	return all
}

// header returns the headers in a member that is an object of strings and arrays of strings; any other is a fault (fail).
func (p *parser) header(m jsonrpc.Member) http.Header {
	h := http.Header{}
	p.wantObject(m)
	for f := range jsonrpc.Members(m.Value) {
		if f.Value[0] == '[' {
			h[f.Key] = p.strings(f)
		} else {
			h[f.Key] = []string{p.string(f)}
		}
	}
	return h
}

// uint reads a member that is a whole number, and not below 0, into to; any other is a fault (fail).
func (p *parser) uint(to *uint64, m jsonrpc.Member) {
	n, err := strconv.ParseUint(string(m.Value), 10, 64)
	if err != nil {
		p.fail(m.Key)
	}
	*to = n
}

// int64 reads a member that is a whole number into to; any other is a fault (fail).
func (p *parser) int64(to *int64, m jsonrpc.Member) {
	n, err := strconv.ParseInt(string(m.Value), 10, 64)
	if err != nil {
		p.fail(m.Key)
	}
	*to = n
}

// int reads a member that is a whole number into to; any other is a fault (fail).
func (p *parser) int(to *int, m jsonrpc.Member) {
	n, err := strconv.Atoi(string(m.Value))
	if err != nil {
		p.fail(m.Key)
	}
	*to = n
}

// count reads a member that is a whole number, and not below 0, into to; any other is a fault (fail).
func (p *parser) count(to *int, m jsonrpc.Member) {
	if p.int(to, m); *to < 0 {
		p.fail(m.Key)
	}
}

// bytesOf reads a member that is a number of bytes, and not below 0, into to; any other is a fault (fail).
func (p *parser) bytesOf(to *int64, m jsonrpc.Member) {
	if p.int64(to, m); *to < 0 {
		p.fail(m.Key)
	}
}

// micros reads a member that is a number of microseconds into to; any other is a fault (fail).
func (p *parser) micros(to *time.Duration, m jsonrpc.Member) {
	var n int64
	p.int64(&n, m)
	d := time.Duration(n) * time.Microsecond
	if d.Microseconds() != n {
		p.fail(m.Key)
	}
	*to = d
}

// bool reads a member that is true or false into to; any other is a fault (fail).
func (p *parser) bool(to *bool, m jsonrpc.Member) {
	*to = m.Value[0] == 't'
	if !*to && m.Value[0] != 'f' {
		p.fail(m.Key)
	}
}

// time reads a member that is a time as in RFC 3339, of the years 1 to 9999, into to; any other is a fault (fail).
func (p *parser) time(to *time.Time, m jsonrpc.Member) {
	t, err := time.Parse(time.RFC3339Nano, p.shortString(m))
	if year := t.UTC().Year(); err != nil || year < 1 || year > 9999 { // in UTC, too, it must be possible to write it
		p.fail(m.Key)
		return
	}
	*to = t
}

// id reads a member that is a JSON-RPC id or null, of at most maxShortString bytes, into to; any other is a fault (fail).
func (p *parser) id(to *jsonrpc.ID, m jsonrpc.Member) {
	if string(m.Value) == "null" {
		*to = jsonrpc.NullID
		return
	}
	id, ok := jsonrpc.ParseID(m.Value)
	if !ok || len(m.Value) > maxShortString {
		p.fail(m.Key)
	}
	*to = id
}

// text decodes body and tail into b, once all members were read.
func (p *parser) text(b *Body) {
	if p.bodyForm == "msg" {
		b.Text, b.valid = p.body, true
		return
	}
	if p.body != nil {
		b.Text = p.bytes(p.body)
	}
	if p.tail != nil && b.Text != nil {
		b.Tail = p.bytes(p.tail)
	}
}

// bytes returns the text of value, a string of JSON; if bodyForm is "b64", what the text has in Base64. Anything else is a fault
// (fail).
func (p *parser) bytes(value []byte) []byte {
	text, ok := jsonrpc.Text(value)
	if !ok {
		p.fail(p.bodyForm)
		return nil
	}
	if p.bodyForm != "b64" {
		return []byte(text)
	}
	plain, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		p.fail(p.bodyForm)
	}
	return plain
}
