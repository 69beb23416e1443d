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
	lookupTimeout = 4 * time.Second
	dialTimeout   = 3 * time.Second
	maxAddresses  = 6
)

// canConnect finds out whether the server can be reached, phase by phase (H1 to H3), and
// returns whether there is any use in sending requests.
func (p connection) canConnect(ctx context.Context) bool {
	port := p.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[p.URL.Scheme]
	}
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: p.URL}); err != nil || proxy != nil {
		return p.connectByProxy(ctx, proxy, err)
	}
	began := time.Now()
	hosts, ok := p.lookup(ctx, p.URL.Hostname())
	if !ok {
		return false
	}
	lookup := time.Since(began)
	dials := dialAll(ctx, hosts, port)
	best := p.sayDials(dials)
	if best == nil {
		return false
	}
	defer best.conn.Close()
	phases := fmt.Sprintf("DNS %s, connect %s", millis(lookup), millis(best.took))
	p.dialled = best.took
	if p.URL.Scheme == "https" {
		began := time.Now()
		state, ok := p.handshake(ctx, best.conn)
		if !ok {
			return false
		}
		p.dialled += time.Since(began)
		phases += fmt.Sprintf(", TLS %s (%s, certificate until %s)", millis(time.Since(began)), tls.VersionName(state.Version), state.PeerCertificates[0].NotAfter.Format(time.DateOnly))
	}
	p.fact("connection", "%s", phases)
	return true
}

// millis returns a duration as people read it.
func millis(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// connectByProxy looks at a proxy that the environment names; the rest is up to it.
func (p connection) connectByProxy(ctx context.Context, proxy *url.URL, err error) (reached bool) {
	const do = "Correct HTTP_PROXY or HTTPS_PROXY, or name the server's host in NO_PROXY."
	if err != nil {
		p.add("H1", doctor.Error, "The proxy in the environment cannot be used", "HTTP_PROXY or HTTPS_PROXY is not a valid URL",
			"Every client with this environment fails.", do)
		return false
	}
	p.report.Hide(proxy.User.String())
	p.fact("proxy", "%s, from the environment", proxy.Host)
	address := proxy.Host
	if proxy.Port() == "" {
		address = net.JoinHostPort(proxy.Hostname(), map[string]string{"http": "80", "https": "443", "socks5": "1080"}[proxy.Scheme])
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		p.add("H1", doctor.Error, "The proxy in the environment cannot be reached", "proxy "+proxy.Host+": "+probe.NetText(err),
			"Clients with HTTP_PROXY or HTTPS_PROXY set like this do not get to the server.", do)
		return false
	}
	conn.Close()
	return true
}

// lookup returns the addresses of a host.
func (p connection) lookup(ctx context.Context, host string) ([]netip.Addr, bool) {
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
			seen, do = "DNS: "+probe.NetText(err), "Check this machine's DNS servers and network."
		}
		p.add("H1", doctor.Error, "The host name cannot be resolved", seen, "No client on this machine finds the server.", do)
		return nil, false
	}
	return ips[:min(len(ips), maxAddresses)], true
}

// A dial is an attempt to connect to one address.
type dial struct {
	ip   netip.Addr
	conn net.Conn
	took time.Duration
	err  error
}

func dialAll(ctx context.Context, ips []netip.Addr, port string) []*dial {
	dials := make([]*dial, len(ips))
	var all sync.WaitGroup
	for i, ip := range ips {
		d := &dial{ip: ip.Unmap()}
		dials[i] = d
		all.Go(func() {
			began := time.Now()
			d.conn, d.err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", net.JoinHostPort(d.ip.String(), port))
			d.took = time.Since(began)
		})
	}
	all.Wait()
	return dials
}

// sayDials says which addresses do not answer, and returns an attempt that succeeded;
// nil: none has. The connections of the others are closed.
func (p connection) sayDials(dials []*dial) *dial {
	var best *dial
	var failed []string
	local := true // what failed was refused by this machine or on it
	for _, d := range dials {
		switch {
		case d.err == nil && best == nil:
			best = d
		case d.err == nil:
			d.conn.Close()
		case isOurs(d.err) && len(dials) > 1: // there is no IPv6 here, say
		default:
			failed = append(failed, d.ip.String()+": "+reason(d.err))
			local = local && d.ip.IsLoopback()
		}
	}
	seen := "connect: " + strings.Join(failed, "; ")
	switch {
	case best == nil && len(failed) == 0:
		p.add("H1", doctor.Error, "The server cannot be reached", "connect: "+reason(dials[0].err), "This machine has no way to the server's addresses.",
			"Check the network and the VPN of this machine.")
	case best == nil:
		p.add("H1", doctor.Error, "The server cannot be reached", seen, "No client on this machine gets a connection.",
			"Refused: start the server, or correct the port. No answer in time: a firewall drops the packets, or the address is wrong.")
	case len(failed) > 0:
		severity := doctor.Warning
		if local {
			severity = doctor.Note // clients on this machine try the other one at once
		}
		p.add("H1", severity, "Some addresses of the server do not answer", seen,
			"Clients that try only the first address, or try one after the other, fail or start slowly.",
			"Have the server listen on every address that its name has, or take the others out of DNS. On this machine, write 127.0.0.1 in place of localhost.")
	}
	return best
}

// isOurs reports whether this machine has no way to the address at all.
func isOurs(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// reason returns why a connection could not be made.
func reason(err error) string {
	var op *net.OpError
	var t interface{ Timeout() bool }
	switch {
	case errors.As(err, &t) && t.Timeout():
		return "no answer in " + dialTimeout.String()
	case errors.As(err, &op):
		return strings.TrimPrefix(probe.NetText(op.Err), "connect: ")
	}
	return probe.NetText(err)
}
