package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
)

const (
	lookupTimeout = 4 * time.Second // how long the DNS lookup of a host name may take
	dialTimeout   = 3 * time.Second // how long a connection may take to be made, and a TLS handshake
	maxAddresses  = 6               // how many addresses of a host name are tried at most
)

// canConnect finds out, phase by phase, whether the server can be reached, adds H1, H2 or H3 if not, and notes the fact
// "connection". It reports whether requests can be sent. Behind a proxy, it looks only at the proxy.
func (p connection) canConnect(ctx context.Context) bool {
	port := p.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[p.URL.Scheme]
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: p.URL}); err != nil || proxy != nil {
		return p.canReachProxy(ctx, proxy, err)
	}
	began := time.Now()
	hosts, ok := p.lookupHost(ctx, p.URL.Hostname())
	if !ok {
		return false
	}
	lookup := time.Since(began)
	dials := dialAll(ctx, hosts, port)
	best := p.addDialFailures(dials)
	if best == nil {
		return false
	}
	defer best.conn.Close()
	phases := fmt.Sprintf("DNS %s, connect %s", millis(lookup), millis(best.duration))
	p.dialTime = best.duration
	if p.URL.Scheme == "https" {
		began := time.Now()
		state, ok := p.handshake(ctx, best.conn)
		if !ok {
			return false
		}
		p.dialTime += time.Since(began)
		phases += fmt.Sprintf(", TLS %s (%s, certificate until %s)", millis(time.Since(began)), tls.VersionName(state.Version), state.PeerCertificates[0].NotAfter.Format(time.DateOnly))
	}
	p.setFact("connection", "%s", phases)
	return true
}

// millis returns a duration in milliseconds, as people read it: "3.2 ms", "120 ms".
func millis(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// canReachProxy reports whether the proxy that the environment names can be reached, and adds H1 if not. err, if not nil, says
// that the environment names no valid one.
func (p connection) canReachProxy(ctx context.Context, proxy *url.URL, err error) (reached bool) {
	const do = "Correct HTTP_PROXY or HTTPS_PROXY, or name the server's host in NO_PROXY."
	if err != nil {
		p.addFinding("H1", doctor.Error, "The proxy in the environment cannot be used", "HTTP_PROXY or HTTPS_PROXY is not a valid URL",
			"Every client with this environment fails.", do)
		return false
	}
	p.report.HideSecrets(proxy.User.String())
	p.setFact("proxy", "%s, from the environment", proxy.Host)
	address := proxy.Host
	if proxy.Port() == "" {
		address = net.JoinHostPort(proxy.Hostname(), map[string]string{"http": "80", "https": "443", "socks5": "1080"}[proxy.Scheme])
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		p.addFinding("H1", doctor.Error, "The proxy in the environment cannot be reached", "proxy "+proxy.Host+": "+probe.NetErrorText(err),
			"Clients with HTTP_PROXY or HTTPS_PROXY set like this do not get to the server.", do)
		return false
	}
	conn.Close()
	return true
}

// lookupHost returns the addresses of a host, maxAddresses at most; false: there are none, and H1 was added.
func (p connection) lookupHost(ctx context.Context, host string) ([]netip.Addr, bool) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, true
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(ips) == 0 {
		seen, do := "DNS: no address of "+host, "Check the host name for typing errors; if it is internal, check the VPN or the DNS server."
		var dns *net.DNSError
		if errors.As(err, &dns) && !dns.IsNotFound {
			seen, do = "DNS: "+probe.NetErrorText(err), "Check this machine's DNS servers and network."
		}
		p.addFinding("H1", doctor.Error, "The host name cannot be resolved", seen, "No client on this machine finds the server.", do)
		return nil, false
	}
	return ips[:min(len(ips), maxAddresses)], true
}

// A dialAttempt is an attempt to connect to one address, and what came of it.
type dialAttempt struct {
	ip       netip.Addr    // the address
	conn     net.Conn      // the connection; nil: err says why there is none
	duration time.Duration // how long the attempt took
	err      error         // why the attempt has failed; nil: it has succeeded
}

// dialAll connects to all addresses at the same time, and waits for all attempts.
func dialAll(ctx context.Context, ips []netip.Addr, port string) []*dialAttempt {
	dials := make([]*dialAttempt, len(ips))
	var all sync.WaitGroup
	for i, ip := range ips {
		d := &dialAttempt{ip: ip.Unmap()}
		dials[i] = d
		all.Go(func() {
			began := time.Now()
			d.conn, d.err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", net.JoinHostPort(d.ip.String(), port))
			d.duration = time.Since(began)
		})
	}
	all.Wait()
	return dials
}

// addDialFailures adds H1 for addresses that do not answer, and returns an attempt that has succeeded; nil: none has. The
// connections of the others are closed.
func (p connection) addDialFailures(dials []*dialAttempt) *dialAttempt {
	var best *dialAttempt
	var failed []string
	local := true // all addresses that failed are of this machine
	for _, d := range dials {
		switch {
		case d.err == nil && best == nil:
			best = d
		case d.err == nil:
			d.conn.Close()
		case isNoRoute(d.err) && len(dials) > 1: // there is no IPv6 here, say
		default:
			failed = append(failed, d.ip.String()+": "+dialErrorText(d.err))
			local = local && d.ip.IsLoopback()
		}
	}
	seen := "connect: " + strings.Join(failed, "; ")
	switch {
	case best == nil && len(failed) == 0:
		p.addFinding("H1", doctor.Error, "The server cannot be reached", "connect: "+dialErrorText(dials[0].err), "This machine has no way to the server's addresses.",
			"Check the network and the VPN of this machine.")
	case best == nil:
		p.addFinding("H1", doctor.Error, "The server cannot be reached", seen, "No client on this machine gets a connection.",
			"Refused: start the server, or correct the port. No answer in time: a firewall drops the packets, or the address is wrong.")
	case len(failed) > 0:
		severity := doctor.Warning
		if local {
			severity = doctor.Note // clients on this machine try the other one at once
		}
		p.addFinding("H1", severity, "Some addresses of the server do not answer", seen,
			"Clients that try only the first address, or try one after the other, fail or start slowly.",
			"Have the server listen on every address that its name has, or take the others out of DNS. On this machine, write 127.0.0.1 in place of localhost.")
	}
	return best
}

// isNoRoute reports whether err says that this machine has no way to an address at all, as with IPv6 where there is none.
func isNoRoute(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// dialErrorText returns, in a few words, why a connection could not be made.
func dialErrorText(err error) string {
	var op *net.OpError
	var t interface{ Timeout() bool }
	switch {
	case errors.As(err, &t) && t.Timeout():
		return "no answer in " + dialTimeout.String()
	case errors.As(err, &op):
		return strings.TrimPrefix(probe.NetErrorText(op.Err), "connect: ")
	}
	return probe.NetErrorText(err)
}
