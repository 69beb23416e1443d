package remote

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// An issuer signs certificates.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// sign makes a certificate for name; by is nil for one that signs itself.
func sign(t *testing.T, by *issuer, name string, change func(*x509.Certificate)) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	if change != nil {
		change(c)
	}
	if by == nil {
		by = &issuer{c, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return &issuer{c, key}
}

func authority(c *x509.Certificate) { c.IsCA = true }

func local(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} }

// overTLS is the bridge with a chain of certificates, the server's own first. Clients trust
// root; nil: the system's authorities.
func overTLS(t *testing.T, root *issuer, chain ...*issuer) (*httptest.Server, site) {
	t.Helper()
	srv := httptest.NewUnstartedServer(newBridge(t, access.Policy{}))
	cert := tls.Certificate{PrivateKey: chain[0].key}
	for _, c := range chain {
		cert.Certificate = append(cert.Certificate, c.cert.Raw)
	}
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	srv.Config.ErrorLog = quiet
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	s := site{url: srv.URL + "/mcp"}
	if root != nil {
		s.opts.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		s.opts.TLS.RootCAs.AddCert(root.cert)
	}
	return srv, s
}

// TestTLS: H2, for each thing that can be wrong with certificates.
func TestTLS(t *testing.T) {
	root := sign(t, nil, "root", authority)
	var fetched *issuer // the intermediate that the server's certificate says where to fetch
	aia := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(fetched.cert.Raw) }))
	middle := sign(t, root, "middle", authority)
	fetched = middle
	for _, c := range []struct {
		name, says string
		root       *issuer
		chain      []*issuer
	}{
		{"", "", root, []*issuer{sign(t, root, "server", local)}},
		{"", "", root, []*issuer{sign(t, middle, "server", local), middle}},
		{"expired", "is valid from", root, []*issuer{sign(t, root, "server", func(c *x509.Certificate) { local(c); c.NotAfter = time.Now().Add(-time.Minute) })}},
		{"not yet valid", "is valid from", root, []*issuer{sign(t, root, "server", func(c *x509.Certificate) { local(c); c.NotBefore = time.Now().Add(time.Minute) })}},
		{"another name", "example.org, not for 127.0.0.1", root, []*issuer{sign(t, root, "server", func(c *x509.Certificate) { c.DNSNames = []string{"example.org"} })}},
		{"self-signed", "self-signed", root, []*issuer{sign(t, nil, "server", local)}},
		{"unknown authority", "unknown authority", sign(t, nil, "other", authority), []*issuer{sign(t, root, "server", local), root}},
		{"incomplete", "does not send an intermediate", root, []*issuer{sign(t, middle, "server", func(c *x509.Certificate) { local(c); c.IssuingCertificateURL = []string{aia.URL} })}},
		{"incomplete, and nowhere to fetch", "full chain", root, []*issuer{sign(t, middle, "server", local)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, s := overTLS(t, c.root, c.chain...)
			if c.says == "" {
				wantHealthy(t, s)
				return
			}
			wantFinding(t, s, "H2", doctor.Error, c.says)
		})
	}
}

// TestClock: a certificate that looks expired because our clock is wrong.
func TestClock(t *testing.T) {
	t.Parallel()
	root := sign(t, nil, "root", authority)
	_, s := overTLS(t, root, sign(t, root, "server", local))
	s.opts.TLS.Time = func() time.Time { return time.Now().Add(-48 * time.Hour) }
	wantFinding(t, s, "H2", doctor.Error, "the server's clock says")
}

// TestClientCertificate: H2, where the server wants one and none or the wrong one is given.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	root := sign(t, nil, "root", authority)
	srv := httptest.NewUnstartedServer(newBridge(t, access.Policy{}))
	own := sign(t, root, "server", local)
	pool := x509.NewCertPool()
	pool.AddCert(root.cert)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{own.cert.Raw}, PrivateKey: own.key}}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	srv.Config.ErrorLog = quiet
	srv.StartTLS()
	t.Cleanup(srv.Close)
	as := func(c *issuer) site {
		s := site{url: srv.URL + "/mcp", opts: Options{TLS: &tls.Config{RootCAs: pool}}}
		if c != nil {
			cert := tls.Certificate{Certificate: [][]byte{c.cert.Raw}, PrivateKey: c.key}
			s.opts.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
			s.opts.TLS.Certificates = []tls.Certificate{cert}
		}
		return s
	}
	wantFinding(t, as(nil), "H2", doctor.Error, "wants a client certificate")
	wantFinding(t, as(sign(t, nil, "stranger", nil)), "H2", doctor.Error, "refuses the client certificate")
	wantHealthy(t, as(sign(t, root, "client", nil)))
}
