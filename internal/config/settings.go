package config

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailscale/hujson"

	"github.com/mcp-bridge/mcp-bridge/internal/nearest"
)

// A setting is one key of a server's "mcp-bridge" and, unless it is one of serverOnlySettings, of "defaults"; and all that is said about the
// key: how it is read, and what the manual and the schema say.
type setting struct {
	key        string // the key in the file
	flag       string // the flag of the same meaning, without "--"; "": there is none
	serverType string // "command" or "url": the setting has an effect on a server with a command, or with a URL, only; "": on both
	doc        string // what the manual and, without the code quotes, the schema say of it

	fieldOf func(s *Settings) any                  // returns a pointer to the setting's field of s, whose type says how the value is spelled; nil: it is one of serverOnlySettings
	values  []string                               // the values that a string may have; nil: the field is no string, or read reads it
	min     int                                    // the smallest value that an int may have; of a duration, 1 if it must not be 0, else 0
	read    func(p *parser, s *Settings, m member) // reads the value into s where the type of the field does not say how; nil: it does
}

// settings are the keys of "defaults" and of a server's "mcp-bridge", in the order of the manual.
var settings = []setting{
	{key: "isolation", flag: "isolation", fieldOf: func(s *Settings) any { return &s.Isolation }, values: isolations,
		doc: "which clients share a process"},
	{key: "protocol", flag: "protocol", fieldOf: func(s *Settings) any { return &s.Protocol }, values: protocols,
		doc: "what is spoken with the server"},
	{key: "clientProtocol", flag: "client-protocol", fieldOf: func(s *Settings) any { return &s.ClientProtocol }, values: protocols,
		doc: "what clients may speak; with `modern` HTTP+SSE is not served"},
	{key: "parkTimeout", flag: "park-timeout", fieldOf: func(s *Settings) any { return &s.ParkTimeout }, min: 1,
		doc: "how long a call waits until its client has answered the input requests"},
	{key: "maxChildren", flag: "max-children", serverType: "command", fieldOf: func(s *Settings) any { return &s.MaxChildren },
		doc: "processes of the server at a time; `0` is one for each session and 100 that clients share, or 32 with `isolation` `request`; clients with a process of their own wait for a place"},
	{key: "queue", flag: "queue", fieldOf: func(s *Settings) any { return &s.Queue },
		doc: "how many clients wait when there are so many processes"},
	{key: "queueTimeout", flag: "queue-timeout", fieldOf: func(s *Settings) any { return &s.QueueTimeout },
		doc: "how long these clients wait; `0s` is not at all"},
	{key: "maxSessions", flag: "max-sessions", fieldOf: func(s *Settings) any { return &s.MaxSessions }, min: 1,
		doc: "sessions at a time"},
	{key: "sessionTimeout", flag: "session-timeout", fieldOf: func(s *Settings) any { return &s.SessionTimeout },
		doc: "end a Streamable HTTP session that is idle for so long; `0s` is never"},
	{key: "lazy", fieldOf: func(s *Settings) any { return &s.Lazy },
		doc: "start the server when it is first used"},
	{key: "passEnv", flag: "pass-env", serverType: "command", fieldOf: func(s *Settings) any { return &s.PassEnv },
		read: func(p *parser, s *Settings, m member) { p.readPassEnv(m, &s.PassEnv) },
		doc:  "which variables of the bridge a child gets: `safe`, `all`, `none`, or names; or an array of these"},
	{key: "pty", flag: "pty", serverType: "command", fieldOf: func(s *Settings) any { return &s.PTY },
		doc: "give a child a terminal as stdout"},
	{key: "stdinWait", flag: "stdin-wait", serverType: "command", fieldOf: func(s *Settings) any { return &s.StdinWait },
		doc: "how long a child has after its stdin was closed"},
	{key: "termWait", flag: "term-wait", serverType: "command", fieldOf: func(s *Settings) any { return &s.TermWait },
		doc: "how long its process group has after SIGTERM"},
	{key: "killWait", flag: "kill-wait", serverType: "command", fieldOf: func(s *Settings) any { return &s.KillWait },
		doc: "how long its process group has after SIGKILL"},
	{key: "requestTimeout", flag: "request-timeout", fieldOf: func(s *Settings) any { return &s.RequestTimeout },
		doc: "cancel a request on which the server stays silent for so long; `0s` is never"},
	{key: "drainTimeout", flag: "drain-timeout", fieldOf: func(s *Settings) any { return &s.DrainTimeout },
		doc: "how long owed answers are waited for at the end of input, and when a new file changes or removes the server (after SIGTERM no longer than `grace`)"},
	{key: "grace", flag: "grace", fieldOf: func(s *Settings) any { return &s.Grace },
		doc: "how long owed answers are waited for at shutdown"},
	{key: "maxMessageSize", flag: "max-message-size", fieldOf: func(s *Settings) any { return &s.MaxMessageSize },
		read: func(p *parser, s *Settings, m member) { p.size(m, &s.MaxMessageSize) },
		doc:  "the largest message: a number of bytes, or with `KiB`, `MiB`, `GiB`"},
	{key: "maxDepth", flag: "max-depth", fieldOf: func(s *Settings) any { return &s.MaxDepth }, min: 1,
		doc: "how many levels of objects and arrays a message may have"},
	{key: "allowTools", flag: "allow-tool", fieldOf: func(s *Settings) any { return &s.AllowTools },
		doc: "patterns of the tools that are listed and can be called, such as `read_*`; all if there is none"},
	{key: "ignoreTools", flag: "ignore-tool", fieldOf: func(s *Settings) any { return &s.IgnoreTools },
		doc: "patterns of the tools that are neither listed nor can be called"},
	{key: "transport", flag: "transport", serverType: "url", fieldOf: func(s *Settings) any { return &s.Transport }, values: transportModes,
		doc: "which transport of a remote server is tried"},
	{key: "connectTimeout", flag: "connect-timeout", serverType: "url", fieldOf: func(s *Settings) any { return &s.ConnectTimeout },
		doc: "time to connect in"},
	{key: "resumeTimeout", flag: "resume-timeout", serverType: "url", fieldOf: func(s *Settings) any { return &s.ResumeTimeout }, min: 1,
		doc: "how long to reconnect to the stream of a call that has broken before the answer; then the call fails"},
}

// serverOnlySettings are the keys of a server's "mcp-bridge" that "defaults" does not have.
var serverOnlySettings = []setting{
	{key: "headerFile", flag: "header-file", serverType: "url",
		doc: "a file of headers, one `Name: value` a line, variables expanded; `headers` win. One server only"},
	{key: "auth", flag: "auth", serverType: "url",
		doc: "how to sign in to the server: an object, see [Signing in](#signing-in). One server only"},
	{key: "description", doc: "as the server's own, and wins over it. One server only"},
}

var (
	transportModes = []string{"http-first", "sse-first", "http-only", "sse-only"}  // the values that "transport" may have
	isolations     = []string{"auto", "session", "principal", "shared", "request"} // the values that "isolation" may have
	protocols      = []string{"auto", "legacy", "modern"}                          // the values that "protocol" and "clientProtocol" may have
)

// findSetting returns the one of settings with this key; nil: there is none. It does not look among serverOnlySettings.
func findSetting(key string) *setting {
	if i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key }); i >= 0 {
		return &settings[i]
	}
	return nil
}

// readInto reads the value of m, whose key is that of the setting, into the setting's field of s. A value that is wrong is recorded as a mistake.
func (set *setting) readInto(p *parser, s *Settings, m member) {
	if set.read != nil {
		set.read(p, s, m)
		return
	}
	switch to := set.fieldOf(s).(type) {
	case *string:
		p.oneOf(m, to, set.values...)
	case *int:
		p.integer(m, set.min, to)
	case *bool:
		p.boolean(m, to)
	case *[]string:
		p.readGlobs(m, to)
	case *time.Duration:
		if set.min > 0 {
			p.positiveDuration(m, to)
		} else {
			p.duration(m, to)
		}
	}
}

// Flags returns, for each key of "defaults", the flag of the same meaning, without "--". Keys without such a flag are left out.
func Flags() map[string]string {
	flags := map[string]string{}
	for _, set := range settings {
		if set.flag != "" {
			flags[set.key] = set.flag
		}
	}
	return flags
}

// readSetting reads a key of "defaults" or of a server's "mcp-bridge" into s. A key that is none of settings is recorded as a mistake.
func (p *parser) readSetting(s *Settings, m member) {
	if set := findSetting(m.key); set != nil {
		set.readInto(p, s, m)
		return
	}
	switch m.key {
	case "headerFile", "description", "auth":
		p.errorf(m.offset, `%s is not for all servers: put it into the "mcp-bridge" of one`, m.label)
		return
	}
	if similar := nearest.To(m.key, settingNames()); similar == "" && keyAliases[m.key] != "" {
		p.errorf(m.offset, `%s belongs to the server itself, beside "mcp-bridge"`, m.label)
		return
	}
	p.errorf(m.offset, `%s is not a setting of the bridge%s`, m.label, p.suggestKey(m.key, settingNames()))
}

// settingNames returns the sorted keys that a server's "mcp-bridge" may have.
func settingNames() []string {
	var names []string
	for _, set := range slices.Concat(settings, serverOnlySettings) {
		names = append(names, set.key)
	}
	slices.Sort(names)
	return names
}

// wrongType records the mistake that the value of m has another type than it must have; want is what to write.
func (p *parser) wrongType(m member, want string) {
	p.errorf(m.value.StartOffset, "%s is %s: write %s", m.label, typeName(m.value), want)
}

// isNull reports whether a value is the JSON null.
func isNull(v hujson.Value) bool { return v.Value.Kind() == 'n' }

// text returns the value of m, which must be a string, without expanding variables. ok is false if it is none: that is recorded as a
// mistake, with want as what to write.
func (p *parser) text(m member, want string) (string, bool) {
	if m.value.Value.Kind() != '"' {
		p.wrongType(m, want)
		return "", false
	}
	return m.value.Value.(hujson.Literal).String(), true
}

// boolean reads true or false into dst. Anything else is recorded as a mistake, and leaves dst as it is.
func (p *parser) boolean(m member, dst *bool) {
	switch m.value.Value.Kind() {
	case 't':
		*dst = true
	case 'f':
		*dst = false
	default:
		p.wrongType(m, "true or false, without quotes")
	}
}

// integer reads a whole number from minimum to 2147483647 into dst. Anything else is recorded as a mistake, and leaves dst as it is.
func (p *parser) integer(m member, minimum int, dst *int) {
	want := fmt.Sprintf("a whole number, %d or more, without quotes", minimum)
	if m.value.Value.Kind() != '0' {
		p.wrongType(m, want)
		return
	}
	n, err := strconv.Atoi(string(m.value.Value.(hujson.Literal)))
	if err != nil || n < minimum || n > math.MaxInt32 {
		p.errorf(m.value.StartOffset, "%s must be %s", m.label, want)
		return
	}
	*dst = n
}

// duration reads a duration with its unit, such as "30s", into dst. Anything else, also a negative one, is recorded as a mistake, and
// leaves dst as it is.
func (p *parser) duration(m member, dst *time.Duration) {
	const want = `a duration with its unit in quotes, such as "500ms", "30s", "5m" or "1h30m"`
	if m.value.Value.Kind() == '0' {
		number := string(m.value.Value.(hujson.Literal))
		if d, err := time.ParseDuration(number + "s"); err != nil || d < 0 || len(number) > 10 {
			number = "30"
		}
		p.errorf(m.value.StartOffset, "%s is a number without a unit: write \"%ss\" if seconds are meant", m.label, number)
		return
	}
	text, ok := p.text(m, want)
	if !ok {
		return
	}
	d, err := time.ParseDuration(text)
	switch _, noUnit := strconv.ParseFloat(text, 64); {
	case err == nil && d >= 0:
		*dst = d
	case err == nil:
		p.errorf(m.value.StartOffset, "%s is negative: write %s", m.label, want)
	case noUnit == nil && len(text) <= 10:
		p.errorf(m.value.StartOffset, "%s has no unit: write \"%ss\" if seconds are meant", m.label, text)
	default:
		p.errorf(m.value.StartOffset, "%s: write %s", m.label, want)
	}
}

// positiveDuration reads a duration with its unit, such as "30s", into dst. Anything else, also 0 or a negative one, is recorded as a mistake,
// and leaves dst as it is.
func (p *parser) positiveDuration(m member, dst *time.Duration) {
	d := *dst
	if p.duration(m, &d); d == 0 {
		p.errorf(m.value.StartOffset, "%s must be more than 0", m.label)
		return
	}
	*dst = d
}

// size reads a number of bytes, a number or a string with a unit such as "64MiB", into dst. Anything else, also 0
// and more than 1 TiB, is recorded as a mistake, and leaves dst as it is.
func (p *parser) size(m member, dst *int) {
	const want = `a number of bytes, or one with a unit in quotes: "64MiB" (KiB, MiB, GiB)`
	var text string
	switch literal, _ := m.value.Value.(hujson.Literal); m.value.Value.Kind() {
	case '0':
		text = string(literal)
	case '"':
		text = literal.String()
	default:
		p.wrongType(m, want)
		return
	}
	text, unit := strings.TrimSpace(text), 1
	for suffix, n := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = strings.TrimSpace(number), n
			break
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 || n > min(1<<40, math.MaxInt)/unit {
		p.errorf(m.value.StartOffset, "%s: write %s", m.label, want)
		return
	}
	*dst = n * unit
}

// oneOf reads a string that must be one of values into dst. Anything else is recorded as a mistake, and leaves dst as it is.
func (p *parser) oneOf(m member, dst *string, values ...string) {
	want := `"` + strings.Join(values, `", "`) + `"`
	text, ok := p.text(m, "one of "+want)
	if !ok {
		return
	}
	if !slices.Contains(values, text) {
		p.errorf(m.value.StartOffset, "%s has no value %s: write one of %s", m.label, printableName(text), want)
		return
	}
	*dst = text
}

// elements returns the elements of m's value, an array, as members, so that they can be read as values of keys are. ok is false if the
// value is no array: that is recorded as a mistake, with want as what to write.
func (p *parser) elements(m member, want string) (all []member, ok bool) {
	array, ok := m.value.Value.(*hujson.Array)
	if !ok {
		p.wrongType(m, want)
		return nil, false
	}
	for i, v := range array.Elements {
		all = append(all, member{key: m.key, offset: v.StartOffset, label: fmt.Sprintf("item %d of %s", i+1, m.label), value: v})
	}
	return all, true
}

// readGlobs reads an array of patterns of tool names into dst, in place of those that were there; an empty array makes it nil. A pattern
// that is not valid is recorded as a mistake.
func (p *parser) readGlobs(m member, dst *[]string) {
	const want = `an array of patterns, such as ["read_*"]`
	all, ok := p.elements(m, want)
	if !ok {
		return
	}
	var list []string
	for _, e := range all {
		text, ok := p.text(e, `a pattern in quotes, such as "read_*"`)
		if !ok {
			continue
		}
		if _, err := path.Match(text, ""); err != nil || text == "" {
			p.errorf(e.value.StartOffset, "%s is no pattern: write a tool's name, with * for any characters, ? for one and [a-z] for a set", e.label)
			continue
		}
		list = append(list, text)
	}
	*dst = list
}

// readPassEnv reads into dst which of the bridge's own environment variables a child gets, in the form of --pass-env: a string in this
// form, or an array of its items; an empty array is "none". A name that is not allowed is recorded as a mistake.
func (p *parser) readPassEnv(m member, dst *string) {
	const want = `"safe", "all", "none", or names of variables: "safe,LANG"`
	items := []member{m}
	if m.value.Value.Kind() == '[' {
		items, _ = p.elements(m, want)
	}
	var names []string
	for _, item := range items {
		text, ok := p.text(item, want)
		if !ok {
			continue
		}
		for name := range strings.SplitSeq(text, ",") {
			name = strings.TrimSpace(name)
			switch {
			case strings.HasPrefix(strings.ToUpper(name), "MCP_BRIDGE_"):
				p.errorf(item.value.StartOffset, "%s: variables that begin with MCP_BRIDGE_ are the bridge's own and are not passed on", item.label)
			case name == "" || strings.ContainsAny(name, "= \t\x00"):
				p.errorf(item.value.StartOffset, `%s: write %s; a value is set in "env"`, item.label, want)
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = []string{"none"}
	}
	*dst = strings.Join(names, ",")
}
