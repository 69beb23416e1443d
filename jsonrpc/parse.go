package jsonrpc

import (
	"bytes"
	"math"
	"strconv"
)

// DefaultMaxDepth is how many levels of objects and arrays a message may have where no other
// limit is set (J14): transports pass it to ParseDepth, Parse has none. Many servers recurse.
const DefaultMaxDepth = 1000

// MaxName is how many bytes an id, a progress token and a method may have, as Parse counts (J15).
// The limit is there because a proxy keeps all three until a request is answered.
const MaxName = 1 << 10

// field is a key that the parser looks for: one of the envelope, or one below params
// or error.
type field uint8

const (
	fieldOther         field = iota // the key of a member that the parser does not look for
	fieldJSONRPC                    // the key "jsonrpc" of the envelope
	fieldID                         // the key "id" of the envelope
	fieldMethod                     // the key "method" of the envelope
	fieldParams                     // the key "params" of the envelope
	fieldResult                     // the key "result" of the envelope
	fieldError                      // the key "error" of the envelope
	fieldMeta                       // the key "_meta" of params
	fieldProgressToken              // the key "progressToken" of params or params._meta
	fieldRequestID                  // the key "requestId" of params
	fieldCode                       // the key "code" of error
	fieldMessage                    // the key "message" of error
)

// fieldNames has the key of each field.
var fieldNames = [...]string{
	"", "jsonrpc", "id", "method", "params", "result", "error",
	"_meta", "progressToken", "requestId", "code", "message",
}

// fieldOf returns the field whose key this is: text as it stands between the quotes;
// escaped says that it has escapes.
func fieldOf(text []byte, escaped bool) field {
	if escaped {
		for f := fieldJSONRPC; int(f) < len(fieldNames); f++ {
			if textEquals(text, true, fieldNames[f]) {
				return f
			}
		}
		return fieldOther
	}
	switch string(text) {
	case "jsonrpc":
		return fieldJSONRPC
	case "id":
		return fieldID
	case "method":
		return fieldMethod
	case "params":
		return fieldParams
	case "result":
		return fieldResult
	case "error":
		return fieldError
	case "_meta":
		return fieldMeta
	case "progressToken":
		return fieldProgressToken
	case "requestId":
		return fieldRequestID
	case "code":
		return fieldCode
	case "message":
		return fieldMessage
	}
	return fieldOther
}

// fields is a set of values of the type field, one bit for each.
type fields uint16

// has reports whether f is in the set.
func (s fields) has(f field) bool { return s&(1<<f) != 0 }

// kind returns the Kind of a message with these fields in its envelope; Invalid if
// they fit none. complete is false if more of the envelope may follow: then a method
// alone does not make a notification, for an id may come.
func (s fields) kind(complete bool) Kind {
	response := s.has(fieldResult) || s.has(fieldError)
	switch {
	case s.has(fieldMethod) && response:
		return Invalid
	case response:
		return Response
	case s.has(fieldMethod) && s.has(fieldID):
		return Request
	case s.has(fieldMethod) && complete:
		return Notification
	}
	return Invalid
}

// A parser makes the index of one message. A fault of the scanner (no valid JSON) ends
// the scan. After a fault of shape (valid JSON, but no valid message) the scan goes on,
// because the id for the answer may come later in the text.
type parser struct {
	scanner
	m            Message // the message whose index is being made
	lastValue    span    // the span of the value of the envelope's last member so far, which indexMessage looks at
	seenFields   fields  // the fields that the envelope has so far
	metaToken    span    // the span of params._meta.progressToken
	token        span    // the span of params.progressToken
	badParams    bool    // the params are no object, no array and not null
	nullID       bool    // the id of the message is null
	twoIDs       bool    // the envelope has the key "id" twice
	shapeFault   string  // the first fault of shape, as a text; "": none
	shapeFaultAt int     // the byte offset of shapeFault
}

// trim returns data without a leading byte order mark and without white space around it,
// and how many bytes it has cut off at the beginning.
func trim(data []byte) (rest []byte, cut int) {
	if n := len(data); n > 0 && data[0] == '{' && data[n-1] == '}' {
		return data, 0 // most messages
	}
	rest = bytes.TrimPrefix(data, []byte("\uFEFF"))
	rest = bytes.TrimLeft(rest, " \t\r\n")
	cut = len(data) - len(rest)
	return bytes.TrimRight(rest, " \t\r\n"), cut
}

// Parse scans raw, which must hold exactly one JSON-RPC message. White space around the
// message and a leading byte order mark are allowed; Bytes does not return them. Parse
// takes ownership of raw: the caller must not change it afterwards. The error is
// always an *Error, which has the JSON-RPC code for the answer, and the id if it could be
// read.
//
// Parse refuses text that two readers could understand differently: text that is not
// JSON or not UTF-8, and duplicate keys in the envelope and for the fields of the index.
// Keys are case-sensitive, and unknown members are kept. "params":null, which some servers
// write, counts as no params. (J1, J4, J5)
//
// Parse refuses an id, a method, a progress token, and the requestId of a notification
// that are longer than MaxName (J15). The limit is on the text between the quotes. For the
// id of a response and the token of a notification it is on the decoded text, because a
// peer that repeats a name may spell it with escapes.
func Parse(raw []byte) (Message, error) { return ParseDepth(raw, 0) }

// ParseDepth is Parse with a limit: the message may have at most depth levels of objects
// and arrays, and the message itself is the first level (J14). 0 or negative means no limit.
func ParseDepth(raw []byte, depth int) (Message, error) {
	data, cut := trim(raw)
	if len(data) == 0 {
		return Message{}, newError(CodeParseError, "no text", cut)
	}
	if len(data) > math.MaxInt32 {
		return Message{}, newError(CodeInvalidRequest, "the message is longer than 2 GiB", math.MaxInt32)
	}
	p := parser{scanner: scanner{data: data, maxLevels: depth}}
	if p.scanMessage() {
		return p.m, nil
	}
	return Message{}, p.error(cut)
}

// error returns the Error for the fault that has stopped the scan, or else for the
// first fault of shape. cut is how many bytes trim has cut off before the text.
func (p *parser) error(cut int) *Error {
	var e *Error
	if p.fault != "" {
		e = newError(CodeParseError, p.fault, cut+p.faultAt)
		if p.fault == faultMoreText {
			e.More = cut + p.faultAt
		}
	} else {
		e = newError(CodeInvalidRequest, p.shapeFault, cut+p.shapeFaultAt)
	}
	if p.m.id.end > 0 && !p.nullID && !p.twoIDs && !p.isTooLong(p.m.id) {
		e.ID = ID{string(p.slice(p.m.id))}
	}
	e.nullID = p.nullID
	e.Kind, e.Marked = p.seenFields.kind(p.fault == ""), p.seenFields.has(fieldJSONRPC)
	return e
}

// slice returns the bytes of a span.
func (p *parser) slice(s span) []byte { return p.data[s.start:s.end] }

// refuse notes a fault of shape at a byte offset, unless there was one before.
func (p *parser) refuse(at int, fault string) {
	if p.shapeFault == "" {
		p.shapeFault, p.shapeFaultAt = fault, at
	}
}

// scanMessage scans the text, makes the index, and reports whether the text is one valid message.
func (p *parser) scanMessage() (ok bool) {
	switch p.peek() {
	case '{':
		p.scanEnvelope()
	case '[':
		p.refuse(0, "a batch where a single message is expected")
		p.scanValue()
	default:
		p.refuse(0, "a message must be an object")
		p.scanValue()
	}
	p.expectEnd()
	if p.tooDeepAt > 0 {
		p.refuse(p.tooDeepAt, "more than "+strconv.Itoa(p.maxLevels)+" levels of objects and arrays, which is the limit (--max-depth),")
	}
	if p.fault == "" && p.shapeFault == "" {
		p.finish()
	}
	return p.fault == "" && p.shapeFault == ""
}

// scanMember scans a key and the colon, up to the value, and returns the field that
// the key names. If that field is in once, it is added to seen; a second time is a
// fault of shape.
func (p *parser) scanMember(seen *fields, once fields) (f field, ok bool) {
	at := p.pos
	text, escaped, ok := p.scanKey()
	if !ok {
		return 0, false
	}
	f = fieldOf(text, escaped)
	if once.has(f) {
		if seen.has(f) {
			p.refuse(at, `the key "`+fieldNames[f]+`" stands twice`)
			p.twoIDs = p.twoIDs || f == fieldID
		}
		*seen |= 1 << f
	}
	return f, true
}

// scanEnvelope scans the object that is the message, and puts its members into the
// index.
func (p *parser) scanEnvelope() {
	const once = 1<<fieldJSONRPC | 1<<fieldID | 1<<fieldMethod | 1<<fieldParams | 1<<fieldResult | 1<<fieldError
	for more := p.openObject(); more; more = p.nextKey() {
		f, ok := p.scanMember(&p.seenFields, once)
		if !ok {
			return
		}
		at := p.pos
		switch {
		case f == fieldParams && p.peek() == '{':
			p.scanParams()
		case f == fieldResult && p.peek() == '{':
			p.scanResult()
		case f == fieldError && p.peek() == '{':
			p.scanErrorObject()
		default:
			p.scanValue()
		}
		if p.fault != "" {
			return
		}
		if p.pos == len(p.data) {
			p.nextKey()
			return // the text ends here: the value may be the beginning of a longer number
		}
		p.lastValue = span{uint32(at), uint32(p.pos)}
		p.indexMember(f, p.lastValue)
	}
}

// indexMember puts a member of the envelope, whose value is at s, into the index, and
// notes a fault of shape if the value is of a wrong type.
func (p *parser) indexMember(f field, s span) {
	value := p.slice(s)
	at := int(s.start)
	switch f {
	case fieldJSONRPC:
		if string(value) != `"2.0"` && (value[0] != '"' || !textEquals(value[1:len(value)-1], true, "2.0")) {
			p.refuse(at, `"jsonrpc" must be "2.0"`)
		}
	case fieldID:
		p.nullID = value[0] == 'n'
		if p.nullID || isID(value) {
			p.m.id = s
		} else {
			p.refuse(at, "the id must be a string or an integer")
		}
	case fieldMethod:
		p.m.method = s
		if value[0] != '"' {
			p.refuse(at, "the method must be a string")
		}
	case fieldParams:
		if value[0] != 'n' {
			p.m.params = s
			p.badParams = value[0] != '{' && value[0] != '['
		}
	case fieldResult:
		p.m.outcome = s
	case fieldError:
		p.m.outcome = s
		if value[0] != '{' {
			p.refuse(at, "the error must be an object")
		}
	default:
		p.m.isExtended = true
	}
}

// scanParams scans params, which are an object, and puts the spans of _meta,
// progressToken, requestId and the longest value into the index.
func (p *parser) scanParams() {
	const once = 1<<fieldMeta | 1<<fieldProgressToken | 1<<fieldRequestID
	var seen fields
	for more := p.openObject(); more; more = p.nextKey() {
		f, ok := p.scanMember(&seen, once)
		if !ok {
			return
		}
		at := p.pos
		switch {
		case f == fieldProgressToken:
			p.token = p.scanToken()
		case f == fieldRequestID:
			p.m.requestID = p.scanToken()
		case f == fieldMeta && p.peek() == '{':
			p.scanMeta()
		default:
			p.scanValue()
		}
		s := p.noteSpan(at)
		if f == fieldMeta {
			p.m.meta = s
		}
	}
}

// scanResult scans a result that is an object, and notes its longest value.
func (p *parser) scanResult() {
	for more := p.openObject(); more; more = p.nextKey() {
		if _, _, ok := p.scanKey(); !ok {
			return
		}
		at := p.pos
		p.scanValue()
		p.noteSpan(at)
	}
}

// noteSpan returns the span of the value that begins at index at and ends at pos. If
// it is the longest yet, it becomes the longestValue of the message.
func (p *parser) noteSpan(at int) span {
	s := span{uint32(at), uint32(p.pos)}
	if s.end-s.start > p.m.longestValue.end-p.m.longestValue.start {
		p.m.longestValue = s
	}
	return s
}

// scanMeta scans params._meta, which is an object, and notes where its progressToken
// stands.
func (p *parser) scanMeta() {
	var seen fields
	for more := p.openObject(); more; more = p.nextKey() {
		f, ok := p.scanMember(&seen, 1<<fieldProgressToken)
		if !ok {
			return
		}
		if f == fieldProgressToken {
			p.metaToken = p.scanToken()
		} else {
			p.scanValue()
		}
	}
}

// scanToken scans a value and returns its span; the zero span if the value cannot be an id
// or a token.
func (p *parser) scanToken() span {
	at := p.pos
	if !p.scanValue() || !isID(p.data[at:p.pos]) {
		return span{}
	}
	return span{uint32(at), uint32(p.pos)}
}

// scanErrorObject scans the error, which is an object. It is a fault of shape if the
// error has no integer code or no string message.
func (p *parser) scanErrorObject() {
	at := p.pos
	hasCode, hasMessage := false, false
	for more := p.openObject(); more; more = p.nextKey() {
		text, escaped, ok := p.scanKey()
		if !ok {
			return
		}
		value := p.pos
		if !p.scanValue() {
			return
		}
		switch fieldOf(text, escaped) {
		case fieldCode:
			hasCode = isErrorCode(p.data[value:p.pos])
		case fieldMessage:
			hasMessage = p.data[value] == '"'
		}
	}
	if !hasCode || !hasMessage {
		p.refuse(at, "the error must have an integer code and a string message")
	}
}

// finish makes the checks for which all of the envelope must be known, such as that
// there is a method, a result or an error. If nothing is wrong, it completes the
// index.
func (p *parser) finish() {
	hasResult, hasError := p.seenFields.has(fieldResult), p.seenFields.has(fieldError)
	hasMethod, hasID := p.seenFields.has(fieldMethod), p.seenFields.has(fieldID)
	switch {
	case !p.seenFields.has(fieldJSONRPC):
		p.refuse(0, `"jsonrpc" is missing in the object`)
	case hasResult && hasError:
		p.refuse(0, "both a result and an error in the object")
	case hasMethod && (hasResult || hasError):
		p.refuse(0, "both a method and a result or error in the object")
	case !hasMethod && !hasResult && !hasError:
		p.refuse(0, "neither a method nor a result nor an error in the object")
	case p.nullID && !hasError:
		p.refuse(int(p.m.id.start), "the id must not be null")
	case hasResult && !hasID:
		p.refuse(0, "no id in the response")
	case hasMethod && p.badParams:
		p.refuse(int(p.m.params.start), "the params must be an object or an array")
	}
	p.m.kind = p.seenFields.kind(true)
	if p.checkNames(); p.shapeFault != "" {
		return
	}
	p.m.raw = p.data[:len(p.data):len(p.data)]
	p.m.isError = hasError
	p.m.hasLineBreaks = p.hasLineBreaks
	if p.m.id.end > 0 {
		p.m.ident = ID{string(p.slice(p.m.id))}
	}
	if hasMethod {
		p.m.knownMethod = knownMethods.find(p.slice(span{p.m.method.start + 1, p.m.method.end - 1}))
	}
	if p.m.kind == Response {
		p.m.isExtended = p.m.isExtended || p.seenFields.has(fieldParams)
	}
}

// checkNames refuses names (id, method, progress token, requestId) that are longer
// than MaxName. It also puts the progress token that counts for this kind of message
// into the index.
func (p *parser) checkNames() {
	switch p.m.kind {
	case Request:
		p.m.token = p.metaToken
		p.checkName("the id", p.m.id)
		p.checkName("the progress token", p.m.token)
	case Notification:
		p.m.token = p.token
		p.checkName("params.requestId", p.m.requestID)
		p.checkRepeatedName("the progress token", p.m.token)
	case Response:
		p.checkRepeatedName("the id", p.m.id)
	}
	p.checkName("the method", p.m.method)
}

// checkRepeatedName refuses the value at s, which the fault calls name, if its decoded text is longer than MaxName. It
// is for a name that the peer repeats, perhaps with escapes that were not there before.
func (p *parser) checkRepeatedName(name string, s span) {
	if !p.isTooLong(s) {
		return
	}
	if said, ok := Text(p.slice(s)); !ok || len(said) > MaxName {
		p.checkName(name, s)
	}
}

// checkName refuses the value at s, which the fault calls name, if it is longer than
// MaxName as it is spelled, without quotes (isTooLong).
func (p *parser) checkName(name string, s span) {
	if p.isTooLong(s) {
		p.refuse(int(s.start), name+" is longer than "+strconv.Itoa(MaxName)+" bytes, which is the limit,")
	}
}

// isTooLong reports whether the value at s is longer than MaxName bytes. The quotes of
// a string do not count.
func (p *parser) isTooLong(s span) bool {
	length := int(s.end - s.start)
	return length > MaxName && (length > MaxName+2 || p.data[s.start] != '"')
}
