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
	typeCall, typeReply, typeError, typeSignal = 1, 2, 3, 4

	fieldPath, fieldInterface, fieldMember, fieldErrorName = 1, 2, 3, 4
	fieldReplySerial, fieldDestination, fieldSignature     = 5, 6, 8

	maxMessage = 1 << 20
)

// A writer appends values as D-Bus has them, in little-endian order. What it writes begins at an offset divisible by 8.
type writer struct{ b []byte }

func (w *writer) align(n int) {
	for len(w.b)%n != 0 {
		w.b = append(w.b, 0)
	}
}

func (w *writer) uint32(v uint32) {
	w.align(4)
	w.b = binary.LittleEndian.AppendUint32(w.b, v)
}

// string writes a string (s), or the path of an object (o).
func (w *writer) string(s string) {
	w.uint32(uint32(len(s)))
	w.b = append(append(w.b, s...), 0)
}

// bytes writes an array of bytes (ay).
func (w *writer) bytes(s string) {
	w.uint32(uint32(len(s)))
	w.b = append(w.b, s...)
}

// signature writes a signature (g): also the first part of a variant (v), after which comes its value.
func (w *writer) signature(s string) {
	w.b = append(append(append(w.b, byte(len(s))), s...), 0)
}

// array writes an array of what elements writes, each aligned to n bytes.
func (w *writer) array(n int, elements func()) {
	w.uint32(0)
	at := len(w.b) - 4
	w.align(n)
	start := len(w.b)
	elements()
	binary.LittleEndian.PutUint32(w.b[at:], uint32(len(w.b)-start))
}

// A reader takes values out of a message. After its first error, all are zero.
type reader struct {
	b     []byte
	pos   int
	order binary.ByteOrder
	err   error
}

var errShort = errors.New("the session bus has sent a message that is cut off")

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b)-r.pos {
		r.fail(errShort)
		return nil
	}
	r.pos += n
	return r.b[r.pos-n : r.pos]
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) align(n int) { r.take((n - r.pos%n) % n) }

func (r *reader) uint8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint32() uint32 {
	r.align(4)
	if b := r.take(4); b != nil {
		return r.order.Uint32(b)
	}
	return 0
}

func (r *reader) length() int {
	if n := r.uint32(); n <= maxMessage {
		return int(n)
	}
	r.fail(errShort)
	return 0
}

func (r *reader) string() string {
	s := string(r.take(r.length()))
	r.take(1)
	return s
}

func (r *reader) bytes() []byte { return r.take(r.length()) }

func (r *reader) signature() string {
	s := string(r.take(int(r.uint8())))
	r.take(1)
	return s
}

// strings reads an array of strings (as), or of paths of objects (ao).
func (r *reader) strings() []string {
	n := r.length()
	var all []string
	for end := r.pos + n; r.err == nil && r.pos < end; {
		all = append(all, r.string())
	}
	return all
}

// variant reads what stands in front of the value of a variant, which must be of this type.
func (r *reader) variant(signature string) {
	if s := r.signature(); s != signature {
		r.fail(fmt.Errorf("the keyring has answered a value of type %q, and not %q", s, signature))
	}
}

// A message is one that has come.
type message struct {
	kind                           byte
	path, iface, member, errorName string
	signature                      string
	replySerial                    uint32
	body                           []byte
	order                          binary.ByteOrder
}

// readMessage reads a message.
func readMessage(in io.Reader) (*message, error) {
	var head [16]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	m := &message{kind: head[1], order: binary.LittleEndian}
	if head[0] == 'B' {
		m.order = binary.BigEndian
	}
	fields, body := m.order.Uint32(head[12:]), m.order.Uint32(head[4:])
	padded := (uint64(fields) + 7) &^ 7
	if total := padded + uint64(body); total > maxMessage {
		return nil, fmt.Errorf("the session bus has sent a message of %d bytes", total)
	}
	rest := make([]byte, padded+uint64(body))
	if _, err := io.ReadFull(in, rest); err != nil {
		return nil, err
	}
	m.body = rest[padded:]
	return m, m.readFields(&reader{b: rest[:fields], order: m.order})
}

func (m *message) readFields(r *reader) error {
	for r.align(8); r.err == nil && r.pos < len(r.b); {
		field, signature := r.uint8(), r.signature()
		var text string
		var number uint32
		switch signature {
		case "s", "o":
			text = r.string()
		case "g":
			text = r.signature()
		case "u":
			number = r.uint32()
		default:
			return fmt.Errorf("the session bus has sent a header field of type %q", signature)
		}
		m.set(field, text, number)
		if r.pos < len(r.b) {
			r.align(8)
		}
	}
	return r.err
}

func (m *message) set(field byte, text string, number uint32) {
	switch field {
	case fieldPath:
		m.path = text
	case fieldInterface:
		m.iface = text
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

// read returns a reader of what the message has, which must be of these types; "" is for any.
func (m *message) read(signature string) (*reader, error) {
	if signature != "" && m.signature != signature {
		return nil, fmt.Errorf("the keyring has answered values of type %q, and not %q", m.signature, signature)
	}
	return &reader{b: m.body, order: m.order}, nil
}

// asError returns what an error says.
func (m *message) asError() error {
	text := ""
	if len(m.signature) > 0 && m.signature[0] == 's' {
		r, _ := m.read("")
		text = r.string()
	}
	if text == "" {
		text = m.errorName
	}
	return errors.New(text)
}
