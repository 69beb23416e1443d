package reach

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestOfAddr(t *testing.T) {
	t.Parallel()
	for want, all := range map[Reach][]string{
		NeverAllowed: {
			"0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "239.255.255.250", "255.255.255.255", "240.0.0.1", "ff02::1", "192.0.0.192",
			"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254", "fd00:ec2::23",
			"::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::169.254.169.254", "::ffff:0:169.254.169.254",
			"2001:0:1:2:3:4:5601:5601", // Teredo, 169.254.169.254 inverted
			"100::1", "4000::1", "::ffff:0.0.0.0", "64:ff9b::",
		},
		Loopback:  {"127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1"},
		LinkLocal: {"169.254.1.1", "169.254.168.254", "fe80::1", "fe80::1%eth0", "::ffff:169.254.1.1"},
		Private: {
			"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255", "198.18.0.1", "fc00::1", "fd12::1", "fec0::1",
			"::ffff:10.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1", "2002:c0a8:101::1", "203.0.113.9", "2001:db8::1",
		},
		Public: {"1.1.1.1", "172.32.0.1", "172.15.0.1", "100.63.255.255", "100.128.0.1", "192.0.1.1", "11.0.0.1", "223.255.255.255", "2606:4700::1", "64:ff9b::101:101", "2002:101:101::", "::ffff:1.1.1.1"},
	} {
		for _, text := range all {
			if got := OfAddr(netip.MustParseAddr(text)); got != want {
				t.Errorf("%s is %v, want %v", text, got, want)
			}
		}
	}
	if got := OfAddr(netip.Addr{}); got != NeverAllowed {
		t.Errorf("no address is %v", got)
	}
}

func TestOfHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]Reach{
		"localhost": Loopback, "LocalHost.": Loopback, "a.localhost": Loopback, "127.0.0.1": Loopback, "127.0.0.1.": Loopback, "::1": Loopback,
		"10.0.0.1": Private, "8.8.8.8": Public, "fe80::1%25eth0": LinkLocal, "169.254.169.254": NeverAllowed,
		// what a proxy could take for an address
		"127.1": NeverAllowed, "0x7f000001": NeverAllowed, "2130706433": NeverAllowed, "0177.0.0.1": NeverAllowed, "0x7f.1": NeverAllowed, "a.127": NeverAllowed, "10.0.0.256": NeverAllowed, "": NeverAllowed, "127.0.0.0x1": NeverAllowed,
	} {
		if got, known := OfHost(host); got != want || !known {
			t.Errorf("%q is %v, %v, want %v", host, got, known, want)
		}
	}
	for _, host := range []string{"example.com", "localhost.example.com", "mylocalhost", "a.b", "1password.com", "10.example", "example.0k", "x0x7f"} {
		if got, known := OfHost(host); known {
			t.Errorf("%q is %v", host, got)
		}
	}
}

func TestMayLeadTo(t *testing.T) {
	t.Parallel()
	const all = "loopback link private public"
	for from, want := range map[Reach]string{NeverAllowed: "", Loopback: all, LinkLocal: "link private public", Private: "private public", Public: "public"} {
		var got []string
		for i, to := range []Reach{Loopback, LinkLocal, Private, Public} {
			if from.MayLeadTo(to) {
				got = append(got, strings.Fields(all)[i])
			}
		}
		if strings.Join(got, " ") != want || from.MayLeadTo(NeverAllowed) {
			t.Errorf("what is %v may name %q, want %q", from, got, want)
		}
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*Error{
		`"as.test" has the address 10.1.2.3, which is in a private network, while "mcp.test", which leads there, is on the internet`: {
			Host: "as.test", Addr: netip.MustParseAddr("10.1.2.3"), Reach: Private, ConfiguredHost: "mcp.test", ConfiguredReach: Public},
		`"10.1.2.3" is in a private network, while "mcp.test", which leads there, is on the internet`: {
			Host: "10.1.2.3", Addr: netip.MustParseAddr("10.1.2.3"), Reach: Private, ConfiguredHost: "mcp.test", ConfiguredReach: Public},
		`"127.0.0.1" is on this machine; whether "mcp.test" is too is not known: no route`: {
			Host: "127.0.0.1", Reach: Loopback, ConfiguredHost: "mcp.test", UnknownReason: errors.New("no route")},
	} {
		if got := e.Error(); got != want || !strings.Contains(e.Hint(), "--allow-private-auth") {
			t.Errorf("%s; %s", got, e.Hint())
		}
	}
	plain := &Error{Host: "as.test", Addr: netip.MustParseAddr("1.1.1.1"), Reach: Public, PlainHTTP: true}
	if plain.Hint() != "" || !strings.Contains(plain.Error(), "is on the internet, and its address begins with http://") {
		t.Errorf("%v; %s", plain, plain.Hint())
	}
	e := &Error{Host: "169.254.169.254", Reach: NeverAllowed}
	if e.Hint() != "" || !strings.Contains(e.Error(), "metadata service") {
		t.Errorf("%v; %s", e, e.Hint())
	}
	if got, ok := AsError(errors.Join(errors.New("x"), e)); !ok || got != e {
		t.Errorf("%v, %v", got, ok)
	}
}
