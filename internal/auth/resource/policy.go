package resource

import (
	"bufio"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Policy says which scopes messages need. A nil Policy says that they need none. ParsePolicy makes
// one. It may be used concurrently.
type Policy struct {
	rulesByMethod map[string][]policyRule // the rules by METHOD; "*": those for every method
	impliedScopes map[string][]string     // by scope: all the scopes that it implies, without itself
}

// A policyRule is one line of a policy that demands scopes, without its method.
type policyRule struct {
	namePattern string   // the PATTERN of ParsePolicy, with * and ?, which the name in the message must fit; "": any name fits, also none
	scopes      []string // the scopes that it demands
}

const (
	maxPolicyRules = 10_000   // how many lines a policy may have, without empty ones and notes
	maxLineBytes   = 64 << 10 // how long a line of a policy file may be
)

// ParsePolicy reads a policy. Each line is one of
//
//	METHOD -> SCOPE ...            every message of this method needs these scopes
//	METHOD PATTERN -> SCOPE ...    if what it names (a tool, a prompt, a URI) fits the pattern
//	implies SCOPE -> SCOPE ...     who has the first one has the others too
//
// METHOD is a method of the protocol that clients send, or * for all. A method that is not of the protocol needs the
// word "method" in front: so misspelled ones are found. In a PATTERN * stands for any text and ? for one
// character; one stands only behind a method that names something. What is written for resources/subscribe
// counts for the URIs of subscriptions/listen too. A message needs the scopes of all lines that fit, so no line can take back what another
// one demands, and their order does not matter. Empty lines and lines that begin with # are ignored; there
// is no note behind a line, as a scope may have a #. The error is a *PolicyLineError.
func ParsePolicy(text string) (*Policy, error) {
	p := &Policy{rulesByMethod: map[string][]policyRule{}, impliedScopes: map[string][]string{}}
	lines := bufio.NewScanner(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
	lines.Buffer(nil, maxLineBytes)
	n, count := 1, 0
	for ; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if count++; count > maxPolicyRules {
			return nil, &PolicyLineError{n, fmt.Errorf("there are more than %d lines", maxPolicyRules)}
		}
		if err := p.addLine(words); err != nil {
			return nil, &PolicyLineError{n, err}
		}
	}
	if lines.Err() != nil {
		return nil, &PolicyLineError{n, fmt.Errorf("it is longer than %d bytes", maxLineBytes)}
	}
	p.expandImplied()
	return p, nil
}

// expandImplied adds to the scopes that a scope implies those that they imply, and so on.
func (p *Policy) expandImplied() {
	for scope := range p.impliedScopes {
		all := []string{scope}
		seen := map[string]bool{scope: true}
		for i := 0; i < len(all); i++ {
			for _, s := range p.impliedScopes[all[i]] {
				if !seen[s] {
					seen[s] = true
					all = append(all, s)
				}
			}
		}
		p.impliedScopes[scope] = all[1:]
	}
}

// addNeededScopes returns have with the scopes of all rules for this method (and for "*") that have no pattern, or
// whose pattern fits.
func (p *Policy) addNeededScopes(have []string, method string, fits func(pattern string) bool) []string {
	if p == nil {
		return have
	}
	for _, m := range []string{"*", method} {
		for _, r := range p.rulesByMethod[m] {
			if r.namePattern == "" || fits(r.namePattern) {
				have = auth.UnionScope(have, r.scopes)
			}
		}
		if method == "*" { // no method of the protocol
			break
		}
	}
	return have
}

// ScopesForMessages returns all the scopes that these messages need; nil: none. Responses need none. A message in which
// readers could find different methods or params (isAmbiguous) needs the scopes of all rules.
func (p *Policy) ScopesForMessages(messages ...jsonrpc.Message) (scopes []string) {
	if p == nil || len(p.rulesByMethod) == 0 {
		return nil
	}
	for i := range messages {
		m := &messages[i]
		method := m.Method()
		if isAmbiguous(m) {
			scopes = auth.UnionScope(scopes, p.allScopes())
			continue
		}
		if method == "" {
			continue
		}
		var names []string
		unread, looked := false, false
		scopes = p.addNeededScopes(scopes, method, func(pattern string) bool {
			if !looked { // most methods have no patterns
				names, unread = namedTargets(m)
				looked = true
			}
			return unread || matchesAny(pattern, names)
		})
		if method != methodListen {
			continue
		}
		if uris, unread := listenedURIs(m); unread || len(uris) > 0 {
			scopes = p.addNeededScopes(scopes, methodSubscribe, func(pattern string) bool { return unread || matchesAny(pattern, uris) })
		}
	}
	return scopes
}

// What subscribes to a resource until revision 2025-11-25, and what does from 2026-07-28 on, among others.
const (
	methodSubscribe = "resources/subscribe"  // subscribes to a resource until revision 2025-11-25
	methodListen    = "subscriptions/listen" // subscribes, to resources among others, from revision 2026-07-28 on
)

// listenedURIs returns the URIs that the subscriptions/listen m subscribes to
// (params.notifications.resourceSubscriptions), whichever of several equal keys a server takes. unread: one of them
// cannot be read, or is longer than maxNameBytes, so that every pattern fits.
func listenedURIs(m *jsonrpc.Message) (uris []string, unread bool) {
	for member := range m.ParamsObject().Members() {
		if !strings.EqualFold(member.Key, "notifications") {
			continue
		}
		for inner := range jsonrpc.Members(member.Value) {
			if !strings.EqualFold(inner.Key, "resourceSubscriptions") || string(inner.Value) == "null" {
				continue
			}
			unread = unread || inner.Value[0] != '['
			for _, element := range jsonrpc.Elements(inner.Value) {
				uri, ok := jsonrpc.Text(element)
				uris, unread = append(uris, uri), unread || !ok || len(element) > maxNameBytes
			}
		}
	}
	return uris, unread
}

// matchesAny reports whether a pattern matches one of these names.
func matchesAny(pattern string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return matchesPattern(pattern, n) })
}

// isAmbiguous reports whether a message has a key that differs from "method" or "params" by upper and lower case only,
// so that some readers could find another method or other params in it.
func isAmbiguous(m *jsonrpc.Message) bool {
	if !m.IsExtended() { // mostly so
		return false
	}
	for key := range m.EnvelopeKeys() {
		for _, name := range []string{"method", "params"} {
			if key != name && strings.EqualFold(key, name) {
				return true
			}
		}
	}
	return false
}

// allScopes returns the scopes that any rule demands.
func (p *Policy) allScopes() (scopes []string) {
	for _, method := range slices.Sorted(maps.Keys(p.rulesByMethod)) {
		for _, r := range p.rulesByMethod[method] {
			scopes = auth.UnionScope(scopes, r.scopes)
		}
	}
	return scopes
}

// maxNameBytes is how long the name of a tool, a prompt or a resource may be, as JSON, that is compared with the patterns of a
// Policy. A longer one counts as if every pattern matched it: the message needs the scopes of all rules for its method.
const maxNameBytes = 16 << 10

// namedTargets returns what a message names: params.name of tools and prompts, params.uri of resources,
// and params.ref.name or params.ref.uri of what is completed. There may be several: servers disagree
// about which of several equal keys counts, and some take Name for name. If the message names nothing, names
// has one element, "". unread says that one of them cannot be read, or is longer than maxNameBytes: then every pattern fits.
func namedTargets(m *jsonrpc.Message) (names []string, unread bool) {
	take := func(member jsonrpc.Member) {
		if !strings.EqualFold(member.Key, "name") && !strings.EqualFold(member.Key, "uri") {
			return
		}
		if len(member.Value) > maxNameBytes {
			unread = true
			return
		}
		name, ok := jsonrpc.Text(member.Value)
		names, unread = append(names, name), unread || !ok
	}
	for member := range m.ParamsObject().Members() {
		take(member)
		if strings.EqualFold(member.Key, "ref") {
			for inner := range jsonrpc.Members(member.Value) {
				take(inner)
			}
		}
	}
	if len(names) == 0 {
		names = []string{""}
	}
	return names, unread
}

// Covers reports whether the scopes that a token has, with all that they imply, include all that are needed.
func (p *Policy) Covers(have, needed []string) bool {
	for _, n := range needed {
		if slices.Contains(have, n) {
			continue
		}
		if p == nil || !slices.ContainsFunc(have, func(h string) bool { return slices.Contains(p.impliedScopes[h], n) }) {
			return false
		}
	}
	return true
}

// matchesPattern reports whether a pattern, with * and ?, matches all of a text. It never goes back further than the
// last *.
func matchesPattern(pattern, text string) bool {
	p, t := []rune(pattern), []rune(text)
	i, j, star, from := 0, 0, -1, 0
	for j < len(t) {
		switch {
		case i < len(p) && p[i] == '*':
			star, from = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == t[j]):
			i++
			j++
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}
