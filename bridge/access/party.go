package access

import (
	"context"
	"net/http"
	"net/netip"
)

// Party returns the party of r: sessions, processes and memory are shared out among
// parties. The party is the Principal if there is one. Otherwise it is "peer ", with which
// no principal begins, and the address of RemoteAddr without the port. Of an IPv6 address
// other than loopback only the network (/64) counts, because one site has all of its
// addresses. At a Unix socket, "peer " is followed by the name given to WithPeer; without a
// name all clients of Unix sockets are one party. Call Party after Enter.
func (p *Policy) Party(r *http.Request) string {
	if name := Principal(r); name != "" {
		return name
	}
	from := p.RemoteAddr(r)
	if ap, err := netip.ParseAddrPort(from); err == nil {
		return addressParty(ap.Addr())
	}
	if addr, err := netip.ParseAddr(from); err == nil { // without a port: from a proxy's header
		return addressParty(addr)
	}
	if who, ok := r.Context().Value(peerKey{}).(string); ok {
		return peerPrefix + who
	}
	return peerPrefix + from
}

// peerKey is the key of the name of WithPeer in a context.
type peerKey struct{}

// WithPeer returns ctx with a name for the peer of a connection that has no address, such
// as a Unix socket. Use it in ConnContext of an http.Server.
func WithPeer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, peerKey{}, name)
}

// PeerParty returns the Party of a client that has not authenticated and of whose connection only the name given to
// WithPeer is known.
func PeerParty(name string) string { return peerPrefix + name }

// peerPrefix is what a party begins with that is no principal.
const peerPrefix = "peer "

// addressParty returns the party of a client that has not authenticated and comes from this address (see
// Policy.Party).
func addressParty(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if addr.Is4() || addr.IsLoopback() {
		return peerPrefix + addr.String()
	}
	network, err := addr.Prefix(64)
	if err != nil {
		return peerPrefix + addr.String()
	}
	return peerPrefix + network.String()
}
