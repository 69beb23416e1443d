package hub

import (
	"errors"
	"fmt"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// Info is what those who look after a bridge may know about a server.
type Info struct {
	Name, Description string         // the name of the server, and what the configuration says of it
	Remote            bool           // the server is reached at a URL; false: the bridge runs it
	State             upstream.State // whether it works, and what it does now
	Sessions          int            // how many sessions clients have with it
}

// Info returns what those who look after the bridge may know about each server, in the order of the configuration.
func (h *Hub) Info() []Info {
	var all []Info
	for _, s := range h.serversInOrder() {
		all = append(all, Info{
			Name: s.spec.Name, Description: h.description(s.spec.Name), Remote: !s.upstream.IsCommand(), State: s.state(), Sessions: s.sessions(),
		})
	}
	return all
}

// CancelCalls cancels the requests of clients, at all servers, that have no answer yet and for which match returns true, and returns how
// many it has cancelled. It cancels no initialize, and no request of a server.
func (h *Hub) CancelCalls(match func(bridge.PendingCall) bool) (n int) {
	for _, s := range h.serversInOrder() {
		n += s.calls.Cancel(match)
	}
	return n
}

// WaitingCalls returns the requests that have no answer yet: those of clients to all servers, and those of the servers to clients.
func (h *Hub) WaitingCalls() (all []observe.WaitingCall) {
	for _, s := range h.serversInOrder() {
		all = append(all, h.opts.Observer.WaitingCalls(s.spec.Name, &s.calls)...)
	}
	return all
}

// Restart replaces the server with this name by a new one of the same Spec. The old one takes no new sessions, and is closed in the
// background: calls in progress may finish. It is an error if there is no such server, it has a listener for messages in lines, a new one
// cannot be made, or the Hub is closed; then nothing has changed.
func (h *Hub) Restart(name string) error {
	h.applyMu.Lock()
	defer h.applyMu.Unlock()
	if h.isClosed() {
		return errClosed
	}
	h.mu.RLock()
	old := h.servers[name]
	h.mu.RUnlock()
	switch {
	case old != nil && h.hasLineListener.Load():
		return errors.New("it has a Unix socket for messages in lines, which ends with it: restart the bridge")
	case old == nil:
		return fmt.Errorf("there is no server %q", name)
	}
	spec := old.spec
	spec.OnStartFailure = nil // it is logged: a restart does not end the run
	s, err := newServer(spec, h)
	if err != nil {
		return err
	}
	s.startEagerly()
	h.mu.Lock()
	next := make(map[string]*server, len(h.servers))
	for n, at := range h.servers {
		next[n] = at
	}
	next[name] = s
	h.servers = next // the old map belongs to whoever is reading it
	h.mu.Unlock()
	h.closeInBackground(old)
	return nil
}
