package tests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	bignum "math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

var loopback = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}

// An authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64 // serial number
}

func newCA(t testing.TB, name string) *authority {
	t.Helper()
	ca := &authority{next: 1}
	ca.cert, ca.key = ca.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return ca
}

// sign makes a key and its certificate; the first one signs itself.
func (ca *authority) sign(t testing.TB, cert *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	bridgetest.Must(t, err)
	cert.SerialNumber = bignum.NewInt(ca.next)
	ca.next++
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	bridgetest.Must(t, err)
	cert, err = x509.ParseCertificate(der)
	bridgetest.Must(t, err)
	return cert, key
}

// issue writes NAME.pem and NAME.key for somebody of that name: a server of
// these hosts, 127.0.0.1 among them, or a client. They replace what was there
// at once each, as certificate managers do it. It returns the serial number.
func (ca *authority) issue(t testing.TB, dir, name string, hosts ...string) *bignum.Int {
	t.Helper()
	cert, key := ca.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: hosts, IPAddresses: loopback,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	bridgetest.Must(t, err)
	replaceFile(t, filepath.Join(dir, name+".key"), pemText("PRIVATE KEY", der))
	replaceFile(t, filepath.Join(dir, name+".pem"), pemText("CERTIFICATE", cert.Raw))
	return cert.SerialNumber
}

// write writes the authority's own certificate and returns the file.
func (ca *authority) write(t testing.TB, dir string) string {
	t.Helper()
	file := filepath.Join(dir, ca.cert.Subject.CommonName+".pem")
	replaceFile(t, file, pemText("CERTIFICATE", ca.cert.Raw))
	return file
}

// client is the TLS configuration of a client that trusts the authority.
func (ca *authority) client() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return &tls.Config{RootCAs: pool}
}

// clientAs is client for one with a certificate that was issued.
func (ca *authority) clientAs(t testing.TB, dir, name string) *tls.Config {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"))
	bridgetest.Must(t, err)
	config := ca.client()
	// Whatever authorities the server names.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	return config
}

func pemText(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// replaceFile puts a file in the place of another at one stroke.
func replaceFile(t testing.TB, path, text string) {
	t.Helper()
	writeFile(t, path+".new", text)
	bridgetest.Must(t, os.Rename(path+".new", path))
}
