//go:build linux

package secretservice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The types of D-Bus messages.
const (
	messageTypeCall   = 1 // type of a message that calls a method
	messageTypeReply  = 2 // type of a message that answers a call
	messageTypeError  = 3 // type of a message that answers a call that failed
	messageTypeSignal = 4 // type of a message that tells of an event
)

// The codes of fields in the header of a D-Bus message.
const (
	fieldPath        = 1 // code of the header field with the object that is called, or has sent a signal
	fieldInterface   = 2 // code of the header field with the interface of the method or signal
	fieldMember      = 3 // code of the header field with the name of the method or signal
	fieldErrorName   = 4 // code of the header field with the name of an error
	fieldReplySerial = 5 // code of the header field with the serial number of the call that is answered
	fieldDestination = 6 // code of the header field with the bus name that the message is for
	fieldSignature   = 8 // code of the header field with the types of the values in the body
)

// maxMessageBytes is how long a message that comes may be.
const maxMessageBytes = 1 << 20

// A dbusWriter appends values to data in the D-Bus format, in little-endian order. data begins at an offset
// in the message that is divisible by 8.
type dbusWriter struct {
	data []byte // what was written so far
}

// padTo appends zeros until the length of data is divisible by n.
func (w *dbusWriter) padTo(n int) {
	for len(w.data)%n != 0 {
		w.data = append(w.data, 0)
	}
}

// writeUint32 writes a number (u), or a boolean (b).
func (w *dbusWriter) writeUint32(v uint32) {
	w.padTo(4)
	w.data = binary.LittleEndian.AppendUint32(w.data, v)
}

// writeString writes a string (s), or the path of an object (o).
func (w *dbusWriter) writeString(s string) {
	w.writeUint32(uint32(len(s)))
	w.data = append(append(w.data, s...), 0)
}

// writeBytes writes an array of bytes (ay).
func (w *dbusWriter) writeBytes(s string) {
	w.writeUint32(uint32(len(s)))
	w.data = append(w.data, s...)
}

// writeSignature writes a signature (g). A variant (v) is a signature with its value behind it.
func (w *dbusWriter) writeSignature(s string) {
	w.data = append(append(append(w.data, byte(len(s))), s...), 0)
}

// writeArray writes an array whose elements the function elements writes; each begins at an offset divisible
// by n.
func (w *dbusWriter) writeArray(n int, elements func()) {
	w.writeUint32(0)
	at := len(w.data) - 4
	w.padTo(n)
	start := len(w.data)
	elements()
	binary.LittleEndian.PutUint32(w.data[at:], uint32(len(w.data)-start))
}

// A dbusReader reads values in the D-Bus format, one call for each. After its first error, all are zero.
type dbusReader struct {
	data      []byte           // the bytes that are read
	pos       int              // how many bytes of data were read
	byteOrder binary.ByteOrder // the byte order of the numbers in data
	err       error            // the first error; nil: there was none
}

// errTruncated says that a value is longer than what is left of its message.
var errTruncated = errors.New("the session bus has sent a message that is cut off")

// readRaw returns the next n bytes; nil, and errTruncated in err, if there are fewer.
func (r *dbusReader) readRaw(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.data)-r.pos {
		r.setError(errTruncated)
		return nil
	}
	r.pos += n
	return r.data[r.pos-n : r.pos]
}

// setError sets err, unless there was an error before.
func (r *dbusReader) setError(err error) {
	if r.err == nil {
		r.err = err
	}
}

// skipTo skips bytes until pos is divisible by n.
func (r *dbusReader) skipTo(n int) { r.readRaw((n - r.pos%n) % n) }

// readUint8 reads a byte (y).
func (r *dbusReader) readUint8() byte {
	if b := r.readRaw(1); b != nil {
		return b[0]
	}
	return 0
}

// readUint32 reads a number (u), or a boolean (b).
func (r *dbusReader) readUint32() uint32 {
	r.skipTo(4)
	if b := r.readRaw(4); b != nil {
		return r.byteOrder.Uint32(b)
	}
	return 0
}

// readLength reads the length of a string or an array.
func (r *dbusReader) readLength() int {
	if n := r.readUint32(); n <= maxMessageBytes {
		return int(n)
	}
	r.setError(errTruncated)
	return 0
}

// readString reads a string (s), or the path of an object (o).
func (r *dbusReader) readString() string {
	s := string(r.readRaw(r.readLength()))
	r.readRaw(1)
	return s
}

// readBytes reads an array of bytes (ay).
func (r *dbusReader) readBytes() []byte { return r.readRaw(r.readLength()) }

// readSignature reads a signature (g): also the first part of a variant (v), behind which stands its value.
func (r *dbusReader) readSignature() string {
	s := string(r.readRaw(int(r.readUint8())))
	r.readRaw(1)
	return s
}

// readStrings reads an array of strings (as), or of paths of objects (ao).
func (r *dbusReader) readStrings() []string {
	n := r.readLength()
	var all []string
	for end := r.pos + n; r.err == nil && r.pos < end; {
		all = append(all, r.readString())
	}
	return all
}

// readVariantType reads the signature of a variant (v). It is an error if the value behind it is not of this
// type.
func (r *dbusReader) readVariantType(signature string) {
	if s := r.readSignature(); s != signature {
		r.setError(fmt.Errorf("the keyring has answered a value of type %q, and not %q", s, signature))
	}
}

// A message is a D-Bus message that has been received.
type message struct {
	messageType   byte             // the message's type: messageTypeReply ...
	path          string           // of a signal: the object that has sent it
	interfaceName string           // of a signal: its interface
	member        string           // the name of a signal
	errorName     string           // the name of an error
	signature     string           // the types of the values in body; "": it has none
	replySerial   uint32           // of a reply or an error: the serial number of the call that it answers
	body          []byte           // the message's values, encoded
	byteOrder     binary.ByteOrder // the byte order of the numbers in body
}

// readMessage reads one message, of at most maxMessageBytes.
func readMessage(in io.Reader) (*message, error) {
	var head [16]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	m := &message{messageType: head[1], byteOrder: binary.LittleEndian}
	if head[0] == 'B' {
		m.byteOrder = binary.BigEndian
	}
	fields, body := m.byteOrder.Uint32(head[12:]), m.byteOrder.Uint32(head[4:])
	padded := (uint64(fields) + 7) &^ 7
	if total := padded + uint64(body); total > maxMessageBytes {
		return nil, fmt.Errorf("the session bus has sent a message of %d bytes", total)
	}
	rest := make([]byte, padded+uint64(body))
	if _, err := io.ReadFull(in, rest); err != nil {
		return nil, err
	}
	m.body = rest[padded:]
	return m, m.readHeaderFields(&dbusReader{data: rest[:fields], byteOrder: m.byteOrder})
}

// readHeaderFields reads all header fields of the message from r.
func (m *message) readHeaderFields(r *dbusReader) error {
	for r.skipTo(8); r.err == nil && r.pos < len(r.data); {
		field, signature := r.readUint8(), r.readSignature()
		var text string
		var number uint32
		switch signature {
		case "s", "o":
			text = r.readString()
		case "g":
			text = r.readSignature()
		case "u":
			number = r.readUint32()
		default:
			return fmt.Errorf("the session bus has sent a header field of type %q", signature)
		}
		m.setHeaderField(field, text, number)
		if r.pos < len(r.data) {
			r.skipTo(8)
		}
	}
	return r.err
}

// setHeaderField stores a header field of the message by its code; number is for fieldReplySerial, text for
// all others. Fields that nobody needs are passed over.
func (m *message) setHeaderField(field byte, text string, number uint32) {
	switch field {
	case fieldPath:
		m.path = text
	case fieldInterface:
		m.interfaceName = text
	case fieldMember:
		m.member = text
	case fieldErrorName:
		m.errorName = text
	case fieldReplySerial:
		m.replySerial = number
	case fieldSignature:
		m.signature = text
	}
}

// bodyReader returns a reader of the message's values, which must be of the types in signature; "": of any.
func (m *message) bodyReader(signature string) (*dbusReader, error) {
	if signature != "" && m.signature != signature {
		return nil, fmt.Errorf("the keyring has answered values of type %q, and not %q", m.signature, signature)
	}
	return &dbusReader{data: m.body, byteOrder: m.byteOrder}, nil
}

// asError returns the error that a message of messageTypeError tells: its text, or else its name.
func (m *message) asError() error {
	text := ""
	if len(m.signature) > 0 && m.signature[0] == 's' {
		r, _ := m.bodyReader("")
		text = r.readString()
	}
	if text == "" {
		text = m.errorName
	}
	return errors.New(text)
}
