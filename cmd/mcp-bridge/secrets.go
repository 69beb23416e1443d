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

// tracing takes the secrets out of what passes through a run, for all who look at it, and writes it down if the user wants a file.
type tracing struct {
	flags    *tracingFlags   // what the user has said of the trace
	recorder *trace.Recorder // makes records of what passes, for the file of --trace or --record and for the inspector; never nil, also without these

	mu            sync.Mutex            // guards secretValues and secretHeaders
	secretValues  map[string][][]string // for each source of secrets, its last maxKeptSets sets of values, the newest at the end
	secretHeaders map[string]bool       // the names of HTTP headers whose values are secret
}

// redactor returns a Redactor that takes out all the secrets that are known now; with off, one that leaves them (--trace-unredacted). It is
// called with mu held, or before there is anybody else.
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

// maxKeptSets is how many sets of values, the newest, are kept of each source of secrets, such as a file: old ones may still be used by a
// server that has been removed, and occur in what is written late. A file that is replaced every few minutes must not make the list grow for ever.
const maxKeptSets = 16

// addSecrets has these values, and the values of the HTTP headers with these names, taken out of what is written from now on; with
// --trace-unredacted, out of log and spans only. Values that are too short or too common to be looked for (package redact) stay. values are
// all that a source, such as a file, has now. What the source had before stays hidden until it has changed maxKeptSets times.
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

// keepValues makes values the newest set of a source. changed is false if this set was kept already, or is empty. mu is held.
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

// redact returns a text of the log or of a span without secrets, even if the trace keeps them (--trace-unredacted).
func (t *tracing) redact(text string) string { return t.recorder.RedactText(text) }

// redactLine returns a line that a server process has written to stderr without secrets. Unlike redact, it waits until long messages
// that came before were looked through, as they may have the secret too.
func (t *tracing) redactLine(line string) string { return t.recorder.RedactLine(line) }

// redactError returns an error that wraps err and whose text has no secrets; nil if err is nil. The error of a server's end quotes its stderr.
func (t *tracing) redactError(err error) error {
	if err == nil {
		return nil
	}
	return &redactedError{err, t.redactLine(err.Error())}
}

// redactedError is an error whose text lacks secrets.
type redactedError struct {
	error        // the error with its secrets
	text  string // the error's text, without secrets
}

// Error returns the text without secrets.
func (e *redactedError) Error() string { return e.text }

// Unwrap returns the error with its secrets.
func (e *redactedError) Unwrap() error { return e.error }

// hideEnviron adds the values of environment variables of a server, given as NAME=VALUE, to what is taken out of all that is written: those
// whose names tell that they are secrets; with all, also those of all others but the common ones (isCommonVariable). server is its configured
// name.
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

// hideServer adds what a server is given to what is taken out of all that is written: its headers, the password in its URL (or else the user's
// name) and each value of the URL's query, and the environment variables whose names tell that they are secrets.
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

// hideTokens adds the tokens of clients to what is taken out of all that is written: those in the file of --token-file, or else those in the
// environment variable. A file that is not a regular one is not read, as it may be read once only.
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

// hidingLookup returns lookup with one more effect: each value that it finds is a secret from then on (addSecrets), except that of a common
// variable. Flags and files name an environment variable where a secret should not stand.
func (t *tracing) hidingLookup(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := lookup(name)
		if set && name != tokensVariable && !isCommonVariable(name) {
			t.addSecrets("variable "+name, []string{value})
		}
		return value, set
	}
}

// isCommonVariable reports whether an environment variable, such as HOME or PATH, never holds a secret: its value stands in many texts,
// which must not be cut.
func isCommonVariable(name string) bool {
	return slices.Contains([]string{"HOME", "PATH", "PWD", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TMPDIR", "TEMP", "TMP",
		"HOSTNAME", "USERPROFILE", "USERNAME", "APPDATA", "LOCALAPPDATA", "NODE_ENV", "LOG_LEVEL"}, strings.ToUpper(name)) ||
		strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_")
}
