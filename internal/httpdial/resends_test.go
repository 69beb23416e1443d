package httpdial

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// An http2Server is asked over HTTP/2, and answers the first refusals requests with a reset of this code. It
// ends each connection after that.
type http2Server struct {
	url      string
	roots    *x509.CertPool
	code     uint32
	refusals int32
	requests atomic.Int32
}

func newHTTP2Server(t *testing.T, code uint32, refusals int32) *http2Server {
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	s := &http2Server{roots: x509.NewCertPool(), code: code, refusals: refusals}
	s.roots.AddCert(certified.Certificate())
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	s.url = "https://" + l.Addr().String()
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serve(c) })
		}
	})
	return s
}

// Types of frames (RFC 9113, 6), and the static table's ":status: 200" (RFC 7541).
const (
	frameHeaders = 1
	frameReset   = 3
	frameSetting = 4
	frameGoAway  = 7
	status200    = "\x88"
)

func (s *http2Server) serve(c net.Conn) {
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	frame := func(kind, flags byte, stream uint32, payload string) string {
		head := []byte{0, 0, byte(len(payload)), kind, flags}
		return string(binary.BigEndian.AppendUint32(head, stream)) + payload
	}
	number := func(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }
	_, _ = io.WriteString(c, frame(frameSetting, 0, 0, ""))
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		size := int64(binary.BigEndian.Uint32(append([]byte{0}, head[:3]...)))
		if _, err := io.CopyN(io.Discard, c, size); err != nil {
			return
		}
		if head[3] != frameHeaders {
			continue
		}
		stream := binary.BigEndian.Uint32(head[5:])
		if s.requests.Add(1) > s.refusals {
			_, _ = io.WriteString(c, frame(frameHeaders, 5, stream, status200)) // both ends: of the headers, of the stream
			continue
		}
		// No request after this one: the next needs another connection.
		_, _ = io.WriteString(c, frame(frameGoAway, 0, 0, number(stream)+number(0))+frame(frameReset, 0, stream, number(s.code)))
	}
}

// A server that resets an HTTP/2 request on each connection is asked twice, and then the request
// has failed: net/http itself would go on for ever.
func TestRefusedOnEachConnection(t *testing.T) {
	const protocolError, refusedStream = 1, 7
	for name, c := range map[string]struct {
		method   string
		code     uint32
		refusals int32
		want     int32
		fails    bool
	}{
		"PROTOCOL_ERROR for ever":         {"POST", protocolError, 100, 2, true},
		"REFUSED_STREAM for ever":         {"POST", refusedStream, 100, 2, true},
		"REFUSED_STREAM for ever, to GET": {"GET", refusedStream, 100, 2, true},
		"REFUSED_STREAM once":             {"POST", refusedStream, 1, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHTTP2Server(t, c.code, c.refusals)
			target, err := NewTarget(s.url, TargetOptions{Schemes: []string{"https"}, TLS: &tls.Config{RootCAs: s.roots}})
			if err != nil {
				t.Fatal(err)
			}
			defer target.Close()
			req := target.NewRequest(t.Context(), c.method)
			if c.method == http.MethodPost {
				SetBody(req, []byte("{}"))
			}
			resp, fault := target.Do(req)
			switch {
			case fault == nil:
				resp.Body.Close()
				if c.fails {
					t.Errorf("answered %v", resp.Status)
				}
			case !c.fails:
				t.Error(fault)
			case fault.Reason != ReasonConnectionLost || !strings.Contains(fault.Text, "has refused the request"):
				t.Errorf("failed with %q: %s", fault.Reason, fault.Text)
			}
			if n := s.requests.Load(); n != c.want {
				t.Errorf("asked %d times, want %d", n, c.want)
			}
		})
	}
}
