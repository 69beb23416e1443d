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

// A busConn is a connection to the bus of the user's session (D-Bus). One goroutine uses it, and makes one
// call after the other. Whoever dials closes it.
type busConn struct {
	conn         net.Conn        // the connection to the bus's socket
	ctx          context.Context // when it is done, conn is closed
	stopClosing  func() bool     // keeps ctx from closing conn any more
	reader       *bufio.Reader   // reads from conn
	lastSerial   uint32          // the serial number of the last call
	earlySignals []*message      // signals of prompts that came before awaitSignal looked for them; at most maxEarlySignals
}

// maxEarlySignals is how many signals are kept that come while a reply is awaited: more than one would be
// odd.
const maxEarlySignals = 16

// callTimeout is how long the bus and the keyring may take for one answer. The answer of a person takes as
// long as ctx lasts.
var callTimeout = 10 * time.Second

// dialSessionBus connects to the session bus, at the first of its addresses that works. It starts no bus:
// without one there is no keyring.
func dialSessionBus(ctx context.Context) (*busConn, error) {
	address := sessionBusAddress()
	if address == "" {
		return nil, errors.New("there is no session bus, as in a container or a session without a desktop")
	}
	var errs []error
	for one := range strings.SplitSeq(address, ";") {
		path, err := unixSocketPath(one)
		if err == nil {
			var b *busConn
			if b, err = dialSocket(ctx, path); err == nil {
				return b, nil
			}
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// sessionBusAddress returns the address of the session bus, from the environment or from where systemd and
// dbus-launch put it; "": there is none.
func sessionBusAddress() string {
	if address := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" && address != "autolaunch:" {
		return address
	}
	dir := filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	if socket := filepath.Join(dir, "bus"); pathExists(socket) {
		return "unix:path=" + socket
	}
	text, err := os.ReadFile(filepath.Join(dir, "dbus-session"))
	if err != nil {
		return ""
	}
	address, _ := strings.CutPrefix(strings.TrimSpace(string(text)), "DBUS_SESSION_BUS_ADDRESS=")
	return address
}

// pathExists reports whether there is something at a path.
func pathExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// unixSocketPath returns the path of the socket in a D-Bus address such as
// unix:path=/run/user/1000/bus,guid=...; an error if that is no Unix socket.
func unixSocketPath(address string) (string, error) {
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

// dialSocket connects to the bus at a Unix socket, and authenticates.
func dialSocket(ctx context.Context, path string) (*busConn, error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(limited, "unix", path)
	if err != nil {
		return nil, err
	}
	b := &busConn{conn: conn, ctx: ctx, reader: bufio.NewReader(conn)}
	b.stopClosing = context.AfterFunc(ctx, func() { _ = conn.Close() })
	if err := b.authenticate(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// setTimeout sets how long reading and writing may take from now on; 0: as long as ctx lasts.
func (b *busConn) setTimeout(d time.Duration) {
	end := time.Time{}
	if d > 0 {
		end = time.Now().Add(d)
	}
	_ = b.conn.SetDeadline(end) // which fails on one that ctx has closed
}

// explainError returns the error for callers in the place of one of conn: that of ctx if it is done, or that
// there was no answer in time, or err itself.
func (b *busConn) explainError(err error) error {
	switch {
	case b.ctx.Err() != nil:
		return b.ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("there was no answer within %v: it hangs, or does not get to run", callTimeout)
	}
	return err
}

// authenticate tells the bus which user we are, whom the kernel has told it too, and says Hello.
func (b *busConn) authenticate() error {
	b.setTimeout(callTimeout)
	user := hex.EncodeToString([]byte(strconv.Itoa(os.Getuid())))
	if _, err := b.conn.Write([]byte("\x00AUTH EXTERNAL " + user + "\r\n")); err != nil {
		return b.explainError(err)
	}
	answer, err := b.reader.ReadSlice('\n') // of at most 4096 bytes
	if err != nil {
		return b.explainError(err)
	}
	if !bytes.HasPrefix(answer, []byte("OK ")) {
		return errors.New("the session bus does not let this user in")
	}
	if _, err := b.conn.Write([]byte("BEGIN\r\n")); err != nil {
		return b.explainError(err)
	}
	_, err = b.callMethod(methodCall{busName, busPath, busName, "Hello", ""}, func(*dbusWriter) {}, "s")
	return err
}

// close closes the connection.
func (b *busConn) close() {
	b.stopClosing()
	_ = b.conn.Close()
}

// A methodCall names a method of an object on the bus, and the types of its arguments.
type methodCall struct {
	destination   string // the bus name of the program that has the object
	path          string // the object that is called
	interfaceName string // the interface that has the method
	method        string // the method's name
	signature     string // the types of its arguments; "": it has none
}

// callMethod calls a method with the arguments that write writes, and waits for its reply. It returns a
// reader of the reply, whose values must be of the types in reply; "": of any.
func (b *busConn) callMethod(c methodCall, write func(*dbusWriter), reply string) (*dbusReader, error) {
	b.lastSerial++
	b.setTimeout(callTimeout)
	if _, err := b.conn.Write(c.encode(b.lastSerial, write)); err != nil {
		return nil, b.explainError(err)
	}
	for {
		m, err := readMessage(b.reader)
		switch {
		case err != nil:
			return nil, b.explainError(err)
		case m.messageType == messageTypeSignal:
			if m.interfaceName == promptInterface && len(b.earlySignals) < maxEarlySignals {
				b.earlySignals = append(b.earlySignals, m)
			}
		case m.replySerial != b.lastSerial:
		case m.messageType == messageTypeError:
			return nil, m.asError()
		case m.messageType == messageTypeReply:
			return m.bodyReader(reply)
		}
	}
}

// encode returns the bytes of the message for the call, with this serial number and the arguments that write
// writes.
func (c methodCall) encode(serial uint32, write func(*dbusWriter)) []byte {
	var body dbusWriter
	write(&body)
	w := dbusWriter{data: []byte{'l', messageTypeCall, 0, 1}}
	w.writeUint32(uint32(len(body.data)))
	w.writeUint32(serial)
	w.writeArray(8, func() {
		field := func(code byte, kind, value string) {
			w.padTo(8)
			w.data = append(w.data, code)
			w.writeSignature(kind)
			w.writeString(value)
		}
		field(fieldPath, "o", c.path)
		field(fieldDestination, "s", c.destination)
		field(fieldInterface, "s", c.interfaceName)
		field(fieldMember, "s", c.method)
		if c.signature != "" {
			w.padTo(8)
			w.data = append(w.data, fieldSignature)
			w.writeSignature("g")
			w.writeSignature(c.signature)
		}
	})
	w.padTo(8)
	return append(w.data, body.data...)
}

// awaitSignal returns the signal with this path, interface and member. It waits for it as long as ctx lasts,
// since a person causes it.
func (b *busConn) awaitSignal(path, iface, member string) (*message, error) {
	b.setTimeout(0)
	for {
		for _, m := range b.earlySignals {
			if m.path == path && m.interfaceName == iface && m.member == member {
				return m, nil
			}
		}
		m, err := readMessage(b.reader)
		if err != nil {
			return nil, b.explainError(err)
		}
		b.earlySignals = b.earlySignals[:0]
		if m.messageType == messageTypeSignal {
			b.earlySignals = append(b.earlySignals, m)
		}
	}
}
