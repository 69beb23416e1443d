package main

import (
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// tracing is what is written down, and the secrets that are taken out of it.
type tracing struct {
	flags    *tracingFlags
	recorder *trace.Recorder

	mu            sync.Mutex
	secretValues  map[string][][]string // by their source: its last maxKeptSets sets of values, the newest at the end
	secretHeaders map[string]bool       // by name
}

// redactor takes out all the secrets that are known now, unless it is off. It is called with mu
// held, or before there is anybody else.
func (t *tracing) redactor(off bool) *redact.Redactor {
	o := redact.Options{Rules: t.flags.redact, Off: off}
	for _, sets := range t.secretValues {
		o.Secrets = append(o.Secrets, slices.Concat(sets...)...)
	}
	slices.Sort(o.Secrets)
	o.Secrets = slices.Compact(o.Secrets)
	for h := range t.secretHeaders {
		o.Headers = append(o.Headers, h)
	}
	d, err := redact.New(o)
	if err != nil { // which check would have found
		panic(err)
	}
	return d
}

// maxKeptSets is how many sets of values are kept of a source: old ones may still be used by a server that has been removed, and occur
// in what is written late. A file that is replaced every few minutes must not make the list grow for ever.
const maxKeptSets = 16

// addSecrets has these values, and the values of these headers, taken out of what is written from now on. values are all that a source has
// now. What it had before stays hidden until it has changed maxKeptSets times.
func (t *tracing) addSecrets(source string, values []string, headers ...string) {
	values = slices.Clone(values)
	slices.Sort(values)
	values = slices.Compact(values)
	t.mu.Lock()
	defer t.mu.Unlock()
	before := len(t.secretHeaders)
	for _, h := range headers {
		t.secretHeaders[h] = true
	}
	if !t.keepValues(source, values) && len(t.secretHeaders) == before {
		return
	}
	t.recorder.SetRedactor(t.redactor(t.flags.unredacted))
	if t.flags.unredacted {
		t.recorder.SetTextRedactor(t.redactor(false))
	}
}

// keepValues makes values the newest set of a source, and reports whether another set of values is kept now. mu is held.
func (t *tracing) keepValues(source string, values []string) (changed bool) {
	if len(values) == 0 {
		return false
	}
	sets := slices.DeleteFunc(slices.Clone(t.secretValues[source]), func(set []string) bool { return slices.Equal(set, values) })
	changed = len(sets) == len(t.secretValues[source])
	sets = append(sets, values)
	t.secretValues[source] = sets[max(0, len(sets)-maxKeptSets):]
	return changed
}

// redact returns a text of the log or of a span without secrets, also where the trace has them.
func (t *tracing) redact(text string) string { return t.recorder.RedactText(text) }

// redactLine is redact for a line of a server process. It waits for long messages before it.
func (t *tracing) redactLine(line string) string { return t.recorder.RedactLine(line) }

// redactError returns err, which may be nil, with a text without secrets: what is said of a server's end quotes its stderr.
func (t *tracing) redactError(err error) error {
	if err == nil {
		return nil
	}
	return &redactedError{err, t.redactLine(err.Error())}
}

// redactedError is an error whose text lacks secrets.
type redactedError struct {
	error
	text string
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.error }

// hideEnviron hides the values of the variables of a server, written NAME=VALUE: all, or those whose names
// tell that they are secrets.
func (t *tracing) hideEnviron(server string, env []string, all bool) {
	var values []string
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); all && !isCommonVariable(name) || redact.IsSensitive(name) {
			values = append(values, value)
		}
	}
	source := "secret variables of " + server
	if all {
		source = "variables of " + server
	}
	t.addSecrets(source, values)
}

// hideServer hides what a server is given: headers, credentials in its URL, variables.
func (t *tracing) hideServer(spec upstream.Spec) {
	var values, headers []string
	for name, all := range spec.Remote.Header {
		headers, values = append(headers, name), append(values, all...)
	}
	if u, err := url.Parse(spec.URL); err == nil {
		if password, ok := u.User.Password(); ok {
			values = append(values, password)
		} else {
			values = append(values, u.User.Username())
		}
		for _, all := range u.Query() {
			values = append(values, all...)
		}
	}
	t.addSecrets("server "+spec.Name, values, headers...)
	t.hideEnviron(spec.Name, spec.Command.Env, false)
}

// hideTokens hides the tokens of clients.
func (t *tracing) hideTokens(file string, env environment) {
	text, _ := env.lookup(tokensVariable)
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() { // others can be read once only
		if all, err := os.ReadFile(file); err == nil {
			text = string(all)
		}
	}
	var values []string
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		if words := strings.Fields(line); len(words) == 2 && words[0][0] != '#' {
			values = append(values, words[1])
		}
	}
	t.addSecrets("tokens of clients", values)
}

// hidingLookup returns lookup, and hides what it finds: flags and files name variables where a secret
// should not stand.
func (t *tracing) hidingLookup(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := lookup(name)
		if set && name != tokensVariable && !isCommonVariable(name) {
			t.addSecrets("variable "+name, []string{value})
		}
		return value, set
	}
}

// isCommonVariable reports whether a variable is one that nobody has for secrets, and whose value
// stands in many texts.
func isCommonVariable(name string) bool {
	return slices.Contains([]string{"HOME", "PATH", "PWD", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TMPDIR", "TEMP", "TMP",
		"HOSTNAME", "USERPROFILE", "USERNAME", "APPDATA", "LOCALAPPDATA", "NODE_ENV", "LOG_LEVEL"}, strings.ToUpper(name)) ||
		strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_")
}
