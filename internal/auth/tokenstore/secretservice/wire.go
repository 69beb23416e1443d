//go:build linux

package secretservice

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The D-Bus specification's types of messages, and fields of their headers.
const (
	messageTypeCall, messageTypeReply, messageTypeError, messageTypeSignal = 1, 2, 3, 4

	fieldPath, fieldInterface, fieldMember, fieldErrorName = 1, 2, 3, 4
	fieldReplySerial, fieldDestination, fieldSignature     = 5, 6, 8

	maxMessageBytes = 1 << 20
)

// A dbusWriter appends values as D-Bus has them, in little-endian order. What it writes begins at an offset divisible by 8.
type dbusWriter struct{ data []byte }

func (w *dbusWriter) padTo(n int) {
	for len(w.data)%n != 0 {
		w.data = append(w.data, 0)
	}
}

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

// writeSignature writes a signature (g): also the first part of a variant (v), after which comes its value.
func (w *dbusWriter) writeSignature(s string) {
	w.data = append(append(append(w.data, byte(len(s))), s...), 0)
}

// writeArray writes an array of what elements writes, each aligned to n bytes.
func (w *dbusWriter) writeArray(n int, elements func()) {
	w.writeUint32(0)
	at := len(w.data) - 4
	w.padTo(n)
	start := len(w.data)
	elements()
	binary.LittleEndian.PutUint32(w.data[at:], uint32(len(w.data)-start))
}

// A dbusReader takes values out of a message. After its first error, all are zero.
type dbusReader struct {
	data      []byte
	pos       int
	byteOrder binary.ByteOrder
	err       error
}

var errTruncated = errors.New("the session bus has sent a message that is cut off")

func (r *dbusReader) readRaw(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.data)-r.pos {
		r.setError(errTruncated)
		return nil
	}
	r.pos += n
	return r.data[r.pos-n : r.pos]
}

func (r *dbusReader) setError(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *dbusReader) skipTo(n int) { r.readRaw((n - r.pos%n) % n) }

func (r *dbusReader) readUint8() byte {
	if b := r.readRaw(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *dbusReader) readUint32() uint32 {
	r.skipTo(4)
	if b := r.readRaw(4); b != nil {
		return r.byteOrder.Uint32(b)
	}
	return 0
}

func (r *dbusReader) readLength() int {
	if n := r.readUint32(); n <= maxMessageBytes {
		return int(n)
	}
	r.setError(errTruncated)
	return 0
}

func (r *dbusReader) readString() string {
	s := string(r.readRaw(r.readLength()))
	r.readRaw(1)
	return s
}

func (r *dbusReader) readBytes() []byte { return r.readRaw(r.readLength()) }

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

// readVariantType reads what stands in front of the value of a variant, which must be of this type.
func (r *dbusReader) readVariantType(signature string) {
	if s := r.readSignature(); s != signature {
		r.setError(fmt.Errorf("the keyring has answered a value of type %q, and not %q", s, signature))
	}
}

// A message is one that has come.
type message struct {
	messageType                            byte
	path, interfaceName, member, errorName string
	signature                              string
	replySerial                            uint32
	body                                   []byte
	byteOrder                              binary.ByteOrder
}

// readMessage reads a message.
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

// bodyReader returns a reader of what the message has, which must be of these types; "" is for any.
func (m *message) bodyReader(signature string) (*dbusReader, error) {
	if signature != "" && m.signature != signature {
		return nil, fmt.Errorf("the keyring has answered values of type %q, and not %q", m.signature, signature)
	}
	return &dbusReader{data: m.body, byteOrder: m.byteOrder}, nil
}

// asError returns what an error says.
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
