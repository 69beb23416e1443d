//go:build linux

package secretservice

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// listen has a bus at path that handles each connection in turn, and closes it after that. The bus ends with the test.
func listen(t *testing.T, path string, handle func(net.Conn)) {
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			handle(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
}

// serve is a bus with a Secret Service whose collection is locked. The user answers its question with this; with kde it
// answers OpenSession as ksecretd does.
func serve(t *testing.T, dismissed, kde bool) {
	path := filepath.Join(t.TempDir(), "a bus")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "tcp:host=localhost,port=1;unix:guid=12,path="+strings.ReplaceAll(path, " ", "%20"))
	listen(t, path, func(conn net.Conn) { answer(conn, dismissed, kde) })
}

func answer(conn net.Conn, dismissed, kde bool) {
	in := bufio.NewReader(conn)
	if line, _ := in.ReadString('\n'); !strings.HasPrefix(line, "\x00AUTH EXTERNAL ") {
		return
	}
	_, _ = io.WriteString(conn, "OK 12\r\n")
	if line, _ := in.ReadString('\n'); line != "BEGIN\r\n" {
		return
	}
	for serial := uint32(1); ; serial++ {
		m, err := readMessage(in)
		if err != nil {
			return
		}
		kind, signature := byte(messageTypeReply), ""
		var body dbusWriter
		switch m.member {
		case "Hello":
			signature = "s"
			body.writeString(":1.1")
		case "OpenSession":
			signature = "vo"
			if kde {
				body.writeSignature("ay")
				body.writeBytes("")
			} else {
				body.writeSignature("s")
				body.writeString("")
			}
			body.writeString("/session")
		case "Get":
			signature = "v"
			body.writeSignature("ao")
			body.writeArray(4, func() { body.writeString("/other") })
		case "Unlock":
			signature = "aoo"
			body.writeArray(4, func() {})
			body.writeString("/prompt")
		case "Prompt": // the answer is there before the reply, as it may be
			var answered dbusWriter
			if answered.writeUint32(0); dismissed {
				answered.data[0] = 1
			}
			answered.writeSignature("s")
			answered.writeString("")
			signal := methodCall{serviceName, "/prompt", promptInterface, "Completed", "bv"}.
				encode(7, func(w *dbusWriter) { w.data = answered.data })
			signal[1] = messageTypeSignal
			_, _ = conn.Write(signal)
		case "SearchItems":
			signature = "ao"
			body.writeArray(4, func() { body.writeString("/item") })
		case "GetSecret":
			signature = "(oayays)"
			body.writeString("/session")
			body.writeBytes("")
			body.writeBytes("hidden")
			body.writeString("text/plain")
		case "CreateItem":
			kind, signature = messageTypeError, "s"
			body.writeString("the disk is full")
		}
		_, _ = conn.Write(reply(kind, serial, signature, body.data))
	}
}

// reply encodes a reply to the call of this number.
func reply(kind byte, serial uint32, signature string, body []byte) []byte {
	w := dbusWriter{data: []byte{'l', kind, 0, 1}}
	w.writeUint32(uint32(len(body)))
	w.writeUint32(serial)
	w.writeArray(8, func() {
		w.data = append(w.data, fieldReplySerial)
		w.writeSignature("u")
		w.writeUint32(serial)
		w.padTo(8)
		w.data = append(w.data, fieldSignature)
		w.writeSignature("g")
		w.writeSignature(signature)
	})
	w.padTo(8)
	return append(w.data, body...)
}

// TestLocked: a locked keyring asks its user; the bus is found among several addresses; what fails says why.
func TestLocked(t *testing.T) { // not parallel: the address is in the environment
	serve(t, false, false)
	if secret, found, err := Get(t.Context(), "service", "user"); secret != "hidden" || !found || err != nil {
		t.Errorf("Get: %q, %v, %v", secret, found, err)
	}
	if err := Set(t.Context(), "service", "user", "x"); err == nil || err.Error() != "the disk is full" {
		t.Errorf("Set: %v", err)
	}
}

// TestKDE: the keyring of KDE answers OpenSession with a byte array where GNOME's has a string.
func TestKDE(t *testing.T) { // not parallel: the address is in the environment
	serve(t, false, true)
	if secret, found, err := Get(t.Context(), "service", "user"); secret != "hidden" || !found || err != nil {
		t.Errorf("Get: %q, %v, %v", secret, found, err)
	}
}

func TestDismissed(t *testing.T) {
	serve(t, true, false)
	if _, found, err := Get(t.Context(), "service", "user"); found || err == nil || !strings.Contains(err.Error(), "dismissed") {
		t.Errorf("Get: %v, %v", found, err)
	}
}

// FuzzReadMessage: no message makes the bridge fail or take more memory than the limit.
func FuzzReadMessage(f *testing.F) {
	f.Add(methodCall{busName, busPath, busName, "Hello", "s"}.encode(1, func(w *dbusWriter) { w.writeString("x") }))
	f.Add(reply(messageTypeReply, 1, "ao", []byte{8, 0, 0, 0, 1, 0, 0, 0, '/', 0, 0, 0}))
	f.Add(reply(messageTypeError, 1, "s", []byte{255, 255, 255, 255}))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := readMessage(bytes.NewReader(text))
		if err != nil {
			return
		}
		_ = m.asError().Error()
		r, _ := m.bodyReader("")
		for r.err == nil {
			before := r.pos
			_, _, _ = r.readStrings(), r.readSignature(), r.readBytes()
			if r.pos <= before && r.err == nil {
				t.Fatal("nothing was read")
			}
		}
	})
}

// hangs is a bus that lets everybody in, and answers no call, or none after the question to the user.
func hangs(t *testing.T, asks bool) {
	path := filepath.Join(t.TempDir(), "bus")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+path)
	listen(t, path, func(conn net.Conn) {
		in := bufio.NewReader(conn)
		_, _ = in.ReadString('\n')
		_, _ = io.WriteString(conn, "OK 12\r\n")
		_, _ = in.ReadString('\n')
		for serial := uint32(1); ; serial++ {
			m, err := readMessage(in)
			if err != nil {
				return // it was given up
			}
			var body dbusWriter
			signature := map[string]string{"Hello": "s", "Get": "v", "Unlock": "aoo", "AddMatch": "", "Prompt": ""}[m.member]
			switch m.member {
			case "Hello":
				body.writeString(":1.1")
			case "Get":
				body.writeSignature("ao")
				body.writeArray(4, func() {})
			case "Unlock":
				body.writeArray(4, func() {})
				body.writeString("/prompt")
			}
			if asks {
				_, _ = conn.Write(reply(messageTypeReply, serial, signature, body.data))
			}
		}
	})
}

// TestHangs: a bus or a keyring that does not answer is given up after a while; a person has as long as the ctx.
func TestHangs(t *testing.T) { // not parallel: the address is in the environment
	before := callTimeout
	callTimeout = 50 * time.Millisecond
	t.Cleanup(func() { callTimeout = before })
	t.Run("no answer", func(t *testing.T) {
		hangs(t, false)
		_, _, err := Get(t.Context(), "service", "user")
		if err == nil || !strings.Contains(err.Error(), "no answer within 50ms") {
			t.Errorf("Get: %v", err)
		}
		if err := Set(t.Context(), "service", "user", "x"); err == nil || !strings.Contains(err.Error(), "no answer within 50ms") {
			t.Errorf("Set: %v", err)
		}
	})
	t.Run("a person", func(t *testing.T) {
		hangs(t, true)
		ctx, cancel := context.WithTimeout(t.Context(), 20*callTimeout)
		defer cancel()
		began := time.Now()
		if _, _, err := Get(ctx, "service", "user"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) < 10*callTimeout {
			t.Errorf("Get: %v after %v", err, time.Since(began))
		}
	})
}
