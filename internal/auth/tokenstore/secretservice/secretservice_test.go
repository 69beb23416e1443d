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
		kind, signature := byte(typeReply), ""
		var body writer
		switch m.member {
		case "Hello":
			signature = "s"
			body.string(":1.1")
		case "OpenSession":
			signature = "vo"
			if kde {
				body.signature("ay")
				body.bytes("")
			} else {
				body.signature("s")
				body.string("")
			}
			body.string("/session")
		case "Get":
			signature = "v"
			body.signature("ao")
			body.array(4, func() { body.string("/other") })
		case "Unlock":
			signature = "aoo"
			body.array(4, func() {})
			body.string("/prompt")
		case "Prompt": // the answer is there before the reply, as it may be
			var answered writer
			if answered.uint32(0); dismissed {
				answered.b[0] = 1
			}
			answered.signature("s")
			answered.string("")
			signal := call{serviceName, "/prompt", promptInterface, "Completed", "bv"}.
				encode(7, func(w *writer) { w.b = answered.b })
			signal[1] = typeSignal
			_, _ = conn.Write(signal)
		case "SearchItems":
			signature = "ao"
			body.array(4, func() { body.string("/item") })
		case "GetSecret":
			signature = "(oayays)"
			body.string("/session")
			body.bytes("")
			body.bytes("hidden")
			body.string("text/plain")
		case "CreateItem":
			kind, signature = typeError, "s"
			body.string("the disk is full")
		}
		_, _ = conn.Write(reply(kind, serial, signature, body.b))
	}
}

// reply encodes a reply to the call of this number.
func reply(kind byte, serial uint32, signature string, body []byte) []byte {
	w := writer{b: []byte{'l', kind, 0, 1}}
	w.uint32(uint32(len(body)))
	w.uint32(serial)
	w.array(8, func() {
		w.b = append(w.b, fieldReplySerial)
		w.signature("u")
		w.uint32(serial)
		w.align(8)
		w.b = append(w.b, fieldSignature)
		w.signature("g")
		w.signature(signature)
	})
	w.align(8)
	return append(w.b, body...)
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
	f.Add(call{busName, busPath, busName, "Hello", "s"}.encode(1, func(w *writer) { w.string("x") }))
	f.Add(reply(typeReply, 1, "ao", []byte{8, 0, 0, 0, 1, 0, 0, 0, '/', 0, 0, 0}))
	f.Add(reply(typeError, 1, "s", []byte{255, 255, 255, 255}))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := readMessage(bytes.NewReader(text))
		if err != nil {
			return
		}
		_ = m.asError().Error()
		r, _ := m.read("")
		for r.err == nil {
			before := r.pos
			_, _, _ = r.strings(), r.signature(), r.bytes()
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
			var body writer
			signature := map[string]string{"Hello": "s", "Get": "v", "Unlock": "aoo", "AddMatch": "", "Prompt": ""}[m.member]
			switch m.member {
			case "Hello":
				body.string(":1.1")
			case "Get":
				body.signature("ao")
				body.array(4, func() {})
			case "Unlock":
				body.array(4, func() {})
				body.string("/prompt")
			}
			if asks {
				_, _ = conn.Write(reply(typeReply, serial, signature, body.b))
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
