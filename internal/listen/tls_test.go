package listen

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var serial int64

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	der, key := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, time.Hour)
	cert, err := x509.ParseCertificate(der)
	bridgetest.Must(t, err)
	return &authority{cert, key}
}

// sign makes a certificate; of an authority without one, for itself.
func (a *authority) sign(t *testing.T, template *x509.Certificate, valid time.Duration) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	bridgetest.Must(t, err)
	serial++
	template.SerialNumber = big.NewInt(serial)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(valid)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	bridgetest.Must(t, err)
	return der, key
}

// issue makes a certificate and its key, as PEM, for a server or client of the
// name, which shows in its subject.
func (a *authority) issue(t *testing.T, name string, valid time.Duration) (cert, key []byte) {
	t.Helper()
	der, k := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, valid)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	bridgetest.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) client(t *testing.T, name string) []tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(a.issue(t, name, time.Hour))
	bridgetest.Must(t, err)
	return []tls.Certificate{pair}
}

// replace puts a file in the place of another at once, as renewers do.
func replace(t *testing.T, file string, data []byte) {
	t.Helper()
	bridgetest.Must(t, os.WriteFile(file+".new", data, 0o600))
	bridgetest.Must(t, os.Rename(file+".new", file))
}

// pair puts a new certificate and key into the directory of o.
func pair(t *testing.T, o *Options, a *authority, name string) {
	t.Helper()
	cert, key := a.issue(t, name, time.Hour)
	replace(t, o.KeyFile, key)
	replace(t, o.CertFile, cert)
}

func tlsOptions(t *testing.T, a *authority) (o Options, j *journal) {
	t.Helper()
	dir := t.TempDir()
	j, log := newJournal()
	o = Options{
		Addrs: []string{"127.0.0.1:0"}, Logger: log,
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"),
	}
	pair(t, &o, a, "first")
	return o, j
}

// serve answers requests on ls with the protocol and the principal.
func serve(t *testing.T, ls Listeners) {
	t.Helper()
	guard := new(access.Policy)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r, no := guard.Enter(w, r)
			if no != nil {
				http.Error(w, no.Reason, no.Status)
				return
			}
			fmt.Fprintf(w, "%s %q", r.Proto, access.Principal(r))
		}),
		ErrorLog: log.New(io.Discard, "", 0),
	}
	var wg sync.WaitGroup
	for _, l := range ls {
		wg.Go(func() { _ = srv.Serve(l) })
	}
	t.Cleanup(func() {
		_ = srv.Close()
		wg.Wait()
	})
}

// get sends a request over a connection of its own, and returns the reply and
// the name of the server's certificate.
func get(l *Listener, config *tls.Config, http2 bool) (reply, name string, err error) {
	transport := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: http2}
	defer transport.CloseIdleConnections()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	resp, err := (&http.Client{Transport: transport}).Get("https://127.0.0.1:" + port)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), resp.TLS.PeerCertificates[0].Subject.CommonName, err
}

func wantServed(t *testing.T, l *Listener, config *tls.Config, name string) {
	t.Helper()
	if _, got, err := get(l, config, true); err != nil || got != name {
		t.Errorf("served with the certificate %q, %v; want %q", got, err, name)
	}
}

func TestTLS(t *testing.T) {
	a := newAuthority(t, "authority")
	o, j := tlsOptions(t, a)
	path := socketPath(t)
	o.Addrs = append(o.Addrs, "unix:"+path, "127.0.0.1:0")
	ls := mustOpen(t, o)
	serve(t, ls)
	config := &tls.Config{RootCAs: a.pool()}
	for _, l := range []*Listener{ls[0], ls[2]} {
		if !strings.HasPrefix(l.URL(), "https://127.0.0.1:") {
			t.Errorf("URL %s", l.URL())
		}
		for http2, want := range map[bool]string{true: `HTTP/2.0 ""`, false: `HTTP/1.1 ""`} {
			if reply, _, err := get(l, config, http2); err != nil || reply != want {
				t.Errorf("got %q, %v; want %q", reply, err, want)
			}
		}
	}
	if _, _, err := get(ls[0], &tls.Config{RootCAs: a.pool(), MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}, false); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	// The Unix socket speaks plainly.
	conn, err := net.Dial("unix", path)
	bridgetest.Must(t, err)
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
	if reply, err := io.ReadAll(conn); err != nil || !strings.Contains(string(reply), `HTTP/1.0 ""`) {
		t.Errorf("got %q, %v", reply, err)
	}
	if strings.Contains(j.String(), "[WARN]") {
		t.Errorf("log: %s", j)
	}

	// The watch over the files ends with the last listener, which waits for it.
	_ = ls[0].Close()
	if !watching() {
		t.Error("the files are not watched although a listener is open")
	}
	_ = ls.Close()
	if watching() {
		t.Error("the files are watched although all listeners are closed")
	}
}

func watching() bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "/watch.Files(")
}

// TestRotation: a renewed certificate is used without a restart, and a broken
// one is not.
func TestRotation(t *testing.T) {
	a := newAuthority(t, "authority")
	o, j := tlsOptions(t, a)
	ls := mustOpen(t, o)
	serve(t, ls)
	config := &tls.Config{RootCAs: a.pool()}
	wantServed(t, ls[0], config, "first")

	pair(t, &o, a, "second")
	j.await(t, "loaded anew")
	wantServed(t, ls[0], config, "second")

	good, err := os.ReadFile(o.CertFile)
	bridgetest.Must(t, err)
	cert, _ := a.issue(t, "of another key", time.Hour)
	replace(t, o.CertFile, cert)
	j.await(t, "the old TLS certificate stays in use")
	wantServed(t, ls[0], config, "second")
	if err := ls.Reload(); err == nil || !strings.Contains(err.Error(), o.CertFile) {
		t.Errorf("Reload: %v", err)
	}
	replace(t, o.CertFile, good)
	if err := ls.Reload(); err != nil {
		t.Errorf("Reload: %v", err)
	}
	wantServed(t, ls[0], config, "second")

	// Reload does not wait for a sign of the change.
	pair(t, &o, a, "third")
	if err := ls.Reload(); err != nil {
		t.Errorf("Reload: %v", err)
	}
	wantServed(t, ls[0], config, "third")
}

// TestRotationAtTheStart: nothing is missed between the first look and the watch.
func TestRotationAtTheStart(t *testing.T) {
	a := newAuthority(t, "authority")
	o, j := tlsOptions(t, a)
	certs, err := loadCertificates(o)
	bridgetest.Must(t, err)
	pair(t, &o, a, "second")
	l := &Listener{Listener: tcpSocket(t, "127.0.0.1:0")}
	certs.addListener(l)
	certs.watch()
	serve(t, Listeners{l})
	j.await(t, "loaded anew")
	wantServed(t, l, &tls.Config{RootCAs: a.pool()}, "second")
}

// TestRotationBySymlink is how Kubernetes renews what it mounts: the files are
// links into ..data, which is a link to a directory that is exchanged.
func TestRotationBySymlink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege there")
	}
	a := newAuthority(t, "authority")
	o, j := tlsOptions(t, a)
	dir := filepath.Dir(o.CertFile)
	version := func(name string) {
		versioned := Options{CertFile: filepath.Join(dir, name, "tls.crt"), KeyFile: filepath.Join(dir, name, "tls.key")}
		bridgetest.Must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		pair(t, &versioned, a, name)
		bridgetest.Must(t, os.Symlink(name, filepath.Join(dir, "..new")))
		bridgetest.Must(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
	}
	version("v1")
	for _, file := range []string{o.CertFile, o.KeyFile} {
		bridgetest.Must(t, os.Remove(file))
		bridgetest.Must(t, os.Symlink(filepath.Join("..data", filepath.Base(file)), file))
	}
	ls := mustOpen(t, o)
	serve(t, ls)
	config := &tls.Config{RootCAs: a.pool()}
	for _, name := range []string{"v2", "v3"} {
		version(name)
		j.await(t, "loaded anew")
		wantServed(t, ls[0], config, name)
	}
}

// TestClientCertificates: only clients of our authority, which may change.
func TestClientCertificates(t *testing.T) {
	a, clients, others := newAuthority(t, "authority"), newAuthority(t, "clients"), newAuthority(t, "others")
	o, j := tlsOptions(t, a)
	o.Addrs = []string{"0.0.0.0:0"} // whoever can connect is authenticated
	o.ClientCAFile = filepath.Join(filepath.Dir(o.CertFile), "ca.crt")
	replace(t, o.ClientCAFile, clients.pem())
	ls := mustOpen(t, o)
	serve(t, ls)
	sessions := tls.NewLRUClientSessionCache(10)
	config := func(certs []tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: a.pool(), Certificates: certs, ServerName: "127.0.0.1", ClientSessionCache: sessions}
	}
	alice, mallory := clients.client(t, "alice"), others.client(t, "mallory")
	check := func(who string, certs []tls.Certificate, want string) {
		t.Helper()
		reply, _, err := get(ls[0], config(certs), true)
		if want != "" && (err != nil || reply != want) || want == "" && err == nil {
			t.Errorf("%s: %q, %v; want %q", who, reply, err, want)
		}
	}
	check("nobody", nil, "")
	check("mallory", mallory, "")
	check("alice", alice, `HTTP/2.0 "cert:cn=alice"`)

	replace(t, o.ClientCAFile, []byte("no certificate"))
	j.await(t, "the old TLS certificate stays in use")
	check("alice", alice, `HTTP/2.0 "cert:cn=alice"`)

	// Who is no longer known cannot come back with a ticket from before.
	replace(t, o.ClientCAFile, others.pem())
	j.await(t, "loaded anew")
	check("alice, no longer known", alice, "")
	check("mallory, now known", mallory, `HTTP/2.0 "cert:cn=mallory"`)
}

func TestTLSOptions(t *testing.T) {
	a := newAuthority(t, "authority")
	o, j := tlsOptions(t, a)
	with := func(cert, key, ca string) Options {
		changed := o
		changed.CertFile, changed.KeyFile, changed.ClientCAFile = cert, key, ca
		return changed
	}
	missing := o.CertFile + ".no"
	fails(t, with(o.CertFile, "", ""), true, "--tls-key")
	fails(t, with("", o.KeyFile, ""), true, "--tls-cert")
	fails(t, with("", "", o.CertFile), true, "--tls-client-ca")
	fails(t, with(missing, o.KeyFile, ""), false, missing)
	fails(t, with(o.CertFile, o.CertFile, ""), false, "key")
	fails(t, with(o.CertFile, o.KeyFile, missing), false, missing)
	fails(t, with(o.CertFile, o.KeyFile, o.KeyFile), false, o.KeyFile+" holds no PEM certificate")

	only := o
	only.Addrs = []string{"unix:" + socketPath(t)}
	mustOpen(t, only)
	j.await(t, "TLS is for TCP addresses only")

	cert, key := a.issue(t, "old", -time.Minute)
	replace(t, o.KeyFile, append(key, cert...)) // both in one file
	mustOpen(t, with(o.KeyFile, o.KeyFile, ""))
	j.await(t, "not valid at this time")
}
