package upstream

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/probe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// kind says how a fake server behaves.
type kind int

const (
	legacyServer kind = iota
	exits             // legacy; ends at anything before initialize
	silent            // legacy; answers nothing before initialize
	modernServer      // refuses initialize
	dual              // both; fixes its era by the first message
	stateful          // legacy; answers the probe with a list of legacy versions
	asksFirst         // modern; does not say so before its ping is answered
	hangs             // legacy; answers nothing any more after anything before initialize
	lateProbe         // legacy; answers the probe, with an error, after initialize
)

// fleet is a Dialer of fake servers, each at one end of a Pipe.
type fleet struct {
	kind kind
	deaf int           // so many servers, from the first, answer nothing
	slow time.Duration // before a server reads anything

	mu              sync.Mutex
	starts, running int
	changed         chan struct{} // closed, and replaced, when running has changed
	heard           [][]string    // per server: what it was sent, method or kind
	bytes           []string      // all messages of all servers
	wg              sync.WaitGroup
}

func (f *fleet) Dial(context.Context) (bridge.Conn, error) {
	ours, theirs := bridge.Pipe()
	f.mu.Lock()
	n, k := f.starts, f.kind
	f.starts++
	f.running++
	f.heard = append(f.heard, nil)
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
	f.wg.Go(func() {
		f.serve(n, k, theirs)
		_ = theirs.Close(nil)
		f.mu.Lock()
		f.running--
		close(f.changed)
		f.changed = make(chan struct{})
		f.mu.Unlock()
	})
	return ours, nil
}

func (f *fleet) serve(n int, k kind, conn bridge.Conn) {
	var opened, modern bool
	ctx := context.Background()
	if k == asksFirst {
		_ = conn.Send(ctx, jsonrpc.NewRequest(jsonrpc.StringID("p"), "ping", nil))
	}
	time.Sleep(f.slow)
	answered := k != asksFirst
	var stuck bool
	var probe jsonrpc.Message
	var early []jsonrpc.Message
	for {
		m, err := bridgetest.Recv(ctx, conn)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.heard[n] = append(f.heard[n], m.Method())
		f.bytes = append(f.bytes, string(m.Bytes()))
		f.mu.Unlock()
		if m.Kind() == jsonrpc.Response && !m.IsError() {
			answered = true
			for _, e := range early {
				_ = conn.Send(ctx, jsonrpc.NewResult(e.ID(), []byte(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)))
			}
			early = nil
		}
		if m.Kind() != jsonrpc.Request {
			continue
		}
		if !answered && m.Method() == "server/discover" {
			early = append(early, m)
			continue
		}
		claims := era.IsModernMessage(m)
		answer := func(result string) { _ = conn.Send(ctx, jsonrpc.NewResult(m.ID(), []byte(result))) }
		refuse := func(code int, data string) {
			_ = conn.Send(ctx, jsonrpc.NewError(m.ID(), code, "no", []byte(data)))
		}
		speaksModern := k == modernServer || k == asksFirst || k == dual && (modern || !opened)
		if m.Method() == "leave" {
			return
		}
		if n < f.deaf || stuck {
			continue
		}
		switch {
		case claims && speaksModern:
			modern = true
			switch m.Method() {
			case "prompts/get":
				if state, ok := era.RequestStateOf(m); ok {
					answer(`{"resultType":"complete","messages":[],"state":` + string(jsonrpc.Quote(state)) + `}`)
				} else {
					answer(`{"resultType":"input_required","requestState":"secret \u00e9"}`)
				}
			case "server/discover":
				answer(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
			default:
				answer(`{"resultType":"complete","content":[]}`)
			}
		case m.Method() == "hang":
		case k == modernServer || k == asksFirst || modern:
			refuse(era.CodeUnsupportedVersion, `{"supported":["2026-07-28"]}`)
		case m.Method() == "initialize":
			opened = true
			answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)
			if probe.Kind() == jsonrpc.Request {
				_ = conn.Send(ctx, jsonrpc.NewError(probe.ID(), jsonrpc.CodeMethodNotFound, "no", nil))
			}
		case opened:
			answer(`{"content":[]}`)
		case k == hangs:
			stuck = true
		case k == lateProbe:
			probe = m
		case k == exits:
			return
		case k == silent:
		case k == stateful && m.Method() == "server/discover":
			answer(`{"supportedVersions":["2025-11-25","2025-06-18"]}`)
		default:
			refuse(jsonrpc.CodeInvalidRequest, `{}`)
		}
	}
}

// wait waits until so many servers were started, and so many run.
func (f *fleet) wait(t *testing.T, starts, running int) {
	t.Helper()
	for t.Context().Err() == nil {
		f.mu.Lock()
		ok := f.starts == starts && f.running == running
		changed := f.changed
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Second):
			t.Fatalf("%d servers were started and %d run, want %d and %d", f.starts, f.running, starts, running)
		}
	}
}

// count says how many servers there were.
func (f *fleet) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts
}

func serverOf(t *testing.T, f *fleet, spec Spec) *Server {
	t.Helper()
	f.changed = make(chan struct{})
	spec.Command = supervisor.Spec{Name: "fake", Path: "fake"}
	s, err := New(spec)
	bridgetest.Must(t, err)
	s.dialers.lasting, s.dialers.singleSession, s.dialers.modern = f, f, s.wrapDialer(f)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		f.wg.Wait()
	})
	return s
}

// party runs a Handler for a client, whose end it returns.
func party(t *testing.T, ctx context.Context, h bridge.Handler) bridge.Conn {
	t.Helper()
	client, ours := bridge.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.ServeConn(ctx, ours)
		_ = ours.Close(nil)
	}()
	t.Cleanup(func() {
		_ = client.Close(nil)
		cancel()
		<-done
	})
	return client
}

func parse(t *testing.T, text string) jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	bridgetest.Must(t, err)
	return m
}

func send(t *testing.T, c bridge.Conn, text string) {
	t.Helper()
	bridgetest.Must(t, c.Send(t.Context(), parse(t, text)))
}

// ask sends a request and returns its response.
func ask(t *testing.T, c bridge.Conn, text string) jsonrpc.Message {
	t.Helper()
	send(t, c, text)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		m, err := bridgetest.Recv(ctx, c)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if m.Kind() == jsonrpc.Response {
			return m
		}
	}
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	legacyCall = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`
	modernCall = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
)

// TestVerdict: ED7, ED9, ST15. Whatever a server does with the probe, clients
// of both eras are served, and it is asked once.
func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		kind   kind
		starts int // by one modern client after the other: probe and unit
	}{
		"legacy": {legacyServer, 2}, "legacy that exits": {exits, 2}, "legacy that is silent": {silent, 1},
		"stateful": {stateful, 2}, "modern": {modernServer, 1}, "both": {dual, 1},
		"modern that asks first": {asksFirst, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fleet{kind: c.kind}
			s := serverOf(t, f, Spec{})
			for range 2 {
				client := party(t, t.Context(), s.Handler(true, bridge.PumpOptions{}))
				if m := ask(t, client, modernCall); m.IsError() || string(m.Lookup("result", "resultType")) != `"complete"` {
					t.Errorf("a modern call: %s", m.Bytes())
				}
			}
			if n := f.count(); n != c.starts {
				t.Errorf("%d servers were started, want %d", n, c.starts)
			}
			client := party(t, t.Context(), s.Handler(true, bridge.PumpOptions{}))
			if m := ask(t, client, initialize); string(m.Lookup("result", "protocolVersion")) == "" {
				t.Fatalf("initialize: %s", m.Bytes())
			}
			send(t, client, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			if m := ask(t, client, legacyCall); m.IsError() {
				t.Errorf("a legacy call: %s", m.Bytes())
			}
		})
	}
}

// A legacy client of a legacy server has a process of its own, which sees its
// bytes and nothing else: no probe.
func TestLegacyIsNotProbed(t *testing.T) {
	f := &fleet{kind: exits}
	s := serverOf(t, f, Spec{})
	client := party(t, t.Context(), s.Handler(true, bridge.PumpOptions{}))
	ask(t, client, initialize)
	ask(t, client, legacyCall)
	if got := strings.Join(f.bytes, "\n"); f.count() != 1 || got != initialize+"\n"+legacyCall {
		t.Errorf("%d servers, which saw:\n%s", f.count(), got)
	}
}

// What a client sends before initialize is answered reaches a modern server, too.
func TestPipelined(t *testing.T) {
	f := &fleet{kind: modernServer}
	s := serverOf(t, f, Spec{})
	client := party(t, t.Context(), s.Handler(true, bridge.PumpOptions{}))
	send(t, client, initialize)
	send(t, client, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	send(t, client, legacyCall)
	got := map[string]bool{}
	for range 2 {
		m, err := bridgetest.Recv(t.Context(), client)
		if err != nil || m.IsError() {
			t.Fatalf("%v %s", err, m.Bytes())
		}
		got[m.ID().String()] = true
	}
	if !got["1"] || !got["2"] {
		t.Errorf("answered: %v", got)
	}
}

// TestIsolation: D.1. Who shares a server with whom.
func TestIsolation(t *testing.T) {
	withCaps := strings.Replace(modernCall, `clientCapabilities":{}`, `clientCapabilities":{"sampling":{}}`, 1)
	for name, c := range map[string]struct {
		kind      kind
		isolation Isolation
		starts    int // by: a, a, b, a with other capabilities; without probes
	}{
		"modern, auto":            {modernServer, Auto, 1},
		"modern, principal":       {modernServer, PerPrincipal, 2},
		"modern, shared":          {modernServer, Shared, 1},
		"modern, request":         {modernServer, PerRequest, 4},
		"legacy, auto":            {legacyServer, Auto, 3},
		"legacy, principal":       {legacyServer, PerPrincipal, 3},
		"legacy, shared":          {legacyServer, Shared, 1},
		"legacy, session":         {legacyServer, PerSession, 3},
		"legacy, request, modern": {legacyServer, PerRequest, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fleet{kind: c.kind}
			spec := Spec{Isolation: c.isolation, Protocol: era.OnlyLegacy}
			if c.kind == modernServer {
				spec.Protocol = era.OnlyModern
			}
			s := serverOf(t, f, spec)
			for _, who := range []struct{ principal, call string }{{"a", modernCall}, {"a", modernCall}, {"b", modernCall}, {"a", withCaps}} {
				client := party(t, identity.WithPrincipal(t.Context(), who.principal), s.ExchangeHandler(bridge.PumpOptions{}))
				if m := ask(t, client, who.call); m.IsError() {
					t.Errorf("%s", m.Bytes())
				}
			}
			if n := f.count(); n != c.starts {
				t.Errorf("%d servers were started, want %d", n, c.starts)
			}
		})
	}
}

// TestInitializeIsLegacy: ED6. Who asks for 2026-07-28 with initialize is not
// led to believe that it was agreed on.
func TestInitializeIsLegacy(t *testing.T) {
	f := &fleet{kind: legacyServer}
	s := serverOf(t, f, Spec{})
	for _, h := range []bridge.Handler{s.Handler(true, bridge.PumpOptions{}), s.LegacyOnlyHandler(bridge.PumpOptions{})} {
		ask(t, party(t, t.Context(), h), strings.Replace(initialize, "2025-06-18", "2026-07-28", 1))
		f.mu.Lock()
		if got := f.bytes[len(f.bytes)-1]; !strings.Contains(got, `"protocolVersion":"2025-11-25"`) {
			t.Errorf("the server got %s", got)
		}
		f.mu.Unlock()
	}
}

// Eras that are not wanted are refused, with the versions that are (ED5).
func TestClientEras(t *testing.T) {
	for served, text := range map[era.Eras]string{era.OnlyModern: initialize, era.OnlyLegacy: modernCall} {
		s := serverOf(t, &fleet{kind: dual}, Spec{ClientEras: served})
		client := party(t, t.Context(), s.Handler(true, bridge.PumpOptions{}))
		m := ask(t, client, text)
		if string(m.Lookup("error", "code")) != "-32022" || !strings.Contains(string(m.Lookup("error", "data", "supported")), served.Versions()[0]) {
			t.Errorf("%v: %s", served, m.Bytes())
		}
	}
}

// TestDiscoverFirst: MI19. server/discover needs nothing before it, whatever
// the server is.
func TestDiscoverFirst(t *testing.T) {
	for _, k := range []kind{exits, modernServer} {
		s := serverOf(t, &fleet{kind: k}, Spec{})
		client := party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{}))
		m := ask(t, client, strings.Replace(modernCall, "tools/call", "server/discover", 1))
		if !probe.AnswersModern(m) {
			t.Errorf("%s", m.Bytes())
		}
	}
}

// MI9: server/discover names the versions that clients may speak to the bridge,
// not those that its server speaks.
func TestDiscoveredVersions(t *testing.T) {
	for clients, want := range map[era.Eras]string{
		era.Auto: `["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`, era.OnlyModern: `["2026-07-28"]`,
	} {
		for _, k := range []kind{legacyServer, modernServer} {
			s := serverOf(t, &fleet{kind: k}, Spec{ClientEras: clients})
			client := party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{}))
			m := ask(t, client, strings.Replace(modernCall, "tools/call", "server/discover", 1))
			if got := string(m.Lookup("result", "supportedVersions")); got != want {
				t.Errorf("clients %v, server %d: %s, want %s", clients, k, got, want)
			}
		}
	}
}

// TestStateIsBound: A6. What a shared server wants back from one principal, no
// other can come with; it gets its own bytes back.
func TestStateIsBound(t *testing.T) {
	s := serverOf(t, &fleet{kind: modernServer}, Spec{})
	first := strings.Replace(modernCall, "tools/call", "prompts/get", 1)
	for name, h := range map[string]bridge.Handler{"POST": s.ExchangeHandler(bridge.PumpOptions{}), "connection": s.modernHandler(bridge.PumpOptions{})} {
		t.Run(name, func(t *testing.T) {
			as := func(principal, text string) jsonrpc.Message {
				return ask(t, party(t, identity.WithPrincipal(t.Context(), principal), h), text)
			}
			state := string(new(as("a", first)).Lookup("result", "requestState"))
			again := strings.Replace(first, `"name":"x"`, `"name":"x","requestState":`+state, 1)
			if m := as("a", again); string(m.Lookup("result", "state")) != `"secret é"` {
				t.Errorf("its own: %s", m.Bytes())
			}
			for _, second := range []string{`"requestState":"stolen","requestState":` + state, `"requestState":"stolen","requestSt\u0061te":5`, `"inputResponses":{},"inputResponses":{}`} {
				if m := as("a", strings.Replace(first, `"name":"x"`, `"name":"x",`+second, 1)); string(m.Lookup("error", "code")) != "-32600" {
					t.Errorf("%s: %s", second, m.Bytes())
				}
			}
			for _, thief := range []string{"b", "aa"} {
				if m := as(thief, again); string(m.Lookup("error", "code")) != "-32602" {
					t.Errorf("of %s: %s", thief, m.Bytes())
				}
			}
			if m := as("", first); string(m.Lookup("result", "requestState")) != `"secret \u00e9"` {
				t.Errorf("nobody has authenticated, and it is not passed as it is: %s", m.Bytes())
			}
		})
	}
}

// become makes the servers that are started from now on behave so.
func (f *fleet) become(k kind) {
	f.mu.Lock()
	f.kind = k
	f.mu.Unlock()
}

// TestEraChanges: ED9. A server that speaks another era after a restart serves
// the clients of both eras again, after an error or a few.
func TestEraChanges(t *testing.T) {
	for name, c := range map[string]struct{ from, to kind }{
		"legacy to modern": {legacyServer, modernServer}, "modern to legacy": {modernServer, legacyServer},
		"modern to one that exits": {modernServer, exits}, "modern to both": {modernServer, dual},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fleet{kind: c.from}
			s := serverOf(t, f, Spec{})
			s.prober.SettledAfter = 0
			modern := party(t, t.Context(), s.modernHandler(bridge.PumpOptions{}))
			if m := ask(t, modern, modernCall); m.IsError() {
				t.Fatalf("%s", m.Bytes())
			}
			f.become(c.to)
			ask(t, modern, strings.Replace(modernCall, "tools/call", "leave", 1))
			tries := 0
			for {
				client := party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{}))
				m := ask(t, client, modernCall)
				if !m.IsError() {
					break
				}
				if tries++; tries == 10 {
					t.Fatalf("a modern client still gets %s", m.Bytes())
				}
			}
			legacy := party(t, t.Context(), s.Handler(true, bridge.PumpOptions{}))
			if m := ask(t, legacy, initialize); m.IsError() {
				t.Fatalf("initialize: %s", m.Bytes())
			}
			if m := ask(t, legacy, legacyCall); m.IsError() {
				t.Fatalf("a legacy client gets %s", m.Bytes())
			}
		})
	}
}

// ED7: a server that takes its time to start is not taken for a legacy one,
// when it says itself that it is not.
func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{kind: modernServer, deaf: 1}
		s := serverOf(t, f, Spec{})
		if m := ask(t, party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{})), modernCall); m.IsError() {
			t.Errorf("a modern call: %s", m.Bytes())
		}
		if m := ask(t, party(t, t.Context(), s.Handler(true, bridge.PumpOptions{})), initialize); m.IsError() {
			t.Errorf("initialize: %s", m.Bytes())
		}
	})
}

// A client that says much before it reads gets all its answers.
func TestPingsBehindInitialize(t *testing.T) {
	f := &fleet{kind: modernServer}
	s := serverOf(t, f, Spec{})
	client := party(t, t.Context(), s.Handler(true, bridge.PumpOptions{}))
	const pings = 100
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = client.Send(t.Context(), parse(t, initialize))
		for i := range pings {
			_ = client.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(int64(100+i)), "ping", nil))
		}
	}()
	for range pings + 1 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		m, err := bridgetest.Recv(ctx, client)
		cancel()
		if err != nil || m.IsError() {
			t.Fatalf("%s, %v", m.Bytes(), err)
		}
	}
	<-sent
}

// Where there is a place for one process, clients of both eras are served, one
// after the other, whatever the server speaks.
func TestOnePlace(t *testing.T) {
	for _, k := range []kind{legacyServer, silent, modernServer} {
		place := make(chan struct{}, 1)
		admit := func(ctx context.Context) (func(), error) {
			select {
			case place <- struct{}{}:
				return func() { <-place }, nil
			case <-time.After(5 * time.Second):
				return nil, bridge.ErrBusy
			}
		}
		f := &fleet{kind: k}
		s := serverOf(t, f, Spec{AcquirePlace: admit, MaxShared: 1})
		s.prober.AnswerTimeout = 10 * time.Millisecond
		control := admission.New(10, admit)
		slot, err := control.Acquire(t.Context())
		bridgetest.Must(t, err)
		client := party(t, slot.Context(), s.LegacyHandler(true, bridge.PumpOptions{}))
		if m := ask(t, client, initialize); m.IsError() {
			t.Errorf("server %d: %s", k, m.Bytes())
		}
		slot.Release()
		_ = client.Close(nil)
		if m := ask(t, party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{})), modernCall); m.IsError() {
			t.Errorf("server %d: %s", k, m.Bytes())
		}
		control.Close()
	}
}

// D.3: who waits for a place in which to ask what the server speaks keeps nobody
// waiting that gets one, and hears of the answer that another has got.
func TestProbeOfEachParty(t *testing.T) {
	for _, k := range []kind{legacyServer, modernServer} {
		waits, left := make(chan struct{}), make(chan struct{})
		admit := func(ctx context.Context) (func(), error) {
			if identity.Party(ctx) != "ann" {
				return func() {}, nil
			}
			close(waits)
			<-ctx.Done() // ann has her part, and keeps it
			close(left)
			return nil, ctx.Err()
		}
		s := serverOf(t, &fleet{kind: k}, Spec{AcquirePlace: admit})
		ann := make(chan error, 1)
		go func() {
			_, err := s.prober.Modern(identity.WithParty(t.Context(), "ann"))
			ann <- err
		}()
		<-waits
		ctx, cancel := context.WithTimeout(identity.WithParty(t.Context(), "bob"), 20*time.Second)
		defer cancel()
		if m := ask(t, party(t, ctx, s.ExchangeHandler(bridge.PumpOptions{})), modernCall); m.IsError() {
			t.Fatalf("server %d: %s", k, m.Bytes())
		}
		if err := <-ann; err != nil {
			t.Errorf("server %d: who asked first: %v", k, err)
		}
		<-left
	}
}

// D12: capabilities that nobody has heard of do not start processes without end.
func TestManyCapabilities(t *testing.T) {
	f := &fleet{kind: legacyServer}
	s := serverOf(t, f, Spec{MaxShared: 3, Protocol: era.OnlyLegacy})
	with := func(caps string) jsonrpc.Message {
		call := strings.Replace(modernCall, `clientCapabilities":{}`, `clientCapabilities":{"experimental":{"`+caps+`":{}}}`, 1)
		return ask(t, party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{})), call)
	}
	for i := range 20 {
		if m := with(strings.Repeat("x", i+1)); m.IsError() {
			t.Errorf("%s", m.Bytes())
		}
	}
	if m := with(strings.Repeat("x", 5000)); !m.IsError() {
		t.Error("a server is told of 5000 bytes of capabilities")
	}
	f.wait(t, 20, 3)
}

// A server that is being asked what it speaks at the end is ended, too.
func TestCloseWhileAsking(t *testing.T) {
	f := &fleet{kind: silent}
	s := serverOf(t, f, Spec{})
	client := party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{}))
	send(t, client, modernCall)
	f.wait(t, 1, 1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	f.wait(t, 1, 0)
}

// leaving is a Dialer of servers that end at the first call, with last words.
type leaving struct{ bridge.Dialer }

func (l leaving) Dial(ctx context.Context) (bridge.Conn, error) {
	conn, err := l.Dialer.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return bridge.Intercept(conn, bridge.Hooks{Ended: func(err error) error {
		if errors.Is(err, io.EOF) {
			err = &stdio.ExitError{Name: "fake", Stderr: []string{"a's secret"}}
		}
		return err
	}}), nil
}

// What a shared server has written to stderr may be about one client: no other
// gets it. One who has the server alone does.
func TestLastWords(t *testing.T) {
	for _, k := range []kind{legacyServer, modernServer} {
		f := &fleet{kind: k}
		s := serverOf(t, f, Spec{})
		s.dialers.lasting, s.dialers.modern = leaving{f}, s.wrapDialer(leaving{f})
		client := party(t, t.Context(), s.modernHandler(bridge.PumpOptions{}))
		m := ask(t, client, strings.Replace(modernCall, "tools/call", "leave", 1))
		if text := string(m.Lookup("error", "message")); !strings.Contains(text, "ended") || strings.Contains(text, "secret") {
			t.Errorf("shared: %s", m.Bytes())
		}
	}
	f := &fleet{kind: legacyServer}
	s := serverOf(t, f, Spec{})
	s.dialers.lasting, s.dialers.singleSession = leaving{f}, leaving{f}
	client := party(t, t.Context(), s.LegacyHandler(true, bridge.PumpOptions{}))
	ask(t, client, initialize)
	if m := ask(t, client, strings.Replace(legacyCall, "tools/call", "leave", 1)); !strings.Contains(string(m.Lookup("error", "message")), "secret") {
		t.Errorf("alone: %s", m.Bytes())
	}
}

// A server that cannot be started is an error for who asks, and the next
// request tries again, also on the same connection.
func TestProbeFails(t *testing.T) {
	for name, of := range map[string]func(*Server) bridge.Handler{
		"POST":       func(s *Server) bridge.Handler { return s.ExchangeHandler(bridge.PumpOptions{}) },
		"connection": func(s *Server) bridge.Handler { return s.modernHandler(bridge.PumpOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fleet{kind: modernServer}
			s := serverOf(t, f, Spec{})
			s.dialers.modern = dialFunc(func(context.Context) (bridge.Conn, error) { return nil, errors.New("no such file") })
			client := party(t, t.Context(), of(s))
			if m := ask(t, client, modernCall); string(m.Lookup("error", "data", "reason")) != `"server_unavailable"` {
				t.Errorf("%s", m.Bytes())
			}
			s.dialers.modern = s.wrapDialer(f)
			if name == "POST" {
				client = party(t, t.Context(), of(s))
			}
			if m := ask(t, client, modernCall); m.IsError() {
				t.Errorf("%s", m.Bytes())
			}
		})
	}
}

// With a process for each request, those on one connection, too, have their own,
// which ends with the request; also when it is cancelled.
func TestRequestsOnOneConnection(t *testing.T) {
	f := &fleet{kind: legacyServer}
	s := serverOf(t, f, Spec{Isolation: PerRequest, Protocol: era.OnlyLegacy})
	client := party(t, t.Context(), s.modernHandler(bridge.PumpOptions{}))
	ask(t, client, modernCall)
	send(t, client, strings.Replace(modernCall, "tools/call", "hang", 1))
	send(t, client, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	ask(t, client, modernCall)
	f.wait(t, 3, 0)
}
