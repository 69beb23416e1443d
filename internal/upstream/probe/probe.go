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
	// defaultAnswerTimeout is how long a server that is not reached over HTTP may take to answer
	// server/discover. Servers that wait for initialize never do.
	defaultAnswerTimeout = 3 * time.Second

	// probeTimeout is how long it may take to find out a server's era, with everything, such as starting it. A command
	// may be started twice for that, and has Prober.AnswerTimeout and initializeAnswerTimeout more, for the first time.
	probeTimeout = 30 * time.Second

	// spareTimeout is how long a process, or connection, that has told its era waits for its first client. Then it is
	// closed.
	spareTimeout = 10 * time.Second

	// defaultSettledAfter is how long a finding must have stood before it may be doubted: a server that refuses
	// everybody must not be asked anew for each of them.
	defaultSettledAfter = 10 * time.Second
)

// A publicError is an error whose text clients may see.
type publicError string

// Error returns the text.
func (e publicError) Error() string { return string(e) }

// PublicError is what clients are told (bridge.Serve).
func (e publicError) PublicError() string { return string(e) }

// ErrChanged is the error for the clients of a server that turns out to speak another era than
// before.
const ErrChanged publicError = "the server has changed its protocol; try again"

// Options say what a Prober has to know of its server. Dial, Context, Spawn, OnEraFound, OnFailed and Logger are needed;
// ErrNotModern only beside Discover.
type Options struct {
	// Protocol is the era of the protocol that is spoken with the server. Unless it is era.Auto, the server is
	// never asked.
	Protocol era.Eras

	// IsCommand: the server is a process that Dial starts.
	IsCommand bool

	// Discover asks a server at an http URL, which is one server for all, and returns its answer to
	// server/discover. It returns an error that ErrNotModern matches where the server's answer is not that of a
	// modern one. nil: the server is not at an http URL, and is asked over a Conn of Dial.
	Discover     func(ctx context.Context) (jsonrpc.Message, error)
	ErrNotModern error // what the error of Discover matches where the server's answer is not that of a modern one

	// Dial returns a Conn to the server that speaks modern if the server does. It calls placed once it has a
	// place for the Conn; h is what holds the place.
	Dial func(ctx context.Context, h *TransferableHolder, placed func()) (bridge.Conn, error)

	// MinTimeout is the shortest time that sending a question over a Conn of Dial is given, and an inquiry as a whole,
	// because a person may have to sign in meanwhile. 0: nobody signs in.
	MinTimeout time.Duration

	// NeedsPlace says that a Conn of Dial needs a place, which may have to be waited for.
	NeedsPlace bool

	// Context ends with the server's configuration.
	Context context.Context
	Spawn   func(func()) error // Spawn runs a function in a goroutine that whoever ends Context waits for. The error: Context has ended, and the function does not run.

	// OnEraFound is told the server's era whenever that is found. It is called with the Prober's lock held, and must not
	// wait or call the Prober.
	OnEraFound func(modern bool)

	// OnFailed is told that the server has answered nothing, in words that are fit for everybody. It is called as
	// OnEraFound is.
	OnFailed func(what string)

	// Dropped is told of each message of a client that the server did not take, and why. It may be called concurrently.
	// nil: nobody is told.
	Dropped func(m jsonrpc.Message, reason string)

	// Logger gets what is found.
	Logger hclog.Logger
}

// A Prober knows which era a server speaks, or finds it out. All methods may be called concurrently.
//
// mu is held while the fields are looked at, while OnEraFound and OnFailed of Options are called, and sometimes while Spawn is:
// none of these may call the Prober.
type Prober struct {
	SettledAfter  time.Duration // how long a finding must have stood before it may be doubted: 10 s, less in tests
	AnswerTimeout time.Duration // how long a server may take to answer server/discover, or to give a second answer that could change the meaning of its first: 3 s, less in tests

	opts       Options         // the Options of New
	log        hclog.Logger    // Options.Logger
	spareTimer lazytimer.Timer // closes the spare process if nobody has taken it within spareTimeout

	mu              sync.Mutex          // guards the fields below
	known           bool                // the server's era is known, and modern says which
	foundAt         time.Time           // when the era was found, if it is known
	modern          bool                // the server speaks 2026-07-28; it means nothing unless known is true
	skipsInitialize bool                // the server is a modern one that refuses initialize, or answers it without beginning a session
	inquiries       map[string]*inquiry // the inquiries in progress, by party
	lastErr         error               // why the last inquiry has failed; nil: it has not, or the era was found since
	spare           *Process            // a process that has told its era and waits for a client; nil: none
}

// New returns a Prober that knows nothing yet. Close ends it.
func New(o Options) *Prober {
	p := &Prober{SettledAfter: defaultSettledAfter, AnswerTimeout: defaultAnswerTimeout, opts: o, log: o.Logger}
	p.spareTimer.Do = p.dropSpare
	return p
}

// A Process is a process of the server, or a connection to it, that is asked for its era or has told it, and has no
// clients yet.
type Process struct {
	Conn   bridge.Conn         // the Conn to the process
	Holder *TransferableHolder // the holder of its place

	openedParams []byte // the params of the initialize that it has accepted, as a legacy server; nil: it is modern
}

// A TransferableHolder is the limiter.Holder of a Process's place, which counts as Busy until TransferTo
// names the next holder.
type TransferableHolder struct {
	next atomic.Pointer[limiter.Holder] // who holds the place now; nil: nobody else yet
}

// TransferTo makes next the holder of the place: Use and Reclaim ask it from now on.
func (h *TransferableHolder) TransferTo(next limiter.Holder) { h.next.Store(&next) }

// Use implements limiter.Holder: Busy until TransferTo, then what the next holder says.
func (h *TransferableHolder) Use() (limiter.Use, time.Time) {
	if next := h.next.Load(); next != nil {
		return (*next).Use()
	}
	return limiter.Busy, time.Time{}
}

// Reclaim implements limiter.Holder: it asks the next holder; false if there is none yet.
func (h *TransferableHolder) Reclaim() bool {
	next := h.next.Load()
	return next != nil && (*next).Reclaim()
}

// An inquiry is one attempt to find out the server's era. There is one for all parties once it has a place
// for its process; until then each party has its own, so that nobody waits for a place with a party that has
// its part already.
type inquiry struct {
	party         string             // the party for whose clients it was begun
	hasPlace      bool               // it has a place, or needs none; under Prober.mu
	progressFuncs []func(string)     // tell the clients that wait what is waited for, if they have asked for progress (httpdial.WithProgress); under Prober.mu
	cancel        context.CancelFunc // ends its ctx; called when it is over, or another one has found out
	done          chan struct{}      // closed when it is over, or another one has found out
}

// inquiryFor returns the inquiry that clients of a party wait for: one that has a place, or else the party's own; nil:
// one has to begin. mu is held.
func (p *Prober) inquiryFor(party string) *inquiry {
	for _, q := range p.inquiries {
		if q.hasPlace {
			return q
		}
	}
	return p.inquiries[party]
}

// endInquiryLocked ends an inquiry, for those who wait for it, unless that was done. mu is held.
func (p *Prober) endInquiryLocked(q *inquiry) {
	if p.inquiries[q.party] == q {
		delete(p.inquiries, q.party)
		q.cancel()
		close(q.done)
	}
}

// isHTTP reports whether the server is reached at an http or https URL.
func (p *Prober) isHTTP() bool { return p.opts.Discover != nil }

// Known reports whether the server speaks 2026-07-28, without asking the server. known is false if it would have to be
// asked; then modern means nothing.
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

// Modern reports whether the server speaks 2026-07-28. It asks the server if that is not known. ctx has the
// party for which that is, and may have how the client opens a legacy server (WithInitializeParams), and a
// function that tells the client what is waited for (httpdial.WithProgress), which must not wait. The error
// is why it cannot be known now.
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

// startLocked begins an inquiry. client is the ctx of the client that needs it; its process counts for that
// client's party. The error is that of Options.Spawn: Options.Context has ended. mu is held.
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

// tellProgress tells the clients that wait for an inquiry what is waited for.
func (p *Prober) tellProgress(q *inquiry, text string) {
	p.mu.Lock()
	tells := slices.Clone(q.progressFuncs)
	p.mu.Unlock()
	for _, tell := range tells {
		tell(text)
	}
}

// inquire makes the inquiry q: it asks the server, keeps the finding or the error, unless the era was found in another
// way meanwhile, and keeps the spare process, unless there is one.
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

// NoteEra keeps which era the server speaks, as it has said by itself, and tells OnEraFound.
func (p *Prober) NoteEra(modern bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known || p.modern != modern {
		p.log.Info("the server has said what it speaks", "modern", modern)
	}
	p.known, p.foundAt, p.modern, p.lastErr = true, time.Now(), modern, nil
	p.opts.OnEraFound(modern)
}

// forgetFinding forgets the server's era, so that it is asked anew (ED9), unless the finding is younger than
// SettledAfter. It reports whether it has.
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

// Recheck asks a server at an http URL anew for its era, in a goroutine, unless its era is not known or the finding
// is younger than SettledAfter. It is called when an answer may be that of a server of the other era (ED9). What is found
// is told to Options.OnEraFound, which ends shared servers of the other era; an answer that was a mere error costs a
// question.
func (p *Prober) Recheck() {
	if p.forgetFinding() {
		_ = p.opts.Spawn(func() { _, _ = p.Modern(httpdial.Unattended(p.opts.Context)) })
	}
}

// SuspectOtherEra is called when the server may be one of the other era by now. A server at an http URL is
// asked anew (Recheck). unusable: the process that has said so is of no use any more, as its era is not known
// any more; the next client finds out. It is false while the finding is younger than SettledAfter, and if
// Options.Protocol says the era.
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

// Upgraded reports whether a server that has refused, with this response, to renew a legacy session is a
// modern one by now (ED9). If the response does not say so, it asks the server, unless the finding is younger
// than SettledAfter: then that counts. It is false if the server cannot be asked.
func (p *Prober) Upgraded(ctx context.Context, refusal jsonrpc.Message) bool {
	if AnswersModern(refusal) {
		p.NoteEra(true)
		return true
	}
	p.forgetFinding()
	modern, err := p.Modern(ctx)
	return err == nil && modern
}

// TakeSpare returns the spare process if it is a modern one, and hands it over; nil: there is none.
func (p *Prober) TakeSpare() *Process {
	return p.takeIf(func(spare *Process) bool { return spare.openedParams == nil })
}

// takeIf hands over the spare process if fits returns true of it; nil: there is none that fits.
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

// Close closes the spare process, if nobody has taken it. It is called after the Context of the Options has
// ended, so nobody is asked any more.
func (p *Prober) Close() {
	p.spareTimer.Stop()
	p.dropSpare()
}

// dropSpare closes the spare process, if there is one.
func (p *Prober) dropSpare() {
	if spare := p.takeIf(func(*Process) bool { return true }); spare != nil {
		p.closeLater(spare.Conn)
	}
}

// needsTranslation reports whether the server is known to be a modern one that is of no use to legacy clients
// unless they are translated.
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

// skipInitialize notes that the server is of no use to legacy clients that send it initialize.
func (p *Prober) skipInitialize() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skipsInitialize = true
}

// closeLater closes a Conn in a goroutine, or at once if none can begin any more.
func (p *Prober) closeLater(conn bridge.Conn) {
	if p.opts.Spawn(func() { p.close(conn) }) != nil {
		p.close(conn)
	}
}

// close closes a Conn, and logs the error if that fails.
func (p *Prober) close(conn bridge.Conn) {
	if err := conn.Close(nil); err != nil {
		p.log.Warn("closing", "error", err)
	}
}
