package httpdial

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// Faults of the network are told apart, and their texts show no secret.
func TestNetFault(t *testing.T) {
	u, err := ParseURL("http://x/secret?token=secret", "http")
	bridgetest.Must(t, err)
	peer := NewPeer(u, nil, nil)
	for _, f := range []struct {
		err    error
		reason string
	}{
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}}, ReasonUnreachable},
		{&net.OpError{Op: "dial", Err: timeoutError{}}, ReasonTimeout},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}, ReasonUnreachable},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, ReasonConnectionLost},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, ReasonTLS},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: internal error")}, ReasonConnectionLost}, // the request may have been carried out
		{io.ErrUnexpectedEOF, ReasonConnectionLost},
		{errors.New(`invalid proxy address "http://user:secret@proxy:x": invalid port`), ReasonConnectionLost},
		{errors.New(`invalid proxy address "user:secret@proxy"`), ReasonConnectionLost},
		{&url.Error{Op: "Post", URL: "http://x/secret", Err: io.EOF}, ReasonConnectionLost},
	} {
		if got := peer.NetFault(f.err); got.Reason != f.reason || !strings.Contains(got.Text, "http://x") {
			t.Errorf("%v: %+v, want %s", f.err, got, f.reason)
		} else if strings.Contains(got.Text, "secret") {
			t.Errorf("the error shows a secret: %s", got.Text)
		}
	}
}

// That we have no file descriptors left is nothing that a look at the server helps against.
func TestNetFaultWithoutFiles(t *testing.T) {
	peer := NewPeer(&url.URL{Scheme: "http", Host: "x"}, nil, nil)
	f := peer.NetFault(&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)})
	if !strings.Contains(f.Text, "ulimit -n") || strings.Contains(f.Text, "is the server running") || !f.Transient {
		t.Errorf("%+v", f)
	}
}

// A server that has answered before speaks HTTP: what is malformed then is half of an answer.
func TestNetFaultInTheHead(t *testing.T) {
	u := &url.URL{Scheme: "http", Host: "x"}
	peer := NewPeer(u, nil, nil)
	malformed := errors.New(`net/http: HTTP/1.x transport connection broken: malformed MIME header: missing colon: "Content-Ty"`)
	if f := peer.NetFault(malformed); f.Reason != ReasonNotMCP || f.Transient {
		t.Errorf("at first: %+v", f)
	}
	answers := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})
	if _, f := peer.Do(answers, &http.Request{URL: u}); f != nil {
		t.Fatal(f)
	}
	for _, p := range []*Peer{peer, peer.AtURL(&url.URL{Scheme: "http", Host: "x", Path: "/message"}, nil)} {
		if f := p.NetFault(malformed); f.Reason != ReasonConnectionLost || !f.Transient || strings.Contains(f.Text, "Content") {
			t.Errorf("after an answer: %+v", f)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A flag helps where the authority is unknown, not where the certificate is wrong.
func TestNetFaultTrust(t *testing.T) {
	peer := NewPeer(&url.URL{Scheme: "https", Host: "x"}, nil, nil)
	for _, c := range []struct {
		err   error
		helps bool
	}{
		{x509.UnknownAuthorityError{}, true},
		{x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}, false},
	} {
		got := peer.NetFault(&tls.CertificateVerificationError{Err: c.err})
		if got.Reason != ReasonTLS || strings.Contains(got.Text, "--ca-file") != c.helps {
			t.Errorf("%T: %s: %s", c.err, got.Reason, got.Text)
		}
	}
}

// One sentence says who has issued the certificate, and what to give; Go's guess at the cause is left out.
func TestNetFaultUntrusted(t *testing.T) {
	other := &x509.Certificate{RawIssuer: []byte("a"), RawSubject: []byte("b"), Issuer: pkix.Name{CommonName: "My CA\n"}}
	own := &x509.Certificate{RawIssuer: []byte("a"), RawSubject: []byte("a")}
	for want, cert := range map[string]*x509.Certificate{
		`its certificate was issued by "My CA\n", which is not trusted here; if it is the right server, give the certificate of that authority with --ca-file FILE`: other,
		`its certificate is self-signed; if it is the right server, give that certificate with --ca-file FILE`:                                                      own,
	} {
		got := NewPeer(&url.URL{Scheme: "https", Host: "x"}, nil, nil).NetFault(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{Cert: cert}})
		if got.Text != "no secure connection to https://x: "+want {
			t.Error(got.Text)
		}
	}
}

// Who has not given a certificate to a server that asks for one learns the flag.
func TestNetFaultCertificateRequired(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS13}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	bridgetest.Must(t, err)
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1)) // TLS 1.3: the alert comes after the handshake
	got := NewPeer(&url.URL{Scheme: "https", Host: "x"}, nil, nil).NetFault(err)
	if got.Reason != ReasonTLS || !strings.Contains(got.Text, "--client-cert") {
		t.Errorf("%v: %s: %s", err, got.Reason, got.Text)
	}
}

type timeoutError struct{}

func (timeoutError) Error() string { return "i/o timeout" }
func (timeoutError) Timeout() bool { return true }

// AppendSentence reads well whatever the text ends in.
func TestAppendSentence(t *testing.T) {
	for _, c := range []struct{ text, more, want string }{
		{"it is down", "it is tried again", "it is down; it is tried again"},
		{"is it down?", "it is tried again", "is it down? It is tried again"},
		{"is it down?", "é", "is it down? é"},
		{"is it down?", "", "is it down?"},
	} {
		if got := AppendSentence(c.text, c.more); got != c.want {
			t.Errorf("AppendSentence(%q, %q) = %q, want %q", c.text, c.more, got, c.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-1": 0, "x": 0,
		"Fri, 02 Jan 2026 03:04:15 GMT": 10 * time.Second,
		"Fri, 02 Jan 2026 03:04:00 GMT": 0,
		"99999999999999999999":          0,
		"9999999999":                    (1 << 31) * time.Second,
	} {
		if got := parseRetryAfter(text, now); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestSameOrigin(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"http://h/a", "http://h:80/b?c", true},
		{"https://H/a", "https://h:443/", true},
		{"http://[::1]/", "http://[::1]:80/", true},
		{"http://h/", "https://h/", false},
		{"http://h:81/", "http://h/", false},
		{"http://h/", "http://h.evil/", false},
		{"http://h/", "http://evil@h2/", false},
	} {
		a, _ := url.Parse(c.a)
		b, _ := url.Parse(c.b)
		if SameOrigin(a, b) != c.same {
			t.Errorf("SameOrigin(%s, %s) = %v", c.a, c.b, !c.same)
		}
	}
}

func TestBackoff(t *testing.T) {
	for n := range 100 {
		full := min(firstBackoff<<min(n, 20), maxBackoff)
		if d := Backoff(n); d > full || d < full/2 {
			t.Errorf("Backoff(%d) = %v, want %v to %v", n, d, full/2, full)
		}
	}
}
