package legacyserver

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Options configures a Filter. The zero value works for
// clients that never answer questions; Sealer is needed for those that do.
type Options struct {
	// Capabilities are declared to the server, as ProjectCapabilities returns
	// them. Nil or {}: none, then the server may ask for nothing.
	Capabilities []byte

	// ClientInfo is the raw clientInfo of initialize. Nil, or one that a server
	// would refuse: the bridge's own.
	ClientInfo []byte

	// Principal, Unit and Instance go into the State of a parked call, and a
	// retry must name the same: whose call it is, which unit of isolation has
	// it, and which started server of that unit. Instance is never used twice.
	Principal, Unit, Instance string

	// Sealer seals the states. Nil: calls are not parked; the server's questions
	// are answered with an error.
	Sealer *era.Sealer

	// ParkTimeout is how long a parked call waits for its retry. 0: 10 minutes.
	ParkTimeout time.Duration

	// MaxParked is how many calls may be parked at a time; the questions of others
	// are answered with an error. 0: 100.
	MaxParked int
}

// Filter is a Filter that makes a legacy server look modern (C.1,
// C.3, C.4, C.5). Make one with New.
type Filter struct {
	o      Options
	asks   bool // the server was told that clients can be asked
	parked atomic.Int64
	failed atomic.Bool

	timers timers
	link   handshake
	lastID int64 // of our requests: never used twice (J2)
	turns  int64 // counts what calls are ordered by

	calls   map[jsonrpc.ID]*call     // by the client's id: an answer is owed
	sent    map[jsonrpc.ID]*call     // by our id: in progress at the server
	tokens  map[jsonrpc.ID]*call     // by the token the server knows
	own     map[jsonrpc.ID]ownAnswer // our own requests
	asked   map[jsonrpc.ID]*question // by the server's id: an answer is owed to it
	records map[string]*call         // parked calls
	asking  int                      // calls whose questions are being collected

	spoken spokenMeta

	floor floor
	logs  logs
	tools taskTools
	subs  subscriptions
}

// ownAnswer takes the response to a request of our own.
type ownAnswer func(now time.Time, m jsonrpc.Message, out *era.Out)

var _ era.Filter = (*Filter)(nil)

// New returns the Filter for one connection to a legacy server, in
// front of which are any number of modern clients, the ids and progress tokens
// of whose requests are unique over all of them.
func New(o Options) *Filter {
	if o.ParkTimeout == 0 {
		o.ParkTimeout = 10 * time.Minute
	}
	if o.MaxParked == 0 {
		o.MaxParked = 100
	}
	if !shape.IsObject(o.Capabilities) {
		o.Capabilities = []byte("{}")
	}
	return &Filter{
		o:       o,
		asks:    o.Sealer != nil && (shape.Member(o.Capabilities, "elicitation") != nil || shape.Member(o.Capabilities, "sampling") != nil || shape.Member(o.Capabilities, "roots") != nil),
		calls:   make(map[jsonrpc.ID]*call),
		sent:    make(map[jsonrpc.ID]*call),
		tokens:  make(map[jsonrpc.ID]*call),
		own:     make(map[jsonrpc.ID]ownAnswer),
		asked:   make(map[jsonrpc.ID]*question),
		records: make(map[string]*call),
		logs:    logs{rank: len(era.LogLevels), setting: len(era.LogLevels)},
	}
}

// Parked returns how many calls wait for their retry. It may be called at any
// time by any goroutine.
func (f *Filter) Parked() int { return int(f.parked.Load()) }

// Failed reports whether initialize has come to nothing: the server has refused
// it, has not answered in time or with a version that the bridge does not know.
// Whoever has waited was told; the connection is of no more use, and the next one
// may have better luck (D4). It may be called at any time by any goroutine.
func (f *Filter) Failed() bool { return f.failed.Load() }

// FromClient implements Filter.
func (f *Filter) FromClient(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch m.Kind() {
	case jsonrpc.Request:
		f.fromClient(now, m, out)
	case jsonrpc.Notification:
		if m.Method() == "notifications/cancelled" {
			f.cancelled(now, m, out)
			return
		}
		out.Drop(m, "a modern client has no such notification")
	default:
		out.Drop(m, "a modern client sends no responses") // ST10
	}
}

// FromServer implements Filter.
func (f *Filter) FromServer(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch m.Kind() {
	case jsonrpc.Request:
		f.question(now, m, out)
	case jsonrpc.Notification:
		f.notification(now, m, out)
	case jsonrpc.Response:
		f.response(now, m, out)
	}
}

func (f *Filter) response(now time.Time, m jsonrpc.Message, out *era.Out) {
	id := m.ID()
	if key, c, ok := jsonrpc.Find(f.sent, id); ok {
		if c.task != nil {
			f.taskResponse(now, c, key, m, out)
		} else {
			f.complete(now, c, m, out)
		}
		return
	}
	f.answered(now, id, out)
	key, take, ok := jsonrpc.Find(f.own, id)
	if !ok {
		out.Drop(m, "a response to nothing that is in progress") // J12
		return
	}
	delete(f.own, key)
	take(now, m, out)
}

func (f *Filter) notification(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch m.Method() {
	case "notifications/progress":
		f.progress(m, out)
	case "notifications/message":
		f.logMessage(now, m, out)
	case "notifications/cancelled":
		f.withdrawn(m)
	case "notifications/tasks/status":
		f.taskStatus(now, m, out)
	case "notifications/tools/list_changed":
		f.toolsChanged(now, out)
		f.fanOut(m, out)
	case "notifications/prompts/list_changed", "notifications/resources/list_changed", "notifications/resources/updated":
		f.fanOut(m, out)
	default:
		out.Drop(m, "no notification of "+era.NewestModern)
	}
}

// Due implements Filter.
func (f *Filter) Due() time.Time { return f.timers.next() }

// Tick implements Filter.
func (f *Filter) Tick(now time.Time, out *era.Out) { f.timers.due(now, out) }

// ServerEnded answers every call with -32603, data.reason "server_ended". Open
// subscriptions/listen are not answered: who owns the connections knows whether
// they end with the server or are opened again at its successor (ST9). Retries
// of parked calls are told by another filter, whose Instance is another.
func (f *Filter) ServerEnded(now time.Time, err error, out *era.Out) {
	text := "the server has ended"
	if err != nil {
		text += ": " + err.Error()
	}
	for _, m := range f.link.held {
		f.refuse(m.ID(), jsonrpc.CodeInternalError, text, shape.Reason("server_ended"), out)
	}
	owed := make([]*call, 0, len(f.calls))
	for _, c := range f.calls {
		owed = append(owed, c)
	}
	slices.SortFunc(owed, func(a, b *call) int { return cmp.Compare(a.turn, b.turn) })
	for _, c := range owed {
		f.refuse(c.id, jsonrpc.CodeInternalError, text, shape.Reason("server_ended"), out)
	}
	f.link.held = nil
	clear(f.calls)
	clear(f.records)
	f.timers = timers{}
	f.parked.Store(0)
}

// ask sends a request of our own; take gets the response.
func (f *Filter) ask(method string, params []byte, take ownAnswer, out *era.Out) jsonrpc.ID {
	id := f.nextID()
	f.own[id] = take
	out.Server(jsonrpc.NewRequest(id, method, params))
	return id
}

func (f *Filter) nextID() jsonrpc.ID {
	f.lastID++
	return jsonrpc.IntID(f.lastID)
}

func (f *Filter) nextTurn() int64 {
	f.turns++
	return f.turns
}

// refuse answers a client's request with an error.
func (f *Filter) refuse(id jsonrpc.ID, code int, text string, data []byte, out *era.Out) {
	out.Client(jsonrpc.NewError(id, code, text, data).WithRelated(id))
}
