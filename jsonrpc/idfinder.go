package jsonrpc

// finderState is where in the message an IDFinder stands.
type finderState uint8

const (
	finderStart finderState = iota // the IDFinder stands before the brace that begins the message
	finderKey                      // the IDFinder stands inside the message's object, before a key or after a value
	finderInKey                    // the IDFinder stands in the string of a key of the envelope
	finderColon                    // the IDFinder stands after a key of the envelope, before its colon
	finderValue                    // the IDFinder stands before or in a value of the envelope
	finderDone                     // the IDFinder stands behind the object, or the text is no object
)

// IDFinder finds the envelope's id in a message that is too large to be kept. The caller
// writes the bytes of the message as they arrive; the IDFinder keeps only a few hundred of
// them. The zero value is ready. The text must be JSON: an IDFinder does not check it.
// It is not for concurrent use.
type IDFinder struct {
	state      finderState // where in the message the next byte stands
	inString   bool        // the next byte is in a string inside a value
	escaped    bool        // the last byte was a backslash that escapes the next one
	keyEscaped bool        // the key that is being read has escapes
	twoIDs     bool        // the envelope has had the key "id" twice
	capturesID bool        // the value being read is the id's, and is copied into id
	depth      int         // how many objects and arrays are open inside the value being read
	// the envelope's fields so far (id, method, result and error); fieldOther is in it
	// once the object has ended
	seenFields fields

	key        [40]byte  // the key as spelled; "method" spelled in \u escapes has 36 bytes
	keyLen     int       // the length of the key; may be greater than len(key): no known key is so long
	id         [256]byte // the id's value as spelled, or its beginning
	idLen      int       // how many bytes of id are used
	idComplete bool      // id holds a whole value: the id was read to its end
}

// Write takes the next bytes of the message. It always returns len(p) and nil.
func (f *IDFinder) Write(p []byte) (int, error) {
	for i := 0; i < len(p) && f.state != finderDone; {
		if f.inString && !f.escaped && !f.capturesID {
			// Most bytes of a large message are in strings.
			if i, _ = endOfPlain(p, i); i == len(p) {
				break
			}
		}
		f.feed(p[i])
		i++
	}
	return len(p), nil
}

// feed takes one byte of the message.
func (f *IDFinder) feed(c byte) {
	switch f.state {
	case finderStart:
		switch c {
		case '{':
			f.state = finderKey
		case ' ', '\t', '\r', '\n', 0xEF, 0xBB, 0xBF: // or the byte order mark
		default:
			f.state = finderDone
		}
	case finderKey:
		switch c {
		case '"':
			f.state, f.keyLen, f.keyEscaped = finderInKey, 0, false
		case '}':
			f.state = finderDone
			f.seenFields |= 1 // fieldOther: the object is complete
		}
	case finderInKey:
		f.feedKey(c)
	case finderColon:
		if c == ':' {
			f.beginValue()
		}
	case finderValue:
		f.feedValue(c)
	}
}

// feedKey takes one byte of a key, or the quote that ends it.
func (f *IDFinder) feedKey(c byte) {
	switch {
	case f.escaped:
		f.escaped = false
	case c == '\\':
		f.escaped, f.keyEscaped = true, true
	case c == '"':
		f.state = finderColon
		return
	}
	if f.keyLen < len(f.key) {
		f.key[f.keyLen] = c
	}
	f.keyLen++
}

// beginValue is called at the colon behind a key: it notes the field that the key
// names, and begins to keep the value if that is the id.
func (f *IDFinder) beginValue() {
	f.state, f.depth, f.capturesID = finderValue, 0, false
	if f.keyLen > len(f.key) {
		return
	}
	text := f.key[:f.keyLen]
	if f.keyEscaped && !validText(text) {
		return
	}
	switch name := fieldOf(text, f.keyEscaped); name {
	case fieldID:
		f.twoIDs = f.twoIDs || f.seenFields.has(fieldID)
		f.seenFields |= 1 << fieldID
		f.capturesID, f.idLen, f.idComplete = true, 0, false
	case fieldMethod, fieldResult, fieldError:
		f.seenFields |= 1 << name
	}
}

// validText reports whether every backslash in text begins a valid escape of JSON. It looks at nothing else; text may have its
// quotes or not.
func validText(text []byte) bool {
	for i := 0; i < len(text); {
		n := 1
		if text[i] == '\\' {
			if n = escapeLen(text[i:]); n == 0 {
				return false
			}
		}
		i += n
	}
	return true
}

// feedValue takes one byte of a member's value, or what follows it.
func (f *IDFinder) feedValue(c byte) {
	if f.inString {
		f.keepByte(c)
		switch {
		case f.escaped:
			f.escaped = false
		case c == '\\':
			f.escaped = true
		case c == '"':
			f.inString = false
		}
		return
	}
	switch c {
	case ' ', '\t', '\r', '\n':
		return
	case '"':
		f.inString = true
	case '{', '[':
		f.depth++
	case '}', ']':
		if f.depth == 0 {
			f.endValue()
			f.feed('}')
			return
		}
		f.depth--
	case ',':
		if f.depth == 0 {
			f.endValue()
			return
		}
	}
	f.keepByte(c)
}

// keepByte appends c to the id if the value is the id's. If that is too long, it is
// given up.
func (f *IDFinder) keepByte(c byte) {
	if !f.capturesID {
		return
	}
	if f.idLen == len(f.id) {
		f.capturesID = false
		return
	}
	f.id[f.idLen] = c
	f.idLen++
}

// endValue is called at the comma or brace behind a value of the envelope.
func (f *IDFinder) endValue() {
	f.state = finderKey
	f.idComplete = f.idComplete || f.capturesID
	f.capturesID = false
}

// Result returns the id and the Kind as far as they are known after the last Write. The id
// is zero if there was none yet, if there were two, if it is longer than 256 bytes, or if it is
// no string or integer; null is NullID if there is an error. The Kind is Invalid if it is not
// known.
func (f *IDFinder) Result() (ID, Kind) {
	kind := f.seenFields.kind(f.seenFields.has(fieldOther))
	if !f.idComplete || f.twoIDs {
		return ID{}, kind
	}
	if string(f.id[:f.idLen]) == "null" && f.seenFields.has(fieldError) {
		return NullID, kind
	}
	id, _ := ParseID(f.id[:f.idLen])
	return id, kind
}
