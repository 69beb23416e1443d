// Package reach says how far addresses reach, and which addresses a server may lead a client to. A
// server on the internet that names an address in a private network wants the client to go where it
// cannot go itself (server-side request forgery). Its functions keep no state, and may be called
// concurrently.
package reach

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
)

// A Reach is how far away those are who can connect to an address. The order of the values counts:
// each one but NeverAllowed reaches farther than the one before.
type Reach int

// The values of a Reach.
const (
	NeverAllowed Reach = iota // no server may be reached there: an unspecified, multicast or reserved address, or that of a cloud's metadata service
	Loopback                  // only this machine can reach the address
	LinkLocal                 // only the machines on the same link can reach the address
	Private                   // only machines in a network that is not the internet can reach the address; that of a provider with its customers (CGNAT) counts as one
	Public                    // everybody on the internet can reach the address
)

// String returns the Reach in words that follow "is": "on this machine".
func (r Reach) String() string {
	switch r {
	case Loopback:
		return "on this machine"
	case LinkLocal:
		return "on this link only"
	case Private:
		return "in a private network"
	case Public:
		return "on the internet"
	}
	return "no address of a server, or that of a cloud's metadata service"
}

// MayLeadTo reports whether a server of this Reach may lead a client to an address of the Reach other: other
// must reach as far, or farther. So a server in a private network may lead to others in such networks and
// on the internet, but not to what runs on this machine. NeverAllowed may not lead anywhere, and nothing may lead to it.
func (r Reach) MayLeadTo(other Reach) bool {
	return r != NeverAllowed && other != NeverAllowed && other >= r
}

// A block is a range of addresses that have the same Reach.
type block struct {
	prefix netip.Prefix // the addresses
	reach  Reach        // the Reach of these addresses
}

// parseBlocks returns the blocks of these prefixes ("10.0.0.0/8"), all of one Reach. A prefix that
// cannot be read panics.
func parseBlocks(reach Reach, prefixes ...string) []block {
	all := make([]block, len(prefixes))
	for i, p := range prefixes {
		all[i] = block{netip.MustParsePrefix(p), reach}
	}
	return all
}

// addressBlocks says which Reach an address has: that of the first block that contains it. The
// special-purpose ranges (the registries of RFC 6890) stand before the public ones. An address in
// no block is assigned to nobody, and NeverAllowed.
var addressBlocks = sync.OnceValue(func() []block {
	return concat(
		// The metadata services: AWS, Azure, Google, Oracle and others; Alibaba; Azure's own; AWS and Google over IPv6.
		parseBlocks(NeverAllowed, "169.254.169.0/24", "169.254.170.0/24", "192.0.0.0/24", "100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32", "fd20:ce::/32"),
		parseBlocks(NeverAllowed, "0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/128", "100::/64", "ff00::/8"),
		parseBlocks(Loopback, "127.0.0.0/8", "::1/128"),
		parseBlocks(LinkLocal, "169.254.0.0/16", "fe80::/10"),
		parseBlocks(Private, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"),
		parseBlocks(Private, "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"), // for documentation and tests, and what proxies invent
		parseBlocks(Private, "fc00::/7", "fec0::/10", "2001:2::/48", "2001:db8::/32", "3fff::/20", "64:ff9b:1::/48", "5f00::/16"),
		parseBlocks(Public, "0.0.0.0/0", "2000::/3"),
	)
})

// concat returns the blocks of all lists, one list after the other.
func concat(all ...[]block) (out []block) {
	for _, b := range all {
		out = append(out, b...)
	}
	return out
}

// ipv4InIPv6Prefixes are the blocks of IPv6 addresses that stand for an IPv4 address, and where its bytes are in
// them: compatible and translated ones (RFC 4291, 2.5.5.1; RFC 2765), NAT64 (RFC 6052), 6to4 (RFC
// 3056), Teredo (RFC 4380), where they are inverted.
var ipv4InIPv6Prefixes = []struct {
	prefix netip.Prefix // the block
	at     int          // the index, in the 16 bytes of the IPv6 address, of the first of the 4 bytes
	invert bool         // each bit of the 4 bytes is inverted
}{
	{netip.MustParsePrefix("::/96"), 12, false},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, false},
	{netip.MustParsePrefix("64:ff9b::/96"), 12, false},
	{netip.MustParsePrefix("2002::/16"), 2, false},
	{netip.MustParsePrefix("2001::/32"), 12, true},
}

// OfAddr returns the Reach of an address; NeverAllowed for the zero Addr. An IPv6 address that stands for an IPv4 address
// has the Reach of that. A network's own prefix for NAT64 cannot be known.
func OfAddr(a netip.Addr) Reach {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return NeverAllowed
	}
	if a.Is6() && !a.IsLoopback() && !a.IsUnspecified() {
		bytes := a.As16()
		for _, e := range ipv4InIPv6Prefixes {
			if !e.prefix.Contains(a) {
				continue
			}
			four := [4]byte(bytes[e.at:])
			if e.invert {
				for i := range four {
					four[i] ^= 0xff
				}
			}
			return OfAddr(netip.AddrFrom4(four))
		}
	}
	for _, b := range addressBlocks() {
		if b.prefix.Contains(a) {
			return b.reach
		}
	}
	return NeverAllowed // not assigned to anybody
}

// OfHost returns the Reach of the host of a URL where its text alone says it: an address, or
// localhost. Who resolves other names, such as a proxy, may take for an address what looks like
// one, "127.1" or "0x7f000001": that is NeverAllowed. known is false of other names.
func OfHost(host string) (r Reach, known bool) {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // RFC 6761, 6.3
		return Loopback, true
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return OfAddr(a), true
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last == "" || last[0] >= '0' && last[0] <= '9' && strings.Trim(last, "0123456789abcdefx") == "" {
		return NeverAllowed, true
	}
	return 0, false
}

// An Error says that a server led to an address that it may not lead to.
type Error struct {
	Host            string     // the host that the server led to, as it named it
	Addr            netip.Addr // the address of Host; the zero value: only the name is known
	Reach           Reach      // the Reach of Addr; without Addr, that which the text of Host says, or Public if it says none
	ConfiguredHost  string     // the host that the user has given, and whose server led to Host; "" with PlainHTTP, where it does not matter
	ConfiguredReach Reach      // the Reach of ConfiguredHost; Public, too, where that is not known or does not matter; not set with PlainHTTP
	UnknownReason   error      // why the Reach of ConfiguredHost is not known; nil: it is known, or does not matter
	PlainHTTP       bool       // the address is refused because its URL begins with http://
}

// Error says which address it is, and why it is refused, in one line. It does not say what helps.
func (e *Error) Error() string {
	what := fmt.Sprintf("%.200q", e.Host)
	if e.Addr.IsValid() && e.Addr.String() != e.Host {
		what += " has the address " + e.Addr.String() + ", which"
	}
	what += " is " + e.Reach.String()
	switch {
	case e.Reach == NeverAllowed:
		return what
	case e.PlainHTTP:
		return what + ", and its address begins with http://: others could read and change what is sent there"
	case e.UnknownReason != nil:
		return fmt.Sprintf("%s; whether %.200q is too is not known: %v", what, e.ConfiguredHost, e.UnknownReason)
	}
	return fmt.Sprintf("%s, while %.200q, which leads there, is %v", what, e.ConfiguredHost, e.ConfiguredReach)
}

// Unwrap returns UnknownReason.
func (e *Error) Unwrap() error { return e.UnknownReason }

// Hint says which flag allows the address; "": none does.
func (e *Error) Hint() string {
	if e.Reach == NeverAllowed || e.PlainHTTP {
		return ""
	}
	return "if you trust the server, allow such addresses with --allow-private-auth"
}

// AsError returns the Error that err is or wraps, such as an error of an HTTP request; false: there
// is none.
func AsError(err error) (*Error, bool) { return errors.AsType[*Error](err) }
