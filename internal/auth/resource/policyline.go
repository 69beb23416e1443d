package resource

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/nearest"
)

// A PolicyLineError says which line of a policy is wrong, and what to write instead.
type PolicyLineError struct {
	LineNumber int   // which line is wrong; the first one is 1
	Err        error // what is wrong
}

// Error returns the line number and what is wrong.
func (e *PolicyLineError) Error() string { return fmt.Sprintf("line %d: %v", e.LineNumber, e.Err) }

// Unwrap returns Err.
func (e *PolicyLineError) Unwrap() error { return e.Err }

// knownMethods are the methods of MCP that clients send, of all revisions.
var knownMethods = []string{
	"initialize", "ping", "server/discover", "tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list",
	"resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe", "completion/complete",
	"logging/setLevel", "subscriptions/listen", "tasks/get", "tasks/list", "tasks/result", "tasks/cancel", "tasks/update",
	"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed",
	"notifications/tasks/status",
}

// methodsWithName are the methods whose messages name something (a tool, a prompt, a URI) that a pattern may match.
var methodsWithName = []string{
	"tools/call", "prompts/get", "resources/read", "resources/subscribe", "resources/unsubscribe", "completion/complete",
}

// customMethodWord stands in a line of a policy before a method that is not one of knownMethods.
const customMethodWord = "method"

// errLineSyntax says that a line has none of the forms that lines of a policy have.
var errLineSyntax = errors.New("write METHOD -> SCOPE, METHOD PATTERN -> SCOPE, or implies SCOPE -> SCOPE")

// addLine adds a line to the policy. words are the line's. The error says what is wrong, also if the line could never
// match anything.
func (p *Policy) addLine(words []string) error {
	arrow := slices.Index(words, "->")
	own := words[0] == customMethodWord && arrow > 1
	if own {
		words, arrow = words[1:], arrow-1
	}
	if arrow < 1 || arrow > 2 || arrow == len(words)-1 {
		return errLineSyntax
	}
	scopes := words[arrow+1:]
	for _, s := range scopes {
		if err := checkScope(s); err != nil {
			return err
		}
	}
	if words[0] == "implies" && !own {
		if arrow != 2 {
			return errors.New("write implies SCOPE -> SCOPE")
		}
		if err := checkScope(words[1]); err != nil {
			return err
		}
		p.impliedScopes[words[1]] = auth.UnionScope(p.impliedScopes[words[1]], scopes)
		return nil
	}
	if err := checkMethod(words[0]); err != nil && !own {
		return err
	}
	r := policyRule{scopes: auth.UnionScope(nil, scopes)}
	if arrow == 2 {
		if err := checkPattern(words[0], words[1]); err != nil {
			return err
		}
		r.namePattern = words[1]
	}
	p.rulesByMethod[words[0]] = append(p.rulesByMethod[words[0]], r)
	return nil
}

// checkScope returns what is wrong with s, a word in the place of a scope: it cannot be one (RFC 6749, 3.3), or nobody
// can mean it as one.
func checkScope(s string) error {
	switch {
	case s == "->":
		return errors.New(`there is a second "->": write a line for each`)
	case s[0] == '#':
		return fmt.Errorf("%.100q is no scope: a note stands on a line of its own, which begins with #", s)
	case strings.HasSuffix(s, ","): // inside, some issuers do have one
		return fmt.Errorf("%.100q is no scope: write spaces between scopes, no commas", s)
	case strings.Contains(s, "->"):
		return fmt.Errorf(`%.100q is no scope: write spaces around "->"`, s)
	case !isScope(s):
		return fmt.Errorf(`%.100q is no scope: it may have the characters of ASCII, but no " and no \`, s)
	}
	return nil
}

// checkPattern returns an error if messages of this method name nothing that a pattern could match.
func checkPattern(method, pattern string) error {
	if pattern == "*" || slices.Contains(methodsWithName, method) || !slices.Contains(knownMethods, method) {
		return nil
	}
	what := fmt.Sprintf("%s names no tool, no prompt and no URI, so that nothing fits %.100q: write %s -> SCOPE", method, pattern, method)
	if method == methodListen {
		what += fmt.Sprintf(", or %s %.100s -> SCOPE, which counts for the URIs of %s too", methodSubscribe, pattern, method)
	}
	return errors.New(what)
}

// checkMethod returns an error if method is neither "*" nor one of knownMethods.
func checkMethod(method string) error {
	switch {
	case method == "*" || slices.Contains(knownMethods, method):
		return nil
	case method == customMethodWord:
		return fmt.Errorf("a method is missing behind the word %s: write %s METHOD -> SCOPE", customMethodWord, customMethodWord)
	}
	what := fmt.Sprintf("%.100q is no method that clients send", method)
	meant := nearest.To(method, knownMethods)
	switch {
	case strings.Contains(method, "*"):
		return errors.New(what + ": write a line for each method, or * for all; only what a message names may be a pattern")
	case meant != "":
		what += ": did you mean " + meant + "?"
	default:
		what += "."
	}
	return fmt.Errorf("%s A method that is not of MCP needs a word in front: %s %.100s -> SCOPE", what, customMethodWord, method)
}
