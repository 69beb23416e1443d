package upstream

import "slices"

// Isolation says which clients share a server's process, or its connection
// (docs/rules.md, D.1). The zero value is Auto.
type Isolation int

// The values of Isolation, as --isolation names them.
const (
	// Auto gives a legacy client of a legacy server a process of its own. Modern
	// clients of a legacy server share one by principal and capabilities. A
	// modern server keeps nothing about its clients: all share it.
	Auto Isolation = iota

	// PerSession: a modern server runs once for each legacy session, and for each principal where there are no
	// sessions. With a legacy server it is Auto.
	PerSession

	// PerPrincipal: clients share a process that have authenticated under the
	// same name and, if the server is a legacy one, have the same capabilities.
	PerPrincipal

	// Shared: all clients share one process. A legacy server is told that its
	// client has no capabilities, for it could not say which client it asks.
	Shared

	// PerRequest gives each request over Streamable HTTP a process of its own. Over other transports each modern
	// request has one, and each session of a legacy client.
	PerRequest
)

// isolations are the names of the values of Isolation, by value.
var isolations = []string{"auto", "session", "principal", "shared", "request"}

// Isolations returns the names that ParseIsolation takes.
func Isolations() []string { return slices.Clone(isolations) }

// ParseIsolation returns the Isolation with this name: auto, session, principal, shared or request. false:
// there is none.
func ParseIsolation(name string) (Isolation, bool) {
	i := slices.Index(isolations, name)
	return Isolation(max(i, 0)), i >= 0
}

// String returns the name that ParseIsolation takes, such as "auto".
func (i Isolation) String() string { return isolations[i] }
