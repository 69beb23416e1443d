package main

import (
	"cmp"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// tracingFlags say what is written down of the traffic. serve and connect have them.
type tracingFlags struct {
	file       string
	record     string // a file that gets all messages as a whole
	maxMessage sizeOrNone
	redact     []string
	unredacted bool

	set *pflag.FlagSet
}

func (f *tracingFlags) register(fs *pflag.FlagSet) {
	f.maxMessage = trace.DefaultFileMaxText
	fs.StringVar(&f.file, "trace", "", "")
	fs.StringVar(&f.record, "record", "", "")
	fs.Var(&f.maxMessage, "trace-max-message", "")
	fs.StringArrayVar(&f.redact, "trace-redact", nil, "")
	fs.BoolVar(&f.unredacted, "trace-unredacted", false, "")
	f.set = fs
}

// sizeOrNone is a size that may be 0.
type sizeOrNone size

func (s *sizeOrNone) String() string { return (*size)(s).String() }
func (s *sizeOrNone) Type() string   { return "size" }

func (s *sizeOrNone) Set(text string) error {
	if strings.TrimSpace(text) == "0" {
		*s = 0
		return nil
	}
	return (*size)(s).Set(text)
}

// check finds mistakes that do not depend on the system.
func (f *tracingFlags) check() error {
	switch {
	case f.unredacted && len(f.redact) > 0:
		return usagef("--trace-redact has no effect with --trace-unredacted; leave one of them out")
	case f.file != "" && f.record != "":
		return usagef("a recording is a trace without cuts: leave --trace or --record out")
	case f.file == "" && f.set.Changed("trace-max-message"):
		return usagef("--trace-max-message needs --trace FILE")
	}
	if _, err := redact.New(redact.Options{Rules: f.redact}); err != nil {
		return usagef("--trace-redact: %v", err)
	}
	return nil
}

// begin begins to write down what seen tells, if there is to be a file. The Recorder is there
// in any case: others look at a running bridge with it. end must be called.
func (f *tracingFlags) begin(seen *observe.Observer, log hclog.Logger) (t *tracing, end func(), err error) {
	t = &tracing{flags: f, headers: map[string]bool{}, values: map[string]bool{}}
	t.recorder = trace.NewRecorder(seen, t.redactor(f.unredacted))
	seen.Redact = t.redact
	if f.unredacted {
		t.recorder.SetTextRedactor(t.redactor(false))
		log.Warn("--trace-unredacted: traces of this run hold passwords and tokens as they are; keep them to yourself")
	}
	if f.file == "" && f.record == "" {
		return t, t.recorder.Wait, nil
	}
	o := trace.FileOptions{MaxText: int(f.maxMessage), NoText: f.maxMessage == 0}
	if f.record != "" {
		o = trace.FileOptions{MaxText: -1, MaxBytes: -1}
	}
	o.OnError = func(err error) {
		log.Warn("the trace cannot be written; what happens meanwhile will be missing in it", "error", err)
	}
	file, err := trace.NewFile(cmp.Or(f.record, f.file), o)
	if err != nil {
		return nil, nil, usagef("writing what passes: %v", err)
	}
	release := t.recorder.AddSink(file)
	return t, func() {
		release()
		t.recorder.Wait()
		if err := file.Close(); err != nil {
			log.Warn("the trace may lack its end", "error", err)
		}
		if n := file.Lost(); n > 0 {
			log.Warn("the trace is not complete", "missing", n)
		}
	}, nil
}

// tracing is what is written down, and the secrets that are taken out of it.
type tracing struct {
	flags    *tracingFlags
	recorder *trace.Recorder

	mu      sync.Mutex
	values  map[string]bool
	headers map[string]bool // by name
}

// redactor takes out all the secrets that are known now, unless it is off. It is called with mu
// held, or before there is anybody else.
func (t *tracing) redactor(off bool) *redact.Redactor {
	o := redact.Options{Rules: t.flags.redact, Off: off}
	for v := range t.values {
		o.Secrets = append(o.Secrets, v)
	}
	for h := range t.headers {
		o.Headers = append(o.Headers, h)
	}
	d, err := redact.New(o)
	if err != nil { // which check would have found
		panic(err)
	}
	return d
}

// addSecrets has values taken out of what is written from now on, and those of headers. What was
// hidden before stays so: a server that has been removed may still run.
func (t *tracing) addSecrets(values []string, headers ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := len(t.values) + len(t.headers)
	for _, v := range values {
		t.values[v] = true
	}
	for _, h := range headers {
		t.headers[h] = true
	}
	if len(t.values)+len(t.headers) > before {
		t.recorder.SetRedactor(t.redactor(t.flags.unredacted))
		if t.flags.unredacted {
			t.recorder.SetTextRedactor(t.redactor(false))
		}
	}
}

// redact returns a text of the log or of a span without secrets, also where the trace has them.
func (t *tracing) redact(text string) string { return t.recorder.RedactText(text) }

// redactLine is redact for a line of a server process. It waits for long messages before it.
func (t *tracing) redactLine(line string) string { return t.recorder.RedactLine(line) }

// hideEnviron hides the values of variables, written NAME=VALUE: all, or those whose names
// tell that they are secrets.
func (t *tracing) hideEnviron(env []string, all bool) {
	var values []string
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); all && !isCommonVariable(name) || redact.IsSensitive(name) {
			values = append(values, value)
		}
	}
	t.addSecrets(values)
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
	t.addSecrets(values, headers...)
	t.hideEnviron(spec.Command.Env, false)
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
	t.addSecrets(values)
}

// hidingLookup returns lookup, and hides what it finds: flags and files name variables where a secret
// should not stand.
func (t *tracing) hidingLookup(lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := lookup(name)
		if set && name != tokensVariable && !isCommonVariable(name) {
			t.addSecrets([]string{value})
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
