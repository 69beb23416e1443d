// Package hub exposes servers: one alone, or many by name. It maps paths to the
// transports of each, bounds what runs, and takes over a new configuration
// without disturbing the servers that it leaves as they are.
package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/stdio"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// Options tune a Hub. The zero value works.
type Options struct {
	// Guard says who may come in: it checks Origin, Host and tokens on every path, but no token for /healthz and /readyz, and
	// nothing for what Metadata answers.
	Guard access.Policy

	// Metadata answers clients that ask how they are to authenticate (RFC 9728), for everybody. nil:
	// nothing is said of it.
	Metadata http.Handler

	// TaskIDSecret returns the secret with which ids of tasks are bound to their principals (upstream.Spec). nil: it
	// is derived from Guard.Tokens.
	TaskIDSecret func() []byte

	// PathPrefix is a path that a reverse proxy has put in front of ours, such
	// as "/tools". Requests are understood with it and without, as some proxies
	// take it off and some do not; what clients are told has it. "": the prefix that a trusted proxy names in a header
	// (X-Forwarded-Prefix), if any, is put in front of what clients are told.
	PathPrefix string

	// PublicURL is what clients write before our paths, with PathPrefix, such as "https://mcp.example.com/tools". The start
	// page shows it. "": the start page shows the address that the request was sent to.
	PublicURL string

	// SingleServer exposes the only server at /mcp, /sse, /message and /ws. Otherwise
	// each has these below /servers/NAME, and /servers lists them.
	SingleServer bool

	// Deadlines bound how long a request's client may take to send and to read, whatever the path of the request.
	Deadlines httpserve.Deadlines

	// PeerUser returns a name for the user at the other end of a connection that carries messages in lines, "" if it is not known.
	// Clients of the same user count as one party when places are shared out. nil: all such clients are one party.
	PeerUser func(net.Conn) string

	// Observer is told of what passes and what happens. nil: nobody is.
	Observer *observe.Observer

	// Logger is told what happens. nil means no logging.
	Logger hclog.Logger
}

// taskIDSecret returns the secret with which ids of tasks are bound to their principals: that of TaskIDSecret or, where it is nil, one
// that is derived from Guard.Tokens.
func (o *Options) taskIDSecret() []byte {
	if o.TaskIDSecret == nil {
		return o.Guard.Tokens.DeriveSecret()
	}
	return o.TaskIDSecret()
}

// party returns the party, of those among whom places are shared out, that a client with messages in lines belongs to: that of its user
// (PeerUser).
func (o *Options) party(c net.Conn) string {
	if o.PeerUser == nil {
		return ""
	}
	return access.PeerParty(o.PeerUser(c))
}

// publicPrefix returns the path that the client of a request must put in front of our paths: PathPrefix, or else what a trusted proxy
// says in a header; "": nothing.
func (o *Options) publicPrefix(r *http.Request) string {
	if o.PathPrefix != "" {
		return o.PathPrefix
	}
	return o.Guard.Prefix(r)
}

// Hub is an http.Handler for all servers. Its methods may be called concurrently.
type Hub struct {
	opts           Options        // New's, with a Logger
	handler        http.Handler   // calls serve, within Options.Deadlines
	totalProcesses *processLimit  // bounds the processes of all servers together
	clientBudget   *budget.Budget // how much memory clients of all servers may make us hold
	resumeBudget   *budget.Budget // how much memory may be kept for clients that come back to a broken stream

	applyMu        sync.Mutex          // held while the servers are exchanged: by Apply, by Restart and at the beginning of Close
	closingServers sync.WaitGroup      // waits for servers that are being closed, and for lineRefuser at the end
	lineRefuser    *stdio.SocketServer // refuses clients that send lines over a socket, where there are many servers or clients must authenticate

	hasLineListener atomic.Bool // ServeLines has given a listener to the server, which cannot pass it on to a new one

	mu             sync.RWMutex       // guards the fields below
	servers        map[string]*server // the servers, by name; the map is replaced as a whole, and never changed
	serverOrder    []string           // the names of the servers, in the order of the configuration
	descriptions   map[string]string  // the descriptions of the servers, by name; they may change while a server stays
	leavingServers map[*server]bool   // the servers that a new configuration or Restart has removed or replaced, and that have not ended yet
	closed         chan struct{}      // closed by Close
}

// New returns a Hub without servers. Close ends it.
func New(o Options) *Hub {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	h := &Hub{
		opts: o, servers: make(map[string]*server), leavingServers: make(map[*server]bool), closed: make(chan struct{}),
		clientBudget: budget.ForMessages(defaultMaxMessageSize), resumeBudget: budget.New(streamhttp.DefaultResumeBytes),
	}
	if o.Observer != nil {
		o.Observer.Describe = h.describeRequest
	}
	h.handler = o.Deadlines.Handler(http.HandlerFunc(h.serve))
	h.totalProcesses = newProcessLimit(0, 10*DefaultQueue, "--max-children-total")
	h.lineRefuser = stdio.NewSocketServer(refusingHandler(o), stdio.ServerOptions{
		MaxMessageSize: maxRefusedClientMessageSize, MaxSessions: maxRefusedClientSessions, Budget: h.clientBudget, Party: h.opts.party, Logger: o.Logger,
	})
	return h
}

// SetMaxChildren bounds the processes of all servers together, from now on.
// 0 is no bound, as at the beginning.
func (h *Hub) SetMaxChildren(n int) { h.totalProcesses.Resize(n) }

// Bounds for clients that are only told why they cannot be served in lines (Hub.lineRefuser).
const (
	maxRefusedClientMessageSize = 64 << 10 // how large a message may be of a client that is only told why it cannot be served in lines, in bytes
	maxRefusedClientSessions    = 100      // how many clients there may be at a time that are only told why they cannot be served in lines
)

// errClosed is the error of Apply and Restart after Close.
var errClosed = errors.New("the hub is closed")

// Apply makes specs the servers of the Hub. A server that is there already, with the same Spec.Fingerprint, keeps its sessions; one that
// is gone or was changed takes no new ones, and is closed in the background: calls in progress may finish. It is an error if a server cannot
// be made, two have the same name, or the Hub is closed; then nothing has changed.
func (h *Hub) Apply(specs []Spec) error {
	h.applyMu.Lock()
	defer h.applyMu.Unlock()
	h.mu.RLock()
	old := h.servers
	h.mu.RUnlock()
	if h.isClosed() {
		return errClosed
	}
	next, order, made, err := h.planServers(old, specs)
	if err != nil {
		for _, s := range made {
			s.close()
		}
		return err
	}
	texts := make(map[string]string, len(specs))
	for _, spec := range specs {
		texts[spec.Name] = spec.Description
	}
	h.mu.Lock()
	h.servers, h.serverOrder, h.descriptions = next, order, texts
	for name, s := range old {
		if next[name] != s {
			h.leavingServers[s] = true // at once, so that NamesInUse has its name without a gap
		}
	}
	h.mu.Unlock()
	h.clientBudget.Resize(budgetFor(specs))
	h.logChanges(old, next, order)
	for name, s := range old {
		if next[name] != s {
			s.log.Info("the server is not configured so any more: calls in progress may finish", "sessions", s.sessions())
			h.closeInBackground(s)
		}
	}
	return nil
}

// logChanges logs the names of the servers that a new configuration has added, changed and removed. Of the first configuration it
// logs nothing. order are the names in next.
func (h *Hub) logChanges(old, next map[string]*server, order []string) {
	if len(old) == 0 { // it is the first one
		return
	}
	var added, changed, removed []string
	for _, name := range order {
		switch was := old[name]; {
		case was == nil:
			added = append(added, name)
		case was != next[name]:
			changed = append(changed, name)
		}
	}
	for name := range old {
		if next[name] == nil {
			removed = append(removed, name)
		}
	}
	slices.Sort(removed)
	var fields []any
	for _, list := range []struct {
		what  string
		names []string
	}{{"added", added}, {"changed", changed}, {"removed", removed}} {
		if len(list.names) > 0 {
			fields = append(fields, list.what, strings.Join(list.names, ", "))
		}
	}
	if len(fields) == 0 {
		h.opts.Logger.Info("the configuration changes no server")
		return
	}
	h.opts.Logger.Info("servers changed", fields...)
}

// closeInBackground closes a server that was removed or replaced, in a goroutine that Close waits for. Until that is done, the server is
// in leavingServers.
func (h *Hub) closeInBackground(s *server) {
	s.isRemoved.Store(true)
	h.mu.Lock()
	h.leavingServers[s] = true
	h.mu.Unlock()
	h.closingServers.Go(func() {
		s.close()
		h.mu.Lock()
		delete(h.leavingServers, s)
		h.mu.Unlock()
	})
}

// budgetFor returns the size of clientBudget in bytes for these servers: as much as the server with the largest messages needs.
func budgetFor(specs []Spec) int64 {
	most := 0
	for _, spec := range specs {
		most = max(most, cmp.Or(spec.MaxMessageSize, defaultMaxMessageSize))
	}
	return budget.TotalFor(most)
}

// planServers returns as next the servers that specs describe, by name: those of old that stay, and new ones, of which those with
// Spec.Eager are starting. order are their names in the order of specs. created are the new ones, also after an error: then the caller
// has to close them.
func (h *Hub) planServers(old map[string]*server, specs []Spec) (next map[string]*server, order []string, created []*server, err error) {
	next = make(map[string]*server, len(specs))
	for _, spec := range specs {
		if next[spec.Name] != nil {
			return nil, nil, created, fmt.Errorf("two servers have the name %q", spec.Name)
		}
		s := old[spec.Name]
		if s == nil || s.spec.Fingerprint != spec.Fingerprint {
			if s, err = newServer(spec, h); err != nil {
				return nil, nil, created, fmt.Errorf("server %q: %w", spec.Name, err)
			}
			created = append(created, s)
			if err := s.upstream.Check(); err != nil {
				s.log.Warn("the server cannot be started as things are", "error", err)
			}
			s.startEagerly()
		}
		next[spec.Name] = s
		order = append(order, spec.Name)
	}
	return next, order, created, nil
}

// pathPrefix returns the path in front of the endpoints of a server, such as /servers/NAME; "" with Options.SingleServer.
func (h *Hub) pathPrefix(name string) string {
	if h.opts.SingleServer {
		return ""
	}
	return basePath(name)
}

// Close ends all servers: calls in progress may finish within the ShutdownGrace of
// their server's Pump, also those of servers that were removed before. It
// returns when all have ended. The error is always nil.
func (h *Hub) Close() error {
	h.applyMu.Lock()
	if !h.isClosed() {
		close(h.closed)
	}
	h.mu.RLock()
	all := h.servers
	h.mu.RUnlock()
	h.applyMu.Unlock()
	for _, s := range all {
		h.closingServers.Go(s.close)
	}
	h.closingServers.Go(func() { _ = h.lineRefuser.Close() })
	h.closingServers.Wait()
	return nil
}

// AwaitStarts waits, for each server with Spec.Eager, until its process runs, or until it was reported that it cannot be started
// (Spec.OnStartFailure); and no longer than until ctx is done.
func (h *Hub) AwaitStarts(ctx context.Context) {
	for _, s := range h.serversInOrder() {
		s.upstream.AwaitStart(ctx)
	}
}

// isClosed reports whether Close was called. It is called with applyMu held.
func (h *Hub) isClosed() bool {
	select {
	case <-h.closed:
		return true
	default:
		return false
	}
}

// CountLeaving returns how many servers a new configuration or Restart has removed or
// replaced that have not ended yet, and how many sessions these have.
func (h *Hub) CountLeaving() (servers, sessions int) {
	h.mu.RLock()
	all := slices.Collect(maps.Keys(h.leavingServers))
	h.mu.RUnlock()
	for _, s := range all {
		sessions += s.sessions()
	}
	return len(all), sessions
}

// Sessions returns how many sessions all servers have together; those of servers that were removed or replaced do not count.
func (h *Hub) Sessions() int {
	n := 0
	for _, s := range h.serversInOrder() {
		n += s.sessions()
	}
	return n
}

// serversInOrder returns the servers in the order of the configuration.
func (h *Hub) serversInOrder() []*server {
	h.mu.RLock()
	defer h.mu.RUnlock()
	list := make([]*server, 0, len(h.serverOrder))
	for _, name := range h.serverOrder {
		list = append(list, h.servers[name])
	}
	return list
}

// description returns the Description of the server with this name; "": it has none.
func (h *Hub) description(name string) string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.descriptions[name]
}

// ServeLines serves clients that send messages in lines on l's connections, until l is closed. With many servers, a line does not say
// which one is meant, and where clients must authenticate, it has no place for a token: in these cases each request is answered with an
// error. ServeLines returns nil when l or the Hub was closed, or the error with which l has ended.
func (h *Hub) ServeLines(l net.Listener) error {
	if list := h.serversInOrder(); h.opts.SingleServer && !h.opts.Guard.Authenticates() && len(list) == 1 {
		h.hasLineListener.Store(true)
		return list[0].lines.Serve(l)
	}
	return h.lineRefuser.Serve(l)
}

// States returns the state of each server, by name.
func (h *Hub) States() map[string]upstream.State {
	all := map[string]upstream.State{}
	for _, s := range h.serversInOrder() {
		all[s.spec.Name] = s.state()
	}
	return all
}

// NamesInUse returns the names of the servers, and of those that were removed or replaced and have not ended yet; in no order, and a
// name perhaps more than once.
func (h *Hub) NamesInUse() []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	names := slices.Clone(h.serverOrder)
	for s := range h.leavingServers {
		names = append(names, s.spec.Name)
	}
	return names
}
