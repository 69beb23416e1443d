// Package probe finds out which era a server speaks (docs/rules.md, ED7 to ED10): it asks
// the server, keeps the answer for all clients until something speaks against it, and lets
// a legacy client go on with a translating Conn where the server turns out to be modern.
package probe

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/internal/limiter"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// defaultAnswerTimeout is how long a server that is no HTTP server may take to answer
	// the probe. Servers that wait for initialize never do.
	defaultAnswerTimeout = 3 * time.Second

	// probeTimeout bounds a probe with everything, such as starting the server. Of a command
	// that may be done twice, the first time within initializeAnswerTimeout.
	probeTimeout = 30 * time.Second

	// spareTimeout is how long the process that was probed waits for its first client.
	spareTimeout = 10 * time.Second

	// defaultSettledAfter is how long a finding stands before it is doubted: a server that
	// refuses everybody must not be probed for each of them.
	defaultSettledAfter = 10 * time.Second
)

type publicError string

func (e publicError) Error() string { return string(e) }

// PublicError is what clients are told (bridge.Serve).
func (e publicError) PublicError() string { return string(e) }

// ErrChanged is the error for the clients of a server that turns out to speak another era than
// before.
const ErrChanged publicError = "the server has changed its protocol; try again"

// Options say what a Prober has to know of its server.
type Options struct {
	// Protocol is what is spoken with the server. Unless it is era.Auto, nobody asks.
	Protocol era.Eras

	// IsCommand: the server is a process that Dial starts.
	IsCommand bool

	// Discover asks a server at an http URL, which is one server for all. It returns an
	// error that ErrNotModern matches where the server's answer is not that of a modern
	// one. nil: the server is asked over a Conn of Dial.
	Discover     func(ctx context.Context) (jsonrpc.Message, error)
	ErrNotModern error

	// Dial returns a Conn to the server that speaks modern if the server does. It
	// calls placed once it has a place for the Conn, whose holder is h.
	Dial func(ctx context.Context, h *TransferableHolder, placed func()) (bridge.Conn, error)

	// MinTimeout is how long Discover, or the way to the server over a Conn of Dial, may take at least, because a person may sign in
	// meanwhile.
	MinTimeout time.Duration

	// NeedsPlace: a Conn of Dial needs a place, which may have to be waited for.
	NeedsPlace bool

	// Context ends with the server's configuration. Spawn runs something in a goroutine
	// that the end of that waits for; its error says that it has ended.
	Context context.Context
	Spawn   func(func()) error

	// OnEraFound is told what the server speaks whenever that is found.
	OnEraFound func(modern bool)

	// OnFailed is told why the server could not be asked, in words that are fit for everybody.
	OnFailed func(what string)

	// Dropped is told of messages that reached nobody, and why. nil: nobody is.
	Dropped func(m jsonrpc.Message, reason string)

	// Logger is told what is found.
	Logger hclog.Logger
}

// A Prober knows which era a server speaks. All methods may be called concurrently.
//
// mu is held while the fields are looked at, and while OnEraFound and Spawn are called.
type Prober struct {
	// SettledAfter and AnswerTimeout replace 10 and 3 seconds in tests.
	SettledAfter, AnswerTimeout time.Duration

	opts       Options
	log        hclog.Logger
	spareTimer lazytimer.Timer // gives the spare up

	mu              sync.Mutex
	known           bool                // it is known what the server speaks: modern
	foundAt         time.Time           // when it was found
	modern          bool                // it speaks 2026-07-28
	skipsInitialize bool                // initialize is of no use: it is refused, or begins no session
	inquiries       map[string]*inquiry // that go on, by party
	lastErr         error               // of the last one
	spare           *Process            // the process that has answered; nil: none has, or it was taken
}

// New returns a Prober that knows nothing yet. Close ends it.
func New(o Options) *Prober {
	p := &Prober{SettledAfter: defaultSettledAfter, AnswerTimeout: defaultAnswerTimeout, opts: o, log: o.Logger}
	p.spareTimer.Do = p.dropSpare
	return p
}

// Process is a server that has said what it speaks, and has no clients yet.
type Process struct {
	Conn   bridge.Conn
	Holder *TransferableHolder

	openedParams []byte // the params of the initialize that it has accepted; nil: it speaks modern
}

// TransferableHolder is the limiter.Holder of a process's place. The process is in use
// until it is given to somebody else who holds the place from then on.
type TransferableHolder struct {
	next atomic.Pointer[limiter.Holder] // nil: the place was not given to anybody yet
}

// TransferTo makes next the holder of the place.
func (h *TransferableHolder) TransferTo(next limiter.Holder) { h.next.Store(&next) }

// Use implements limiter.Holder.
func (h *TransferableHolder) Use() (limiter.Use, time.Time) {
	if next := h.next.Load(); next != nil {
		return (*next).Use()
	}
	return limiter.Busy, time.Time{}
}

// Reclaim implements limiter.Holder.
func (h *TransferableHolder) Reclaim() bool {
	next := h.next.Load()
	return next != nil && (*next).Reclaim()
}

// inquiry is one attempt to find out. There is one for all parties once it has a place for
// its process; until then each party has its own, so that nobody waits for a place with a
// party that has its part already.
type inquiry struct {
	party         string
	hasPlace      bool               // it needs no place, or has one; under Prober.mu
	progressFuncs []func(string)     // the clients that wait and have asked for progress (httpdial.WithProgress); under Prober.mu
	cancel        context.CancelFunc // called when it has ended, or another one has found out
	done          chan struct{}      // closed when it has ended, or is not needed any more
}

// inquiryFor returns the inquiry that clients of a party wait for, nil if one has to
// begin. It is called with mu held.
func (p *Prober) inquiryFor(party string) *inquiry {
	for _, q := range p.inquiries {
		if q.hasPlace {
			return q
		}
	}
	return p.inquiries[party]
}

// endInquiryLocked tells who waits for an inquiry, unless somebody has.
func (p *Prober) endInquiryLocked(q *inquiry) {
	if p.inquiries[q.party] == q {
		delete(p.inquiries, q.party)
		q.cancel()
		close(q.done)
	}
}

// isHTTP reports whether the server is reached at an http or https URL.
func (p *Prober) isHTTP() bool { return p.opts.Discover != nil }

// Known is Modern where that has its answer at once.
func (p *Prober) Known() (modern, known bool) {
	switch p.opts.Protocol {
	case era.OnlyModern:
		return true, true
	case era.OnlyLegacy:
		return false, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.modern, p.known
}

// Modern reports whether the server speaks 2026-07-28. It asks the server if need be; ctx
// has the party for which that is, and may have how the client opens a legacy server (WithInitializeParams), and a function that tells the client what is waited for
// (httpdial.WithProgress), which must not wait. The error is why it cannot be known now.
func (p *Prober) Modern(ctx context.Context) (bool, error) {
	if modern, known := p.Known(); known {
		return modern, nil
	}
	p.mu.Lock()
	if p.known { // by now
		defer p.mu.Unlock()
		return p.modern, nil
	}
	q := p.inquiryFor(identity.Party(ctx))
	if q == nil {
		var err error
		if q, err = p.startLocked(ctx); err != nil {
			p.mu.Unlock()
			return false, err
		}
	}
	if tell := httpdial.ProgressOf(ctx); tell != nil {
		q.progressFuncs = append(q.progressFuncs, func(text string) {
			if ctx.Err() == nil { // otherwise its request is answered or cancelled, while the inquiry goes on for others
				tell(text)
			}
		})
	}
	p.mu.Unlock()
	select {
	case <-q.done:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known && p.lastErr == nil {
		return false, ErrChanged
	}
	return p.modern, p.lastErr
}

// startLocked begins to ask the server, for who has come with the ctx client; the process counts for that party.
func (p *Prober) startLocked(client context.Context) (*inquiry, error) {
	party := identity.Party(client)
	ctx := identity.WithParty(p.opts.Context, party)
	if httpdial.IsUnattended(client) {
		ctx = httpdial.Unattended(ctx)
	}
	if params := initializeParamsOf(client); params != nil {
		ctx = WithInitializeParams(ctx, params)
	}
	limit := probeTimeout
	if p.opts.IsCommand {
		limit += p.AnswerTimeout + initializeAnswerTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, max(limit, p.opts.MinTimeout))
	q := &inquiry{party: party, hasPlace: !p.opts.NeedsPlace || p.isHTTP(), cancel: cancel, done: make(chan struct{})}
	ctx = httpdial.WithProgress(ctx, func(text string) { p.tellProgress(q, text) })
	if err := p.opts.Spawn(func() { p.inquire(ctx, q) }); err != nil {
		cancel()
		return nil, err
	}
	if p.inquiries == nil {
		p.inquiries = make(map[string]*inquiry)
	}
	p.inquiries[party] = q
	return q, nil
}

// tellProgress tells the clients that wait for an inquiry what the inquiry waits for.
func (p *Prober) tellProgress(q *inquiry, text string) {
	p.mu.Lock()
	tells := slices.Clone(q.progressFuncs)
	p.mu.Unlock()
	for _, tell := range tells {
		tell(text)
	}
}

// inquire asks the server, and keeps what it says.
func (p *Prober) inquire(ctx context.Context, q *inquiry) {
	modern, spare, err := p.ask(ctx, func() {
		p.mu.Lock()
		q.hasPlace = true
		p.mu.Unlock()
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.endInquiryLocked(q)
	if !p.known && p.inquiries[q.party] == q { // the server has not said it by itself meanwhile
		if err != nil && p.opts.Context.Err() == nil {
			if p.lastErr == nil || failureReason(p.lastErr) != failureReason(err) {
				p.noteUnasked(err)
			}
			if mute, ok := errors.AsType[*silentError](err); ok {
				p.opts.OnFailed(mute.Error())
			}
		}
		p.known, p.foundAt, p.modern, p.lastErr = err == nil, time.Now(), modern, err
		if p.known {
			p.opts.OnEraFound(modern)
			for _, other := range p.inquiries {
				p.endInquiryLocked(other)
			}
		}
	}
	switch {
	case spare == nil:
	case p.opts.Context.Err() != nil || p.spare != nil:
		p.closeLater(spare.Conn)
	default:
		p.spare = spare
		p.spareTimer.SetAfter(spareTimeout)
	}
	if err == nil {
		p.log.Debug("the server's era is found", "modern", modern)
	}
}

// NoteEra keeps what the server has said by itself.
func (p *Prober) NoteEra(modern bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known || p.modern != modern {
		p.log.Info("the server has said what it speaks", "modern", modern)
	}
	p.known, p.foundAt, p.modern, p.lastErr = true, time.Now(), modern, nil
	p.opts.OnEraFound(modern)
}

// forgetFinding makes the next client find out anew (ED9), if the finding has stood for a while.
// It reports whether it does.
func (p *Prober) forgetFinding() (forgot bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known || time.Since(p.foundAt) < p.SettledAfter {
		return false
	}
	p.known, p.skipsInitialize = false, false
	p.log.Info("the server speaks another era than before, it seems: it is asked again")
	return true
}

// Recheck has a server at an http URL asked anew what it speaks, if the finding has
// stood for a while: what it has said may be that of another era (ED9). If it is,
// OnEraFound ends what the others use; a mere error costs a question.
func (p *Prober) Recheck() {
	if p.forgetFinding() {
		_ = p.opts.Spawn(func() { _, _ = p.Modern(httpdial.Unattended(p.opts.Context)) })
	}
}

// SuspectOtherEra is told that the server may be one of the other era by now. Servers at an http
// URL are asked. unusable: the process that has said so is of no use any more, as its era
// may have changed; the next client finds out.
func (p *Prober) SuspectOtherEra() (unusable bool) {
	switch {
	case p.opts.Protocol != era.Auto:
		return false
	case p.isHTTP():
		p.Recheck()
		return false
	}
	return p.forgetFinding()
}

// Upgraded reports whether a server has refused to renew a legacy session because
// it is a modern one by now (ED9).
func (p *Prober) Upgraded(ctx context.Context, refusal jsonrpc.Message) bool {
	if AnswersModern(refusal) {
		p.NoteEra(true)
		return true
	}
	p.forgetFinding()
	modern, err := p.Modern(ctx)
	return err == nil && modern
}

// TakeSpare returns the process that has answered the probe, once; nil: there is none.
func (p *Prober) TakeSpare() *Process {
	return p.takeIf(func(spare *Process) bool { return spare.openedParams == nil })
}

func (p *Prober) takeIf(fits func(*Process) bool) *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	spare := p.spare
	if spare == nil || !fits(spare) {
		return nil
	}
	p.spareTimer.Clear()
	p.spare = nil
	return spare
}

// Close closes the process that has answered, if nobody has taken it. It is called after the Context of the
// Options has ended, so nobody is asked any more.
func (p *Prober) Close() {
	p.spareTimer.Stop()
	p.dropSpare()
}

func (p *Prober) dropSpare() {
	if spare := p.takeIf(func(*Process) bool { return true }); spare != nil {
		p.closeLater(spare.Conn)
	}
}

// needsTranslation reports whether the server is known to be a modern one that
// is of no use to legacy clients unless they are translated.
func (p *Prober) needsTranslation() bool {
	switch p.opts.Protocol {
	case era.OnlyModern:
		return true
	case era.OnlyLegacy:
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known && p.modern && p.skipsInitialize
}

func (p *Prober) skipInitialize() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skipsInitialize = true
}

// closeLater closes a Conn without waiting for it.
func (p *Prober) closeLater(conn bridge.Conn) {
	if p.opts.Spawn(func() { p.close(conn) }) != nil {
		p.close(conn)
	}
}

// close closes a Conn of which nobody waits for the error.
func (p *Prober) close(conn bridge.Conn) {
	if err := conn.Close(nil); err != nil {
		p.log.Warn("closing", "error", err)
	}
}
