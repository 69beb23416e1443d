package access

import (
	"context"
	"net/http"
	"net/netip"
)

// Party returns who r counts as when sessions, processes and memory are shared
// out: its Principal, or else "peer " and the address that RemoteAddr tells,
// without the port (no name of a principal begins so). Of an IPv6 address the
// network counts (/64), for that is what one site has. At a Unix socket it is who
// WithPeer has named; else all there are one party. Call it after Enter.
func (p *Policy) Party(r *http.Request) string {
	if name := Principal(r); name != "" {
		return name
	}
	from := p.RemoteAddr(r)
	if ap, err := netip.ParseAddrPort(from); err == nil {
		return addressParty(ap.Addr())
	}
	if addr, err := netip.ParseAddr(from); err == nil { // a proxy has told it
		return addressParty(addr)
	}
	if who, ok := r.Context().Value(peerKey{}).(string); ok {
		return peer + who
	}
	return peer + from
}

type peerKey struct{}

// WithPeer returns the ctx of a connection that has no address of its peer, with
// a name for it. An http.Server has it for ConnContext.
func WithPeer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, peerKey{}, name)
}

// PeerParty returns the Party of whoever is known by such a name only.
func PeerParty(name string) string { return peer + name }

const peer = "peer "

// addressParty returns the party of an address.
func addressParty(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if addr.Is4() || addr.IsLoopback() {
		return peer + addr.String()
	}
	network, err := addr.Prefix(64)
	if err != nil {
		return peer + addr.String()
	}
	return peer + network.String()
}
