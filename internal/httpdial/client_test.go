package httpdial

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/reach"
)

// The tests play a network on the addresses of loopback: the last byte says how far one reaches.
func fakeReach(a netip.Addr) reach.Reach {
	if a = a.Unmap(); !a.Is4() {
		return reach.NeverAllowed
	}
	return reach.Reach(a.As4()[3] / 10)
}

const (
	onPublic, onPublic2  = "127.0.0.40", "127.0.0.41"
	onPrivate, onMachine = "127.0.0.30", "127.0.0.10"
	onNever              = "127.0.0.2"
)

// names is a name server: what each name stands for, the next time it is asked.
type names struct {
	mu    sync.Mutex
	addrs map[string][][]string
}

// set says what a name stands for: each time the next one of these, and the last one for ever.
func (n *names) set(name string, times ...[]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrs[name+"."] = times
}

func (n *names) next(name string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	times := n.addrs[name]
	if len(times) == 0 {
		return nil
	}
	if len(times) > 1 {
		n.addrs[name] = times[1:]
	}
	return times[0]
}

// serve answers questions of DNS (RFC 1035) on a stream.
func (n *names) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, q); err != nil {
			return
		}
		at, name := 12, ""
		for q[at] != 0 {
			name += string(q[at+1:at+1+int(q[at])]) + "."
			at += 1 + int(q[at])
		}
		question, kind := q[12:at+5], q[at+2]
		reply := append(slices.Clone(q[:2]), 0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0)
		reply = append(reply, question...)
		if kind == 1 { // A
			for _, addr := range n.next(name) {
				reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				reply = append(reply, netip.MustParseAddr(addr).AsSlice()...)
				reply[7]++
			}
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// A dialTest is a network with servers.
type dialTest struct {
	names names
	port  string // of all servers
	tls   *tls.Config
	reply http.HandlerFunc

	mu   sync.Mutex
	seen []string // addresses at which requests came in
}

// newDialTest starts servers on some of the addresses. Their certificate is for *.test, and for no address.
func newDialTest(t *testing.T, on ...string) *dialTest {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs all addresses of 127.0.0.0/8")
	}
	d := &dialTest{names: names{addrs: map[string][][]string{}}}
	d.reply = func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "ok") }
	certificate := newCertificate(t)
	first, err := net.Listen("tcp", on[0]+":0")
	bridgetest.Must(t, err)
	_, d.port, _ = net.SplitHostPort(first.Addr().String())
	for i, addr := range on {
		l := first
		if i > 0 {
			l, err = net.Listen("tcp", net.JoinHostPort(addr, d.port))
			bridgetest.Must(t, err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d.mu.Lock()
			d.seen = append(d.seen, addr)
			d.mu.Unlock()
			d.reply(w, r)
		}))
		s.Listener.Close()
		s.Listener = l
		s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
	}
	d.tls = &tls.Config{RootCAs: x509.NewCertPool()}
	d.tls.RootCAs.AddCert(certificate.Leaf)
	return d
}

// newCertificate makes one for *.test.
func newCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	bridgetest.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"*.test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	bridgetest.Must(t, err)
	leaf, err := x509.ParseCertificate(der)
	bridgetest.Must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// client returns a client for what the server at named names.
func (d *dialTest) client(t *testing.T, named string, o GuardedClientOptions) (*http.Client, *reachGuard) {
	t.Helper()
	o.ConfiguredURL, o.TLS = d.at(named), d.tls
	c, err := NewGuardedClient(o)
	bridgetest.Must(t, err)
	t.Cleanup(c.CloseIdleConnections)
	g := c.Transport.(*reachGuard)
	g.reachOf, g.proxyOf = fakeReach, func(*http.Request) (*url.URL, error) { return nil, nil }
	g.dialer.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go d.names.serve(theirs)
		return ours, nil
	}}
	return c, g
}

// at puts the servers' port into a URL.
func (d *dialTest) at(addr string) string {
	scheme, rest, _ := strings.Cut(addr, "://")
	host, path, _ := strings.Cut(rest, "/")
	return scheme + "://" + host + ":" + d.port + "/" + path
}

// get makes a request, and returns where it arrived: "" nowhere.
func (d *dialTest) get(t *testing.T, c *http.Client, addr string) (string, error) {
	t.Helper()
	d.mu.Lock()
	d.seen = nil
	d.mu.Unlock()
	c.CloseIdleConnections()
	resp, err := c.Get(d.at(addr))
	if err == nil {
		_ = resp.Body.Close()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.seen, " "), err
}

func (d *dialTest) wantRefused(t *testing.T, c *http.Client, addr, says string) {
	t.Helper()
	where, err := d.get(t, c, addr)
	refused, ok := reach.AsError(err)
	if !ok || where != "" || !strings.Contains(refused.Error(), says) {
		t.Errorf("%s: came to %q, %v; want it refused with %q", addr, where, err, says)
	}
}

func (d *dialTest) wantAt(t *testing.T, c *http.Client, addr, want string) {
	t.Helper()
	if where, err := d.get(t, c, addr); err != nil || where != want {
		t.Errorf("%s: came to %q, %v; want %q", addr, where, err, want)
	}
}

func TestNamedAddresses(t *testing.T) {
	t.Parallel()
	d := newDialTest(t, onPublic, onPublic2, onPrivate, onMachine, onNever)
	for name, addrs := range map[string][]string{
		"mcp.test": {onPublic}, "as.test": {onPublic2}, "inside.test": {onPrivate}, "here.test": {onMachine}, "cloud.test": {onNever},
		"mixed.test": {onPrivate, onPublic}, "closed.test": {"127.0.0.49", onPrivate},
	} {
		d.names.set(name, addrs)
	}
	public, _ := d.client(t, "https://mcp.test/mcp", GuardedClientOptions{})
	d.wantAt(t, public, "https://mcp.test", onPublic)
	d.wantAt(t, public, "https://as.test", onPublic2)
	d.wantAt(t, public, "https://mixed.test", onPublic)
	d.wantRefused(t, public, "https://inside.test", `"inside.test" has the address 127.0.0.30, which is in a private network, while "mcp.test", which leads there, is on the internet`)
	d.wantRefused(t, public, "https://closed.test", "private network")
	d.wantRefused(t, public, "https://here.test", "on this machine")
	d.wantRefused(t, public, "https://127.0.0.30", `"127.0.0.30" is in a private network`)
	d.wantRefused(t, public, "https://cloud.test", "metadata service")

	private, _ := d.client(t, "https://inside.test/mcp", GuardedClientOptions{})
	d.wantAt(t, private, "https://inside.test", onPrivate)
	d.wantAt(t, private, "https://as.test", onPublic2)
	d.wantRefused(t, private, "https://here.test", "on this machine")
	d.wantRefused(t, private, "https://cloud.test", "metadata service")

	machine, _ := d.client(t, "ws://localhost/ws", GuardedClientOptions{})
	d.wantAt(t, machine, "https://here.test", onMachine)
	d.wantAt(t, machine, "https://inside.test", onPrivate)
	d.wantRefused(t, machine, "https://cloud.test", "metadata service")

	told, _ := d.client(t, "wss://mcp.test/ws", GuardedClientOptions{AllowPrivate: true})
	d.wantAt(t, told, "https://here.test", onMachine)
	d.wantAt(t, told, "https://inside.test", onPrivate)
	d.wantRefused(t, told, "https://cloud.test", "metadata service")

	plain, _ := d.client(t, "http://inside.test/mcp", GuardedClientOptions{})
	d.wantRefused(t, plain, "https://inside.test", "does not begin with https://")
}

func TestNamedAddressAfterARedirect(t *testing.T) {
	t.Parallel()
	d := newDialTest(t, onPublic, onPrivate)
	d.names.set("mcp.test", []string{onPublic})
	d.names.set("inside.test", []string{onPrivate})
	d.reply = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, d.at("https://inside.test/"), http.StatusFound)
	}
	c, _ := d.client(t, "https://mcp.test/mcp", GuardedClientOptions{})
	where, err := d.get(t, c, "https://mcp.test")
	if _, ok := reach.AsError(err); !ok || where != onPublic {
		t.Errorf("came to %q, %v", where, err)
	}
}

// TestRebinding has names that stand for one address when they are looked at, and for another when they are used.
func TestRebinding(t *testing.T) {
	t.Parallel()
	d := newDialTest(t, onPublic, onPrivate)
	c, _ := d.client(t, "https://mcp.test/mcp", GuardedClientOptions{})
	d.names.set("mcp.test", []string{onPublic}, []string{onPrivate})
	d.wantAt(t, c, "https://mcp.test", onPublic)
	d.names.set("mcp.test", []string{onPrivate}, []string{onPublic}, []string{onPrivate})
	d.wantRefused(t, c, "https://mcp.test", "private network")
	d.wantRefused(t, c, "https://mcp.test", "") // it is known now to be on the internet
}

// TestNamedByAnotherServer has a server that says it is in a private network, where another one answers.
func TestNamedByAnotherServer(t *testing.T) {
	t.Parallel()
	d := newDialTest(t, onPrivate)
	d.names.set("inside.test", []string{onPrivate})
	d.names.set("mcp.elsewhere", []string{onPrivate}) // has no certificate for that name
	c, g := d.client(t, "https://mcp.elsewhere/mcp", GuardedClientOptions{})
	d.wantRefused(t, c, "https://inside.test", "certificate")
	if g.configuredReach.Load() != nil {
		t.Error("a connection that failed is remembered")
	}
}

func TestNamedThroughAProxy(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Host)
		if r.Method == http.MethodConnect {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer proxy.Close()
	proxied, err := url.Parse(proxy.URL)
	bridgetest.Must(t, err)
	client := func(named string, all bool) *http.Client {
		c, err := NewGuardedClient(GuardedClientOptions{ConfiguredURL: named, AllowPrivate: all})
		bridgetest.Must(t, err)
		t.Cleanup(c.CloseIdleConnections)
		c.Transport.(*reachGuard).proxyOf = func(r *http.Request) (*url.URL, error) {
			if r.URL.Host == "broken.example" {
				return nil, errors.New("no proxy")
			}
			return proxied, nil
		}
		return c
	}
	for _, test := range []struct {
		named  string
		all    bool
		target string
		says   string // "": it gets there
	}{
		{"https://mcp.example/mcp", false, "as.example", "begins with http://"},
		{"https://mcp.example/mcp", true, "1.1.1.1", "begins with http://"},
		{"https://mcp.example/mcp", false, "10.0.0.1", "reached through a proxy"},
		{"https://mcp.example/mcp", false, "127.1", "no address of a server"},
		{"https://mcp.example/mcp", false, "169.254.169.254", "no address of a server"},
		{"https://mcp.example/mcp", true, "10.0.0.1", ""},
		{"https://mcp.example/mcp", true, "[::ffff:a9fe:a9fe]", "no address of a server"},
		{"https://10.0.0.1/mcp", false, "10.0.0.2", ""},
		{"https://10.0.0.1/mcp", false, "127.0.0.1", "on this machine"},
		{"https://mcp.example/mcp", false, "broken.example", "no proxy"},
	} {
		asked = nil
		resp, err := client(test.named, test.all).Get("http://" + test.target + "/x")
		if err == nil {
			_ = resp.Body.Close()
		}
		if test.says == "" && (err != nil || len(asked) != 1 || asked[0] != test.target) {
			t.Errorf("%+v: asked for %q, %v", test, asked, err)
		} else if test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says) || asked != nil) {
			t.Errorf("%+v: asked for %q, %v", test, asked, err)
		}
	}
	asked = nil
	_, err = client("https://mcp.example/mcp", false).Get("https://as.example/x")
	if err == nil || !strings.Contains(err.Error(), "teapot") || len(asked) != 1 || asked[0] != "as.example:443" {
		t.Errorf("with TLS: asked for %q, %v", asked, err)
	}
}

// TestPlainHTTP has addresses that begin with http://, where the user allows them.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	d := newDialTest(t, onPublic, onPrivate)
	d.names.set("inside.test", []string{onPrivate})
	d.names.set("as.test", []string{onPublic})
	c, _ := d.client(t, "http://inside.test/mcp", GuardedClientOptions{AllowPrivate: true})
	d.wantRefused(t, c, "http://as.test", "begins with http://")
	resp, err := c.Get(d.at("http://inside.test"))
	if err != nil || resp.StatusCode != http.StatusBadRequest { // the server there wants TLS
		t.Fatalf("inside: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

func TestClientOptions(t *testing.T) {
	t.Parallel()
	for _, named := range []string{"", "file:///etc/passwd", "https://", "mcp.example"} {
		if _, err := NewGuardedClient(GuardedClientOptions{ConfiguredURL: named}); err == nil {
			t.Errorf("%q is taken", named)
		}
	}
	c, err := NewGuardedClient(GuardedClientOptions{ConfiguredURL: "https://mcp.example"})
	if err != nil || c.Jar != nil {
		t.Errorf("%+v, %v", c, err)
	}
}
