package observe

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Hop is one of the two ends of the bridge. The zero Hop is neither.
type Hop uint8

// The hops.
const (
	Downstream Hop = 1 + iota // the clients' end of the bridge
	Upstream                  // the servers' end of the bridge
)

// String returns "down" or "up"; "" for the zero Hop.
func (h Hop) String() string { return [...]string{"", "down", "up"}[h] }

// Direction is where a message goes. The zero Direction is neither way.
type Direction uint8

// The directions.
const (
	ToServer Direction = 1 + iota // from a client to a server
	ToClient                      // from a server to a client
)

// String returns "c2s" or "s2c"; "" for the zero Direction.
func (d Direction) String() string { return [...]string{"", "c2s", "s2c"}[d] }

// Passed is a message that has passed one end of the bridge: one that was received from the client (Downstream, ToServer) or the
// server (Upstream, ToClient), or one that was sent to either. Watchers are told of one that was sent once it was taken; a
// Sampler gets a request in Rewrite before it is sent.
type Passed struct {
	Seq          uint64          // grows in the order in which messages came or set out, so a response has a higher one than its request; has holes; 0: no Watcher needed numbers when it came or set out
	CauseSeq     uint64          // Seq of the received message that it was made of; 0: HasCause is false, or no Watcher needed numbers when that one came
	HasCause     bool            // it was made of a received message that Watchers were told of; false: it was received, the bridge has made it, or nobody was told of that one
	Session      *Session        // the session that the message belongs to
	Hop          Hop             // at which end of the bridge it has passed
	Dir          Direction       // where it goes: to the server or to the client
	Message      jsonrpc.Message // the message, as it passed at this end
	Stream       string          // on which stream of the session; "": the transport has one stream only, it is not known, or no Watcher needs exchanges
	TimeInBridge time.Duration   // how long the bridge has had the received message that it was made of; 0: HasCause is false

	// Call is the request that the message is, answers or cancels. nil: the message does
	// none of that, or the request is not known.
	Call     *Call
	Duration time.Duration // of a response: how long after its request it passed here; 0: it is no response, or Call is nil

	// Origin is the received request that this message, which was sent, was made of: of a request, the one that passed the other
	// end of the bridge. nil: it was made of no request, it was received, or nobody was told of that request.
	Origin *Call

	// Source is the received message that this is, or that it was made of. nil: the bridge has made it, or nobody watched when that came.
	Source *Source

	at   moment // what At returns
	conn *conn  // the conn that it passed
}

// At returns when the message came, or when the bridge began to send it.
func (p *Passed) At() time.Time { return p.at.Time() }

// Call is a request as it passed one end of the bridge.
type Call struct {
	ID     jsonrpc.ID // the request's id, at this end
	Method string     // the method of the request
	Name   string     // the name of the tool or prompt, or the URI of the resource: its first 512 bytes at most; "": none, or no Watcher needed names when it passed
	Dir    Direction  // where the request goes

	cameUnwatched  bool        // it came while nobody was told of it, and WaitingCalls has made this Call: only ID, Method, Dir and began are known
	lostBeforeTold atomic.Bool // its Conn was closed before Watchers were told of it, though it may have been sent

	Size int // the size of the request, in bytes; 0: it came while nobody was told of it

	began moment // what Began returns
	conn  *conn  // the conn that it has passed; nil: it came unwatched

	ended     atomic.Bool // it was answered, or Watchers were told that it will not be
	cancelled atomic.Bool // it was cancelled by who has sent it

	tellMu        sync.Mutex             // held while Watchers are told of the request; guards changes of untoldRequest and lostBeforeTold
	untoldRequest atomic.Pointer[Passed] // of a request that is being sent: what Watchers are still to be told; nil: nothing

	hash uint64 // the hash of ID; see callTable
	next *Call  // the next request in the same chain of a callTable; nil: this is the last one

	watcherValues // what Watchers have begun with the request and end with the response
}

// Began returns when the request came, or when the bridge first began to send it.
func (c *Call) Began() time.Time { return c.began.Time() }

// A Watcher is told of what passes and what happens. It is called in the goroutines that carry
// the traffic, concurrently: it never waits, and whatever takes long it leaves to a
// goroutine of its own.
type Watcher interface {
	EventWatcher

	// Message is told of a message. p is good until Message returns, and p.Message for ever.
	Message(p *Passed)
}

// Needs is what a Watcher needs beside messages and events. It costs time, so it is left out where no Watcher needs it.
type Needs struct {
	Exchanges bool // it needs the event Exchange, and Passed.Stream
	Names     bool // it needs Call.Name; without that, the method Passed.Name finds the name of a request
	Numbers   bool // it needs Passed.Seq and Passed.CauseSeq
}

// An EventWatcher is told of events alone. It is called as a Watcher is: concurrently, in goroutines that carry traffic, so it
// never waits.
type EventWatcher interface {
	// Event is told of an event, which it may keep, but not change.
	Event(e Event)
}

// Observer tells Watchers what happens. A nil Observer has none, and its exported methods work, but for those
// that add a Watcher or a Sampler, NextSeq and GapCount. All methods may be called concurrently.
type Observer struct {
	// Describe says which server a request is for, "" for none, and where it comes from. It
	// is set before the Observer is used. nil: that is not known.
	Describe func(r *http.Request) (server, remote string)

	// Redact takes secrets out of a long text before only its beginning is kept: half a secret would not be found
	// later. It is set before the Observer is used. nil: nothing is taken out.
	Redact func(text string) string

	internedNames internedNames // shares the texts of names that come again

	mu              sync.Mutex                     // guards activeWatchers and passiveWatchers; held while messageWatchers or eventWatchers is replaced
	activeWatchers  []Watcher                      // who wants to be told of messages
	passiveWatchers []Watcher                      // who wants to be told of messages only while there are activeWatchers
	messageWatchers atomic.Pointer[[]Watcher]      // both, while there are activeWatchers; never empty; nil: nobody is told of messages
	eventWatchers   atomic.Pointer[[]EventWatcher] // everybody, for all are told of events; never empty; nil: there is nobody
	sampler         atomic.Pointer[Sampler]        // the Sampler; nil: there is none

	gapCount         atomic.Uint64 // what GapCount returns: it grows each time that a list of Watchers changes and there are no activeWatchers then
	exchangeWatchers atomic.Int64  // how many activeWatchers have Needs.Exchanges
	nameWatchers     atomic.Int64  // how many activeWatchers have Needs.Names
	numberWatchers   atomic.Int64  // how many activeWatchers have Needs.Numbers

	_ CacheLinePad // what follows changes with every message, and what is above seldom

	lastSeq      atomic.Uint64 // the number that NextSeq has returned last
	sessionCount atomic.Uint64 // the number in the latest Session.Name
}

// Watch adds a Watcher that needs everything, until stop is called. When stop has returned, the Watcher may still be told of what
// has passed while stop ran.
func (o *Observer) Watch(w Watcher) (stop func()) {
	return o.WatchFor(w, Needs{Exchanges: true, Names: true, Numbers: true})
}

// WatchFor adds a Watcher that has only these needs, until stop is called, as Watch does. It may be told more.
func (o *Observer) WatchFor(w Watcher, needs Needs) (stop func()) {
	stopEvents := o.WatchEvents(w)
	o.countNeeds(needs, 1)
	o.addOrRemove(&o.activeWatchers, w, true)
	return sync.OnceFunc(func() {
		stopEvents()
		o.addOrRemove(&o.activeWatchers, w, false)
		o.countNeeds(needs, -1)
	})
}

// countNeeds adds n to how many Watchers have these needs.
func (o *Observer) countNeeds(needs Needs, n int64) {
	if needs.Exchanges {
		o.exchangeWatchers.Add(n)
	}
	if needs.Names {
		o.nameWatchers.Add(n)
	}
	if needs.Numbers {
		o.numberWatchers.Add(n)
	}
}

// WatchAlong adds a Watcher of events, until stop is called. It is told of messages, too, while a Watcher that Watch or WatchFor
// has added is told of them, and of HTTP exchanges while one of those needs them. So by itself it costs messages nothing.
func (o *Observer) WatchAlong(w Watcher) (stop func()) {
	stopEvents := o.WatchEvents(w)
	o.addOrRemove(&o.passiveWatchers, w, true)
	return sync.OnceFunc(func() {
		stopEvents()
		o.addOrRemove(&o.passiveWatchers, w, false)
	})
}

// addOrRemove adds w to the list to, which is activeWatchers or passiveWatchers, or removes w from it (add is false), and makes
// messageWatchers of both lists anew.
func (o *Observer) addOrRemove(to *[]Watcher, w Watcher, add bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if add {
		*to = append(*to, w)
	} else {
		*to = slices.DeleteFunc(*to, func(x Watcher) bool { return x == w })
	}
	if len(o.activeWatchers) == 0 {
		o.gapCount.Add(1) // before a message passes that nobody is told of
		o.messageWatchers.Store(nil)
		return
	}
	all := slices.Concat(o.activeWatchers, o.passiveWatchers)
	o.messageWatchers.Store(&all)
}

// WatchEvents adds a Watcher of events alone, until stop is called. It costs messages nothing.
func (o *Observer) WatchEvents(w EventWatcher) (stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	add(&o.eventWatchers, w)
	return sync.OnceFunc(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		remove(&o.eventWatchers, w)
	})
}

// add adds one to a list, which is replaced and not changed. The caller holds the lock of the list.
func add[T comparable](all *atomic.Pointer[[]T], one T) {
	var list []T
	if old := all.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = append(list, one)
	all.Store(&list)
}

// remove takes one out of a list, which is replaced and not changed; an empty list becomes nil. The caller holds the lock of the
// list.
func remove[T comparable](all *atomic.Pointer[[]T], one T) {
	old := all.Load()
	if old == nil {
		return
	}
	list := slices.DeleteFunc(slices.Clone(*old), func(x T) bool { return x == one })
	if len(list) == 0 {
		all.Store(nil)
		return
	}
	all.Store(&list)
}

// GapCount returns a number that has changed by the time that a message passes of which the Watchers of messages are not told. So
// a Watcher that was told of a message, and finds the number as it was then, was told of all that has passed since.
func (o *Observer) GapCount() uint64 { return o.gapCount.Load() }

// IsWatched reports whether there is a Watcher of messages, or a Sampler, which watches some of them.
func (o *Observer) IsWatched() bool {
	return o != nil && (o.messageWatchers.Load() != nil || o.sampler.Load() != nil)
}

// WantsExchanges reports whether there is a Watcher that needs to be told of HTTP exchanges.
func (o *Observer) WantsExchanges() bool { return o != nil && o.exchangeWatchers.Load() > 0 }

// Event tells all of an event who watch events: EventWatchers, Watchers and the Sampler.
func (o *Observer) Event(e Event) {
	if o == nil {
		return
	}
	if all := o.eventWatchers.Load(); all != nil {
		for _, w := range *all {
			w.Event(e)
		}
	}
}

// tellMessage tells the Watchers of messages of p, and the Sampler unless it does not want p.
func (o *Observer) tellMessage(p *Passed) {
	if all := o.messageWatchers.Load(); all != nil {
		for _, w := range *all {
			w.Message(p)
		}
	}
	if s := o.sampler.Load(); s != nil && !p.isUnsampled() {
		(*s).Message(p)
	}
}

// Refuse tells the Observer of r's ctx, if there is one, that r is refused. It is for
// whoever answers a request with an HTTP status. w is what the Handler was given. Refuse writes no answer. It costs only refused
// requests anything. rule and why are Rule and Reason of the event Refused.
func Refuse(w http.ResponseWriter, r *http.Request, rule string, status int, why string) {
	o := FromContext(r.Context())
	if o == nil || o.eventWatchers.Load() == nil {
		return
	}
	if x := exchangeOf(w); x != nil {
		x.Rule, x.Reason = rule, why
	}
	cause, _ := r.Context().Value(causeKey{}).(string)
	e := Refused{Cause: cause, Rule: rule, Method: r.Method, Path: r.URL.Path, RemoteAddr: r.RemoteAddr, Status: status, Reason: why}
	if o.Describe != nil {
		e.Server, e.RemoteAddr = o.Describe(r)
	}
	if status == http.StatusForbidden && cause == "" || status == http.StatusBadRequest && (rule == "LI1" || rule == "LI2") {
		e.Host, e.Origin = clip(r.Host), clip(r.Header.Get("Origin"))
	}
	o.Event(e)
}

// causeKey is the key in a context of what WithCause has noted.
type causeKey struct{}

// WithCause returns r with a context that says what the event Refused of r is to have as its Cause; for the cause "", r itself.
func WithCause(r *http.Request, cause string) *http.Request {
	if cause == "" {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), causeKey{}, cause))
}

// clip returns the first 100 bytes of s.
func clip(s string) string { return s[:min(len(s), 100)] }

// NextSeq returns a number of the sequence that Passed.Seq is of, for a Watcher that numbers
// events, too.
func (o *Observer) NextSeq() uint64 { return o.lastSeq.Add(1) }

// nextMessageSeq returns the number of a message; 0: no Watcher needs it.
func (o *Observer) nextMessageSeq() uint64 {
	if o.numberWatchers.Load() == 0 {
		return 0
	}
	return o.NextSeq()
}

// observerKey is the key of the Observer in a context.
type observerKey struct{}

// NewContext returns a ctx that carries the Observer to where requests are refused.
func NewContext(ctx context.Context, o *Observer) context.Context {
	return context.WithValue(ctx, observerKey{}, o)
}

// FromContext returns the Observer of a ctx; nil: there is none.
func FromContext(ctx context.Context) *Observer {
	o, _ := ctx.Value(observerKey{}).(*Observer)
	return o
}
