//go:build linux

package secretservice

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A bus is a connection to the bus of the user's session, for one goroutine that makes one call after the other.
// Whoever dials closes it.
type bus struct {
	conn    net.Conn
	ctx     context.Context // closes conn when it is done
	stop    func() bool     // ends that
	in      *bufio.Reader
	serial  uint32
	signals []*message // of prompts, that came before a reply; at most maxSignals
}

// maxSignals is how many signals are kept that came before a reply: more than one would be odd.
const maxSignals = 16

// callTimeout is how long the bus and the keyring may take for one answer. A person's answer takes as long as ctx lasts.
var callTimeout = 10 * time.Second

// dialSession connects to the session bus. It starts none: without one there is no keyring.
func dialSession(ctx context.Context) (*bus, error) {
	address := sessionAddress()
	if address == "" {
		return nil, errors.New("there is no session bus, as in a container or a session without a desktop")
	}
	var errs []error
	for one := range strings.SplitSeq(address, ";") {
		path, err := socketPath(one)
		if err == nil {
			var b *bus
			if b, err = dial(ctx, path); err == nil {
				return b, nil
			}
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// sessionAddress returns the address of the session bus, and "" if there is none.
func sessionAddress() string {
	if address := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" && address != "autolaunch:" {
		return address
	}
	dir := filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	if socket := filepath.Join(dir, "bus"); exists(socket) {
		return "unix:path=" + socket
	}
	text, err := os.ReadFile(filepath.Join(dir, "dbus-session"))
	if err != nil {
		return ""
	}
	address, _ := strings.CutPrefix(strings.TrimSpace(string(text)), "DBUS_SESSION_BUS_ADDRESS=")
	return address
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// socketPath returns the socket of an address such as unix:path=/run/user/1000/bus,guid=...
func socketPath(address string) (string, error) {
	transport, pairs, _ := strings.Cut(address, ":")
	if transport == "unix" {
		for pair := range strings.SplitSeq(pairs, ",") {
			key, value, _ := strings.Cut(pair, "=")
			value, err := url.PathUnescape(value)
			switch {
			case err != nil:
			case key == "path":
				return value, nil
			case key == "abstract":
				return "@" + value, nil
			case key == "runtime" && value == "yes" && os.Getenv("XDG_RUNTIME_DIR") != "":
				return filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "bus"), nil
			}
		}
	}
	return "", fmt.Errorf("the session bus %q is no Unix socket", address)
}

// dial connects to a bus and says who we are: the kernel has told it which user that is.
func dial(ctx context.Context, path string) (*bus, error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(limited, "unix", path)
	if err != nil {
		return nil, err
	}
	b := &bus{conn: conn, ctx: ctx, in: bufio.NewReader(conn)}
	b.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err := b.hello(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// within bounds what is next said and heard; 0: only ctx does.
func (b *bus) within(d time.Duration) {
	end := time.Time{}
	if d > 0 {
		end = time.Now().Add(d)
	}
	_ = b.conn.SetDeadline(end) // which fails on one that ctx has closed
}

// why returns an error of the connection in the words of what it means.
func (b *bus) why(err error) error {
	switch {
	case b.ctx.Err() != nil:
		return b.ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("there was no answer within %v: it hangs, or does not get to run", callTimeout)
	}
	return err
}

func (b *bus) hello() error {
	b.within(callTimeout)
	user := hex.EncodeToString([]byte(strconv.Itoa(os.Getuid())))
	if _, err := b.conn.Write([]byte("\x00AUTH EXTERNAL " + user + "\r\n")); err != nil {
		return b.why(err)
	}
	answer, err := b.in.ReadSlice('\n') // of at most 4096 bytes
	if err != nil {
		return b.why(err)
	}
	if !bytes.HasPrefix(answer, []byte("OK ")) {
		return errors.New("the session bus does not let this user in")
	}
	if _, err := b.conn.Write([]byte("BEGIN\r\n")); err != nil {
		return b.why(err)
	}
	_, err = b.call(call{busName, busPath, busName, "Hello", ""}, func(*writer) {}, "s")
	return err
}

func (b *bus) close() {
	b.stop()
	_ = b.conn.Close()
}

// A call names a method, and the types of its arguments.
type call struct{ name, path, iface, method, signature string }

// call calls a method with the arguments that write writes. It returns a reader of the reply, which must be of these
// types; "" is for any.
func (b *bus) call(c call, write func(*writer), reply string) (*reader, error) {
	b.serial++
	b.within(callTimeout)
	if _, err := b.conn.Write(c.encode(b.serial, write)); err != nil {
		return nil, b.why(err)
	}
	for {
		m, err := readMessage(b.in)
		switch {
		case err != nil:
			return nil, b.why(err)
		case m.kind == typeSignal:
			if m.iface == promptInterface && len(b.signals) < maxSignals {
				b.signals = append(b.signals, m)
			}
		case m.replySerial != b.serial:
		case m.kind == typeError:
			return nil, m.asError()
		case m.kind == typeReply:
			return m.read(reply)
		}
	}
}

func (c call) encode(serial uint32, write func(*writer)) []byte {
	var body writer
	write(&body)
	w := writer{b: []byte{'l', typeCall, 0, 1}}
	w.uint32(uint32(len(body.b)))
	w.uint32(serial)
	w.array(8, func() {
		field := func(code byte, kind, value string) {
			w.align(8)
			w.b = append(w.b, code)
			w.signature(kind)
			w.string(value)
		}
		field(fieldPath, "o", c.path)
		field(fieldDestination, "s", c.name)
		field(fieldInterface, "s", c.iface)
		field(fieldMember, "s", c.method)
		if c.signature != "" {
			w.align(8)
			w.b = append(w.b, fieldSignature)
			w.signature("g")
			w.signature(c.signature)
		}
	})
	w.align(8)
	return append(w.b, body.b...)
}

// signal waits for a signal, which a person is the cause of.
func (b *bus) signal(path, iface, member string) (*message, error) {
	b.within(0)
	for {
		for _, m := range b.signals {
			if m.path == path && m.iface == iface && m.member == member {
				return m, nil
			}
		}
		m, err := readMessage(b.in)
		if err != nil {
			return nil, b.why(err)
		}
		b.signals = b.signals[:0]
		if m.kind == typeSignal {
			b.signals = append(b.signals, m)
		}
	}
}
