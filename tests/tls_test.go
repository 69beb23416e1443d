package tests

import (
	"crypto/tls"
	"errors"
	"fmt"
	bignum "math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// announced is how serve tells where it listens.
var announced = regexp.MustCompile(`listening: url=(\S+)\s`)

// startServe starts `mcp-bridge serve ARGS` and waits until it has announced n
// addresses, which it returns as they are.
func startServe(t testing.TB, env []string, n int, args ...string) (*proc, []string) {
	t.Helper()
	p := start(t, env, append([]string{bridgeBin, "serve"}, args...)...)
	return p, p.addresses(n)
}

func (p *proc) addresses(n int) []string {
	p.t.Helper()
	p.waitLog(regexp.MustCompile(fmt.Sprintf(`(?s)(listening: url=\S+\s.*?){%d}`, n)))
	var urls []string
	for _, m := range announced.FindAllStringSubmatch(p.Log(), -1) {
		urls = append(urls, m[1])
	}
	return urls
}

// socketDir is a folder whose path is short enough for a socket.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mcp-")
	bridgetest.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// tlsSite is the site of a serve with TLS, for a client with that configuration.
func tlsSite(t testing.TB, url string, config *tls.Config) *site {
	t.Helper()
	if !strings.HasPrefix(url, "https://") {
		t.Fatalf("serve listens at %s, want https", url)
	}
	return &site{base: strings.TrimSuffix(url, "/mcp"), client: newClient(t, &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true})}
}

// serial returns the serial number of the certificate that a new connection sees.
func serial(t testing.TB, url string, config *tls.Config) *bignum.Int {
	t.Helper()
	host := strings.TrimSuffix(strings.TrimPrefix(url, "https://"), "/mcp")
	conn, err := tls.Dial("tcp", host, config)
	bridgetest.Must(t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber
}

// TestServeTLS: every transport over TLS, Streamable HTTP and HTTP+SSE over
// HTTP/2 for who can do that, without anything being held back. What is no TLS
// is refused.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newCA(t, "ca")
	ca.issue(t, dir, "server")
	cert, key := filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
	_, urls := startServe(t, nil, 1, "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--", childBin)
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := tlsSite(t, urls[0], ca.client())
			if transport == "ws" {
				s.client = newClient(t, &http.Transport{TLSClientConfig: ca.client()})
			}
			checkUnbuffered(t, s, transport)
		})
	}
	s := tlsSite(t, urls[0], ca.client())
	resp, err := s.request(t.Context(), http.MethodPost, "/mcp", initialize("2025-11-25"), nil)
	bridgetest.Must(t, err)
	resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
		t.Errorf("initialize: status %d over %s, want 200 over HTTP/2", resp.StatusCode, resp.Proto)
	}
	plain := newSite(t, strings.Replace(s.base, "https:", "http:", 1)).ask(t, http.MethodPost, "/mcp", initialize("2025-11-25"), nil)
	if plain.status != http.StatusBadRequest {
		t.Errorf("without TLS: %v, want 400", plain)
	}
	if _, err := tls.Dial("tcp", strings.TrimPrefix(s.base, "https://"), &tls.Config{RootCAs: ca.client().RootCAs, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is accepted")
	}
}

// TestServeTLSReload: a certificate that takes the place of another is seen by
// the next handshake; one that cannot be used changes nothing and is named; a
// session from before goes on.
func TestServeTLSReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newCA(t, "ca")
	first := ca.issue(t, dir, "server")
	cert, key := filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
	p, urls := startServe(t, nil, 1, "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--", childBin)
	see := func() *bignum.Int { return serial(t, urls[0], ca.client()) }
	if got := see(); got.Cmp(first) != 0 {
		t.Fatalf("the certificate has the serial number %v, want %v", got, first)
	}
	c := tlsSite(t, urls[0], ca.client()).mustOpen(t, "mcp")
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	mustAnswer(t, c, ping)

	second := ca.issue(t, dir, "server")
	harness.WaitUntil(t, "the second certificate", func() bool { return see().Cmp(second) == 0 })
	mustAnswer(t, c, ping)

	replaceFile(t, cert, "this is no certificate")
	p.waitLog(regexp.MustCompile(`(?i)\[(ERROR|WARN)\].*` + regexp.QuoteMeta(cert)))
	if got := see(); got.Cmp(second) != 0 {
		t.Errorf("after a broken file the certificate has the serial number %v, want %v as before", got, second)
	}
	third := ca.issue(t, dir, "server")
	harness.WaitUntil(t, "the third certificate", func() bool { return see().Cmp(third) == 0 })
	mustAnswer(t, c, ping)
}

// TestServeMutualTLS: LI25. Who has no certificate of the right authority does
// not get as far as HTTP, and the name in the certificate is whose session it
// is: for others it does not exist.
func TestServeMutualTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, clients, strangers := newCA(t, "ca"), newCA(t, "clients"), newCA(t, "strangers")
	ca.issue(t, dir, "server")
	for _, name := range []string{"ann", "bob"} {
		clients.issue(t, dir, name)
	}
	strangers.issue(t, dir, "eve")
	_, urls := startServe(t, nil, 1, "--listen", "0.0.0.0:0", "--tls-cert", filepath.Join(dir, "server.pem"), "--tls-key", filepath.Join(dir, "server.key"),
		"--tls-client-ca", clients.write(t, dir), "--", childBin)
	at := strings.Replace(urls[0], "0.0.0.0", "127.0.0.1", 1)
	at = strings.Replace(at, "[::]", "127.0.0.1", 1)
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			as := func(name string) *site {
				config := ca.clientAs(t, dir, name)
				return &site{base: strings.TrimSuffix(at, "/mcp"), client: newClient(t, &http.Transport{TLSClientConfig: config})}
			}
			c := as("ann").mustOpen(t, transport)
			mustAnswer(t, c, ping)
			_, err := as("eve").open(t.Context(), transport)
			if _, ok := errors.AsType[*refusal](err); err == nil || ok {
				t.Errorf("a client of another authority: %v, want the handshake to fail", err)
			}
			none := &site{base: as("ann").base, client: newClient(t, &http.Transport{TLSClientConfig: ca.client()})}
			_, err = none.open(t.Context(), transport)
			if _, ok := errors.AsType[*refusal](err); err == nil || ok {
				t.Errorf("a client without a certificate: %v, want the handshake to fail", err)
			}
			var resp *refusal
			switch c := c.(type) {
			case *httpTalker:
				resp = as("bob").ask(t, http.MethodPost, "/mcp", ping, c.headers())
			case *sseTalker:
				resp = as("bob").ask(t, http.MethodPost, c.post, ping, nil)
			default:
				return
			}
			if resp.status != http.StatusNotFound {
				t.Errorf("ann's session, used by bob: %v, want 404", resp)
			}
		})
	}
}

// TestServeTLSMissing: a certificate that cannot be read is an error at start.
func TestServeTLSMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newCA(t, "ca")
	ca.issue(t, dir, "one")
	ca.issue(t, dir, "two")
	for name, c := range map[string]struct{ cert, key, want string }{
		"missing":     {"none.pem", "one.key", "none.pem"},
		"not a pair":  {"one.pem", "two.key", "one.pem"},
		"key missing": {"one.pem", "none.key", "none.key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0",
				"--tls-cert", filepath.Join(dir, c.cert), "--tls-key", filepath.Join(dir, c.key), "--", childBin)
			if code := p.wait(); code <= 0 {
				t.Errorf("exit status %d, want a positive one", code)
			}
			if !strings.Contains(p.Log(), c.want) {
				t.Errorf("stderr does not name %s", c.want)
			}
		})
	}
}

// TestConnectTrust: a server whose certificate nobody trusts is not spoken to;
// the answer says which flag changes that, and the flag does.
func TestConnectTrust(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newCA(t, "ca")
	ca.issue(t, dir, "server")
	_, urls := startServe(t, nil, 1, "--listen", "127.0.0.1:0", "--tls-cert", filepath.Join(dir, "server.pem"), "--tls-key", filepath.Join(dir, "server.key"), "--", childBin)
	p := start(t, nil, bridgeBin, "connect", urls[0])
	p.send(initialize("2025-11-25"))
	if _, _, text := errorOf(t, p.line()); !strings.Contains(text, "--ca-file") {
		t.Errorf("the error does not say what to do: %s", text)
	}
	start(t, nil, bridgeBin, "connect", "--ca-file", ca.write(t, dir), urls[0]).handshake("2025-11-25")
}
