package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/watch"
)

// certificates are the TLS settings that the listeners of one Open share. Their files are
// watched until the last of these listeners is closed.
type certificates struct {
	certFile string       // Options.CertFile
	keyFile  string       // Options.KeyFile
	caFile   string       // Options.ClientCAFile
	log      hclog.Logger // Options.Logger

	current atomic.Pointer[tls.Config] // what was loaded last; new connections use it

	loadMu        sync.Mutex         // held during load, so that two loads do not overlap
	listenerCount atomic.Int64       // how many listeners with TLS are open
	cancel        context.CancelFunc // ends the watch over the files; nil: there is none
	wg            sync.WaitGroup     // waits for the goroutine of the watch over the files
}

// loadCertificates loads the files that o names: the certificate, its key, and the authorities of the clients' certificates, if
// there are any. It is an error if the certificate or the key is not named.
func loadCertificates(o Options) (*certificates, error) {
	switch {
	case o.CertFile == "" && o.KeyFile == "":
		return nil, optionf("a client's certificate can be checked over TLS only: give --tls-cert and --tls-key with --tls-client-ca")
	case o.CertFile == "":
		return nil, optionf("the certificate to the TLS key is missing: give --tls-cert")
	case o.KeyFile == "":
		return nil, optionf("the key to the TLS certificate is missing: give --tls-key")
	}
	c := &certificates{certFile: o.CertFile, keyFile: o.KeyFile, caFile: o.ClientCAFile, log: o.Logger}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// load reads the files, makes new connections use what they hold, and returns the certificate. It returns errUnchanged if they hold what
// is in use already. After any other error, the old certificate stays in use.
func (c *certificates) load() (*x509.Certificate, error) {
	c.loadMu.Lock()
	defer c.loadMu.Unlock()
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return nil, fmt.Errorf("loading the TLS certificate %s with the key %s: %w", c.certFile, c.keyFile, err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if c.caFile != "" {
		if config.ClientCAs, err = loadCertPool(c.caFile); err != nil {
			return nil, fmt.Errorf("loading the authorities of TLS clients: %w", err)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		// With a session ticket a client could come back after its authority was removed.
		config.SessionTicketsDisabled = true
	}
	if old := c.current.Load(); old != nil && sameCertificates(old, config) {
		return pair.Leaf, errUnchanged
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		c.log.Warn("the TLS certificate is not valid at this time: clients will refuse it",
			"file", c.certFile, "from", pair.Leaf.NotBefore, "to", pair.Leaf.NotAfter)
	}
	c.current.Store(config)
	return pair.Leaf, nil
}

// errUnchanged says that the certificates in the files are already in use.
var errUnchanged = errors.New("unchanged")

// sameCertificates reports whether two configurations have the same certificate chain and the same authorities of clients.
func sameCertificates(a, b *tls.Config) bool {
	chain, other := a.Certificates[0].Certificate, b.Certificates[0].Certificate
	if len(chain) != len(other) || !a.ClientCAs.Equal(b.ClientCAs) {
		return false
	}
	for i := range chain {
		if string(chain[i]) != string(other[i]) {
			return false
		}
	}
	return true // equal certificates have equal keys
}

// loadCertPool reads a PEM file of certificates. It is an error if there is none in it.
func loadCertPool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate that can be read", file)
	}
	return pool, nil
}

// reload loads the files again, makes new connections use what they hold, and logs that, unless nothing has changed. After an error the old
// certificate stays in use.
func (c *certificates) reload() error {
	leaf, err := c.load()
	switch {
	case errors.Is(err, errUnchanged):
		return nil
	case err != nil:
		return err
	}
	c.log.Info("TLS certificate loaded anew", "file", c.certFile, "expires", leaf.NotAfter)
	return nil
}

// addListener makes l speak TLS with these certificates. releaseListener must be called when l is closed.
func (c *certificates) addListener(l *Listener) {
	l.certs = c
	l.Listener = tls.NewListener(l.Listener, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
	})
	c.listenerCount.Add(1)
}

// watch starts a goroutine that loads the files again when they change, until the last listener is released. If there is no listener, it
// only logs a warning.
func (c *certificates) watch() {
	if c.listenerCount.Load() == 0 {
		c.log.Warn("TLS is for TCP addresses only, and there is none", "file", c.certFile)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	files := []string{c.certFile, c.keyFile}
	if c.caFile != "" {
		files = append(files, c.caFile)
	}
	changed := func() {
		if err := c.reload(); err != nil {
			c.log.Error("the old TLS certificate stays in use", "error", err)
		}
	}
	asked := 0
	c.wg.Go(func() {
		watch.Files(ctx, func() []string {
			// A change after the first load and before the watch began is no event for
			// the watch. Its second call of this function shows that it has begun, so
			// load once more.
			if asked++; asked == 2 {
				changed()
			}
			return files
		}, changed)
	})
}

// releaseListener says that a listener is closed. With the last one it ends the watch over the files, and waits for its goroutine. It
// does nothing for a nil c.
func (c *certificates) releaseListener() {
	if c == nil || c.listenerCount.Add(-1) > 0 {
		return
	}
	if c.cancel != nil { // nil if Open has failed before watch
		c.cancel()
		c.wg.Wait()
	}
}
