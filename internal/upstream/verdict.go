package upstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/remote"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file finds out which era a server speaks (docs/rules.md, ED7-ED10).

const (
	// probeWait is how long a server that is no HTTP server may take to answer
	// the probe. Servers that wait for initialize never do.
	probeWait = 3 * time.Second

	// probeLimit bounds a probe with everything, such as starting the server.
	probeLimit = 30 * time.Second

	// spareFor is how long the process that was probed waits for its first client.
	spareFor = 10 * time.Second
)

// probeID is the id of the probe.
var probeID = jsonrpc.StringID("mcp-bridge-probe")

// discover is the probe.
func discover() jsonrpc.Message {
	return jsonrpc.NewRequest(probeID, "server/discover", []byte(`{"_meta":{"`+era.KeyVersion+`":"`+era.NewestModern+`","`+era.KeyCapabilities+`":{}}}`))
}

// verdict is what is known of a server's eras.
type verdict struct {
	mu     sync.Mutex
	known  bool
	at     time.Time         // when it was found
	modern bool              // it speaks 2026-07-28
	spares bool              // initialize is of no use: it is refused, or begins no session
	probes map[string]*probe // that run, by party
	failed error             // of the last probe
	spare  bridge.PullConn   // the process that has answered the probe
	give   *time.Timer       // gives the spare up
}

// probe is one that runs. There is one for all parties once it has a place for its
// process; until then each has its own, so that nobody waits for a place with a party
// that has its part already.
type probe struct {
	party  string
	placed bool               // it needs no place, or has one; under verdict.mu
	cancel context.CancelFunc // another one has found out
	done   chan struct{}      // closed when it has ended, or is not needed any more
}

// of returns the probe that clients of a party wait for, nil if one has to begin. It is
// called with mu held.
func (v *verdict) of(party string) *probe {
	for _, p := range v.probes {
		if p.placed {
			return p
		}
	}
	return v.probes[party]
}

// end tells who waits for a probe, unless somebody has. It is called with mu held.
func (v *verdict) end(p *probe) {
	if v.probes[p.party] == p {
		delete(v.probes, p.party)
		p.cancel()
		close(p.done)
	}
}

// placing is the Dialer of a probe: who calls it has a place.
type placing struct {
	bridge.Dialer
	v *verdict
	p *probe
}

func (d placing) Dial(ctx context.Context) (bridge.Conn, error) {
	d.v.mu.Lock()
	d.p.placed = true
	d.v.mu.Unlock()
	return d.Dialer.Dial(ctx)
}

// era is speaksModern where that has its answer at once.
func (s *Server) era() (modern, known bool) {
	switch s.spec.Protocol {
	case era.OnlyModern:
		return true, true
	case era.OnlyLegacy:
		return false, true
	}
	v := &s.verdict
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.modern, v.known
}

// speaksModern reports whether the server speaks 2026-07-28. The error is why
// it cannot be known now.
func (s *Server) speaksModern(ctx context.Context) (bool, error) {
	if modern, known := s.era(); known {
		return modern, nil
	}
	v := &s.verdict
	v.mu.Lock()
	if v.known { // by now
		defer v.mu.Unlock()
		return v.modern, nil
	}
	p := v.of(bridge.Party(ctx))
	if p == nil {
		if p = s.startProbe(bridge.Party(ctx)); p == nil {
			v.mu.Unlock()
			return false, errClosed
		}
	}
	v.mu.Unlock()
	select {
	case <-p.done:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.known && v.failed == nil {
		return false, errChanged
	}
	return v.modern, v.failed
}

var errClosed = publicError("the server is not configured any more")

// startProbe begins to ask the server; the process counts for a party. It returns nil if
// the Server is closed. It is called with verdict.mu held.
func (s *Server) startProbe(party string) *probe {
	v := &s.verdict
	ctx, cancel := context.WithTimeout(bridge.WithParty(s.ctx, party), probeLimit)
	p := &probe{party: party, placed: s.spec.Admit == nil || s.isHTTP(), cancel: cancel, done: make(chan struct{})}
	if !s.spawn(func() { s.probe(ctx, p) }) {
		cancel()
		return nil
	}
	if v.probes == nil {
		v.probes = make(map[string]*probe)
	}
	v.probes[party] = p
	return p
}

// probe asks the server, and keeps what it says.
func (s *Server) probe(ctx context.Context, p *probe) {
	v := &s.verdict
	modern, spare, err := s.ask(ctx, placing{s.modern, v, p})
	v.mu.Lock()
	defer v.mu.Unlock()
	defer v.end(p)
	if !v.known && v.probes[p.party] == p { // the server has not said it by itself meanwhile
		if err != nil && s.ctx.Err() == nil {
			if v.failed == nil || reason(v.failed) != reason(err) {
				s.unasked(err)
			}
			if mute, ok := errors.AsType[*silence](err); ok {
				s.books.failed(mute.Error())
			}
		}
		v.known, v.at, v.modern, v.failed = err == nil, time.Now(), modern, err
		if v.known {
			s.agree(modern)
			for _, other := range v.probes {
				v.end(other)
			}
		}
	}
	switch {
	case spare == nil:
	case s.ctx.Err() != nil || v.spare != nil:
		if !s.spawn(func() { s.closed(spare) }) {
			s.closed(spare)
		}
	default:
		v.spare = spare
		v.give = time.AfterFunc(spareFor, s.dropSpare)
	}
	if err == nil {
		s.log.Debug("the server's era is found", "modern", modern)
	}
}

// ask asks the server whether it is a modern one, and returns the Conn that has
// answered, if it can go on with it.
func (s *Server) ask(ctx context.Context, d bridge.Dialer) (modern bool, spare bridge.PullConn, err error) {
	if s.isHTTP() {
		m, err := s.remote.Discover(ctx)
		if errors.Is(err, remote.ErrNotModern) {
			return false, nil, nil
		}
		return err == nil && answersModern(m), nil, err
	}
	conn, err := s.dialAdmitted(ctx, d, nil)
	if err != nil {
		return false, nil, err
	}
	asked := time.Now()
	m, err := s.answer(ctx, conn, discover(), s.patient)
	if answersModern(m) {
		return true, conn, nil
	}
	mute := &silence{command: s.IsCommand(), discover: time.Since(asked)}
	// Some servers end at anything but initialize, and some fix their era by
	// what comes first: this one is not used any more (ST15).
	silent := m.Kind() == jsonrpc.Invalid && err == nil
	switch {
	case silent:
		s.closed(conn) // its place is needed
	case !s.spawn(func() { s.closed(conn) }):
		s.closed(conn)
	}
	switch {
	case s.ctx.Err() != nil:
		return false, nil, s.ctx.Err()
	case err != nil && !s.IsCommand():
		return false, nil, err // the connection was lost, which says nothing
	case silent && ctx.Err() != nil: // it took all the time to start, or to be stopped
		return false, nil, mute
	case silent:
		modern, err = s.refusesAsModern(ctx, d, mute)
		return modern, nil, err
	}
	return false, nil, nil
}

// refusesAsModern is for a server that was silent to the probe: it waits for
// initialize, or takes long to start. What it says to initialize tells; if that is
// nothing either, the error is mute.
func (s *Server) refusesAsModern(ctx context.Context, d bridge.Dialer, mute *silence) (bool, error) {
	conn, err := s.dialAdmitted(ctx, d, nil)
	if err != nil {
		return false, err
	}
	hello := jsonrpc.NewRequest(probeID, "initialize", []byte(`{"protocolVersion":"`+era.NewestLegacy+`","capabilities":{},"clientInfo":`+string(buildinfo.Implementation())+`}`))
	asked := time.Now()
	m, err := s.answer(ctx, conn, hello, probeLimit)
	if err == nil && m.Kind() == jsonrpc.Invalid && s.ctx.Err() == nil {
		mute.initialize = time.Since(asked)
		if !s.spawn(func() { s.closed(conn) }) { // who asks has waited for long enough
			s.closed(conn)
		}
		return false, mute
	}
	s.closed(conn) // its place is needed
	switch {
	case s.ctx.Err() != nil:
		return false, s.ctx.Err()
	case err != nil && !s.IsCommand():
		return false, err
	}
	return answersModern(m) || claimsModern(m) != "", nil
}

// answer asks conn something and returns the response, an invalid Message if
// none has come in time. The error is why conn is of no use any more.
func (s *Server) answer(ctx context.Context, conn bridge.PullConn, question jsonrpc.Message, wait time.Duration) (jsonrpc.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := conn.Send(ctx, question)
	for err == nil {
		var m jsonrpc.Message
		m, err = conn.Recv(ctx)
		switch {
		case err != nil:
		case m.Kind() == jsonrpc.Response && m.ID().Equivalent(probeID):
			return m, nil
		case m.Kind() == jsonrpc.Request: // nobody else is there to answer
			err = conn.Send(ctx, era.AnswerTo(m))
		}
	}
	if ctx.Err() != nil {
		err = nil // silence
	}
	return jsonrpc.Message{}, err
}

// answersModern reports whether a response to the probe says that the server
// speaks 2026-07-28. The list of versions decides, whatever it comes with (ED7).
func answersModern(m jsonrpc.Message) bool {
	versions := m.Lookup("result", "supportedVersions")
	if m.IsError() {
		versions = m.Lookup("error", "data", "supported")
	}
	return era.HasModern(versions)
}

// claimsModern returns the version without initialize that a server has answered
// initialize with, "" if it is none (ED9).
func claimsModern(m jsonrpc.Message) string {
	if v, ok := jsonrpc.Text(m.Lookup("result", "protocolVersion")); ok && era.IsStateless(v) {
		return v
	}
	return ""
}

// takeSpare returns the process that has answered the probe, once.
func (s *Server) takeSpare() bridge.PullConn {
	v := &s.verdict
	v.mu.Lock()
	defer v.mu.Unlock()
	conn := v.spare
	if conn != nil {
		v.give.Stop()
		v.spare = nil
	}
	return conn
}

func (s *Server) dropSpare() {
	if conn := s.takeSpare(); conn != nil && !s.spawn(func() { s.closed(conn) }) {
		s.closed(conn)
	}
}

// closed closes a Conn of which nobody waits for the error.
func (s *Server) closed(conn bridge.PullConn) {
	if err := conn.Close(); err != nil {
		s.log.Warn("closing", "error", err)
	}
}

// settled is how long a verdict stands before it is doubted: a server that
// refuses everybody must not be probed for each of them.
const settled = 10 * time.Second

// decided keeps what the server has said by itself.
func (s *Server) decided(modern bool) {
	v := &s.verdict
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.known || v.modern != modern {
		s.log.Info("the server has said what it speaks", "modern", modern)
	}
	v.known, v.at, v.modern, v.failed = true, time.Now(), modern, nil
	s.agree(modern)
}

// agree ends the units that speak the other era with a server at an http URL,
// which is one server for all. (Behind a pipe or a lasting connection there may
// still be the one that it was.)
func (s *Server) agree(modern bool) {
	if !s.isHTTP() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.units {
		if u.key.legacy == modern && !s.ended {
			u.turned = true
			s.end(u)
		}
	}
}

// isHTTP reports whether the server is reached at an http or https URL.
func (s *Server) isHTTP() bool { return s.remote != nil && s.remote.IsHTTP() }

// wonder has a server at an http URL asked anew what it speaks, if the verdict has
// stood for a while: what it has said may be that of another era (ED9). If it is,
// agree ends what the others use; a mere error costs a question.
func (s *Server) wonder() {
	if s.doubt() {
		s.spawn(func() { _, _ = s.speaksModern(s.ctx) })
	}
}

// upgraded reports whether a server has refused to renew a legacy session because
// it is a modern one by now (ED9).
func (s *Server) upgraded(ctx context.Context, refusal jsonrpc.Message) bool {
	if answersModern(refusal) {
		s.decided(true)
		return true
	}
	s.doubt()
	modern, err := s.speaksModern(ctx)
	return err == nil && modern
}

// doubt makes the next client find out anew (ED9), if the verdict has stood
// for a while.
func (s *Server) doubt() bool {
	v := &s.verdict
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.known || time.Since(v.at) < s.settled {
		return false
	}
	v.known, v.spares = false, false
	s.log.Info("the server speaks another era than before, it seems: it is asked again")
	return true
}

// sparesInitialize reports whether the server is known to be a modern one that
// is of no use to legacy clients unless they are translated.
func (s *Server) sparesInitialize() bool {
	switch s.spec.Protocol {
	case era.OnlyModern:
		return true
	case era.OnlyLegacy:
		return false
	}
	v := &s.verdict
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.known && v.modern && v.spares
}

func (s *Server) spareInitialize() {
	v := &s.verdict
	v.mu.Lock()
	defer v.mu.Unlock()
	v.spares = true
}
