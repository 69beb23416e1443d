package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
)

// handshake makes a TLS connection over conn, without a request, and adds H2 or H3 for what is wrong with it; false: clients
// could not use it. The server's certificates are not checked if options.TLS says so (InsecureSkipVerify).
func (p connection) handshake(ctx context.Context, conn net.Conn) (*tls.ConnectionState, bool) {
	c := p.options.TLS.Clone()
	if c == nil {
		c = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	trusting := c.InsecureSkipVerify
	c.InsecureSkipVerify = true // the chain is looked at below
	if c.ServerName == "" {
		c.ServerName = p.URL.Hostname()
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	secure := tls.Client(conn, c)
	if err := secure.HandshakeContext(ctx); err != nil {
		p.addHandshakeFailure(err)
		return nil, false
	}
	state := secure.ConnectionState()
	if trusting {
		return &state, true
	}
	return &state, p.checkCertificateChain(ctx, state.PeerCertificates, c)
}

// addHandshakeFailure adds H2 or H3: there is no TLS connection, because of err.
func (p connection) addHandshakeFailure(err error) {
	var record tls.RecordHeaderError
	if errors.As(err, &record) || isPlainHTTP(err) {
		other := *p.URL
		other.Scheme = "http"
		seen := "instead of TLS came bytes that are none"
		if errors.As(err, &record) && string(record.RecordHeader[:4]) == "HTTP" {
			seen = "instead of TLS came an answer in plain HTTP"
		}
		p.addFinding("H3", doctor.Error, "The server does not speak TLS at this port", seen, "An https:// URL cannot work there.",
			"Use "+probe.URLForUser(&other)+" if the network between is trusted; otherwise have the server, or a proxy before it, speak TLS.")
		return
	}
	if isAboutOurCertificate(err) {
		p.addOurCertificateFinding(err)
		return
	}
	means := "No client gets a connection."
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) {
		means = "The port is open, but whoever listens there does not speak TLS, or not for this host name."
	}
	p.addFinding("H2", doctor.Error, "The TLS handshake fails", probe.NetErrorText(err), means,
		"Check that this is the port for https, that the server has a certificate for "+p.URL.Hostname()+", and that it speaks TLS 1.2 or newer.")
}

// isPlainHTTP reports whether a TLS handshake has failed with err because the answer was plain HTTP.
func isPlainHTTP(err error) bool {
	return strings.Contains(err.Error(), "HTTP response to HTTPS client")
}

// isAboutOurCertificate reports whether err says that the server has ended a TLS handshake because of our client certificate,
// or because it got none.
func isAboutOurCertificate(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" && strings.Contains(err.Error(), "certificate")
}

// addOurCertificateFinding adds H2: the server wants a client certificate, or refuses the one that the user has given.
func (p connection) addOurCertificateFinding(err error) {
	title, do := "The server wants a client certificate", "Give one with --client-cert and --client-key."
	if p.options.TLS != nil && len(p.options.TLS.Certificates) > 0 {
		title, do = "The server refuses the client certificate", "Check with --client-cert and --client-key that the certificate is not expired, and that the server trusts who has issued it."
	}
	p.addFinding("H2", doctor.Error, title, probe.NetErrorText(err), "Clients without a certificate that the server trusts get no connection.", do)
}

// checkCertificateChain adds H2 for each thing that is wrong with the server's certificates, and reports whether nothing is. c
// has the authorities that are trusted, and the host name.
func (p connection) checkCertificateChain(ctx context.Context, chain []*x509.Certificate, c *tls.Config) bool {
	leaf, sound := chain[0], true
	names := "the certificate of " + subjectOf(leaf)
	add := func(title, seen, means, do string) {
		sound = false
		p.addFinding("H2", doctor.Error, title, seen, means, do)
	}
	now := time.Now()
	if c.Time != nil {
		now = c.Time()
	}
	const refuse = "All clients refuse the connection."
	for _, cert := range chain {
		if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
			seen := fmt.Sprintf("the certificate of %s is valid from %s to %s; here it is %s", subjectOf(cert), formatTime(cert.NotBefore), formatTime(cert.NotAfter), formatTime(now))
			if off := p.clockDifference(ctx, c); off != "" {
				add("The clock of this machine is wrong, or the server's is", seen+"; "+off, "A certificate that is good looks expired, or not yet valid.", "Set the clock of this machine (NTP), or that of the server.")
			} else {
				add("A certificate of the server is expired or not valid yet", seen, refuse, "Renew the certificate, and have the server load the new one.")
			}
			now = cert.NotAfter.Add(-time.Second) // for the checks that follow
			if leaf.NotAfter.Before(now) {
				now = leaf.NotAfter.Add(-time.Second)
			}
		}
	}
	if err := leaf.VerifyHostname(c.ServerName); err != nil {
		seen := names + " is for " + joinNames(leaf.DNSNames, leaf.IPAddresses)
		add("The certificate is for another host name", seen+", not for "+c.ServerName, refuse,
			"Use one of its names in the URL, or have a certificate issued for "+c.ServerName+"; a server with several names must pick the certificate by SNI.")
	}
	inter := x509.NewCertPool()
	for _, cert := range chain[1:] {
		inter.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: c.RootCAs, Intermediates: inter, CurrentTime: now})
	var unknown x509.UnknownAuthorityError
	last := chain[len(chain)-1]
	switch {
	case err == nil:
	case !errors.As(err, &unknown):
		add("The certificate is not valid for a server", names+": "+err.Error(), refuse, "Have a certificate issued that is meant for servers.")
	case isSelfSigned(leaf):
		add("The certificate is self-signed", names+" was issued by itself", "Clients refuse the connection unless they are told to trust it.",
			"Give the certificate to clients (--ca-file), or have one issued by an authority that they know.")
	case !isSelfSigned(last) && p.issuerCompletes(ctx, last, leaf, inter, c.RootCAs, now):
		add("The server does not send an intermediate certificate", fmt.Sprintf("%d sent; that of %q, which issued %s, is missing", len(chain), last.Issuer.CommonName, subjectOf(last)),
			"Browsers often fetch or know it; Node.js, Python and Go do not, and refuse the connection.", "Have the server send the full chain (fullchain.pem, not cert.pem).")
	case !isSelfSigned(last):
		add("The chain of certificates does not end at a trusted authority", fmt.Sprintf("%d sent; that of %s was issued by %q, which is not known here", len(chain), subjectOf(last), last.Issuer.CommonName),
			"Clients refuse the connection.", fmt.Sprintf("If %q is an intermediate, have the server send the full chain; if it is a private authority, give its certificate with --ca-file.", last.Issuer.CommonName))
	default:
		add("The certificate is from an unknown authority", fmt.Sprintf("%s was issued by %q, which is not trusted here", subjectOf(leaf), last.Subject.CommonName),
			"Clients refuse the connection unless they know the authority.", "Give the certificate of the authority with --ca-file, if it is the right server.")
	}
	return sound
}

// formatTime returns a time in UTC, to the minute: "2026-01-02 15:04 UTC".
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// subjectOf returns the common name of a certificate in quotes; if it has none, its first DNS name without quotes. If it
// has neither, it is an empty name in quotes.
func subjectOf(c *x509.Certificate) string {
	if c.Subject.CommonName == "" && len(c.DNSNames) > 0 {
		return c.DNSNames[0]
	}
	return fmt.Sprintf("%q", c.Subject.CommonName)
}

// isSelfSigned reports whether the issuer that a certificate names is its own subject.
func isSelfSigned(c *x509.Certificate) bool {
	return string(c.RawIssuer) == string(c.RawSubject)
}

// joinNames returns the names and addresses that a certificate is for as a text: the first five, and "..." for more. Where
// there are none, the text is "no host at all".
func joinNames(names []string, ips []net.IP) string {
	all := append([]string(nil), names...)
	for _, ip := range ips {
		all = append(all, ip.String())
	}
	if len(all) > 5 {
		all = append(all[:5], "...")
	}
	if len(all) == 0 {
		return "no host at all"
	}
	return strings.Join(all, ", ")
}

// issuerCompletes reports whether the certificate leaf can be verified once the missing certificate of the issuer of last is
// added, which is fetched from the http address that last names.
func (p connection) issuerCompletes(ctx context.Context, last, leaf *x509.Certificate, inter *x509.CertPool, roots *x509.CertPool, now time.Time) bool {
	for _, address := range last.IssuingCertificateURL {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil || req.URL.Scheme != "http" {
			continue
		}
		r := p.Do(ctx, probe.Request{Method: http.MethodGet, URL: req.URL, IsForOtherServer: true})
		issuer, err := x509.ParseCertificate(r.Text)
		if err != nil {
			continue
		}
		inter = inter.Clone()
		inter.AddCert(issuer)
		_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, CurrentTime: now})
		return err == nil
	}
	return false
}

// clockDifference returns what the clocks of this machine and of the server say, if they differ by more than five minutes; "":
// they do not, or that is not known. Its request has nothing of the user's in it.
func (p connection) clockDifference(ctx context.Context, c *tls.Config) string {
	trip := httpdial.NewTransport(httpdial.TransportOptions{TLS: c})
	defer trip.CloseIdleConnections()
	root := *p.URL
	root.Path, root.RawPath, root.RawQuery = "/", "", ""
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, root.String(), nil)
	if err != nil {
		return ""
	}
	resp, err := trip.RoundTrip(req)
	if err != nil {
		return ""
	}
	resp.Body.Close()
	return describeClockSkew(resp.Header, c.Time)
}

// describeClockSkew returns what the Date of a reply and our clock say, if they differ by more than five minutes; "": they do
// not, or there is no Date. clock tells our time; nil: time.Now.
func describeClockSkew(header http.Header, clock func() time.Time) string {
	at, err := http.ParseTime(header.Get("Date"))
	now := time.Now()
	if clock != nil {
		now = clock()
	}
	if off := now.Sub(at); err == nil && (off > 5*time.Minute || off < -5*time.Minute) {
		return fmt.Sprintf("the server's clock says %s, ours %s", formatTime(at), formatTime(now))
	}
	return ""
}
