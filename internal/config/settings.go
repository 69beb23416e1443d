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
)

// settings are the keys that "defaults" and each server's "mcp-bridge" take.
// They are named as the flags are.
var settings = map[string]func(p *parser, s *Settings, m member){
	"isolation":      func(p *parser, s *Settings, m member) { p.oneOf(m, &s.Isolation, isolations...) },
	"protocol":       func(p *parser, s *Settings, m member) { p.oneOf(m, &s.Protocol, protocols...) },
	"clientProtocol": func(p *parser, s *Settings, m member) { p.oneOf(m, &s.ClientProtocol, protocols...) },
	"parkTimeout":    func(p *parser, s *Settings, m member) { p.longer(m, &s.ParkTimeout) },
	"maxChildren":    func(p *parser, s *Settings, m member) { p.integer(m, 0, &s.MaxChildren) },
	"queue":          func(p *parser, s *Settings, m member) { p.integer(m, 0, &s.Queue) },
	"queueTimeout":   func(p *parser, s *Settings, m member) { p.duration(m, &s.QueueTimeout) },
	"maxSessions":    func(p *parser, s *Settings, m member) { p.integer(m, 1, &s.MaxSessions) },
	"sessionTimeout": func(p *parser, s *Settings, m member) { p.duration(m, &s.SessionTimeout) },
	"lazy":           func(p *parser, s *Settings, m member) { p.boolean(m, &s.Lazy) },
	"passEnv":        func(p *parser, s *Settings, m member) { p.passEnv(m, &s.PassEnv) },
	"pty":            func(p *parser, s *Settings, m member) { p.boolean(m, &s.PTY) },
	"stdinWait":      func(p *parser, s *Settings, m member) { p.duration(m, &s.StdinWait) },
	"termWait":       func(p *parser, s *Settings, m member) { p.duration(m, &s.TermWait) },
	"killWait":       func(p *parser, s *Settings, m member) { p.duration(m, &s.KillWait) },
	"requestTimeout": func(p *parser, s *Settings, m member) { p.duration(m, &s.RequestTimeout) },
	"drainTimeout":   func(p *parser, s *Settings, m member) { p.duration(m, &s.DrainTimeout) },
	"grace":          func(p *parser, s *Settings, m member) { p.duration(m, &s.Grace) },
	"maxMessageSize": func(p *parser, s *Settings, m member) { p.size(m, &s.MaxMessageSize) },
	"maxDepth":       func(p *parser, s *Settings, m member) { p.integer(m, 1, &s.MaxDepth) },
	"allowTools":     func(p *parser, s *Settings, m member) { p.globs(m, &s.AllowTools) },
	"ignoreTools":    func(p *parser, s *Settings, m member) { p.globs(m, &s.IgnoreTools) },
	"transport":      func(p *parser, s *Settings, m member) { p.oneOf(m, &s.Transport, modes...) },
	"connectTimeout": func(p *parser, s *Settings, m member) { p.duration(m, &s.ConnectTimeout) },
	"resumeTimeout":  func(p *parser, s *Settings, m member) { p.longer(m, &s.ResumeTimeout) },
}

// modes are the values of "transport".
var modes = []string{"http-first", "sse-first", "http-only", "sse-only"}

// isolations and protocols are the values of "isolation", and of "protocol" and
// "clientProtocol".
var (
	isolations = []string{"auto", "session", "principal", "shared", "request"}
	protocols  = []string{"auto", "legacy", "modern"}
)

// forCommand and forURL are the settings that have an effect on one kind of
// server only.
var (
	forCommand = []string{"maxChildren", "passEnv", "pty", "stdinWait", "termWait", "killWait"}
	forURL     = []string{"transport", "connectTimeout", "resumeTimeout", "headerFile"}
)

// setting reads one of settings.
func (p *parser) setting(s *Settings, m member) {
	if set := settings[m.key]; set != nil {
		set(p, s, m)
		return
	}
	switch m.key {
	case "headerFile", "description":
		p.errorf(m.at, `%s is not for all servers: put it into the "mcp-bridge" of one`, m.what)
		return
	}
	if similar := Suggest(m.key, settingNames()); similar == "" && aliases[m.key] != "" {
		p.errorf(m.at, `%s belongs to the server itself, beside "mcp-bridge"`, m.what)
		return
	}
	p.errorf(m.at, `%s is not a setting of the bridge%s`, m.what, p.meant(m.key, settingNames()))
}

func settingNames() []string {
	names := []string{"headerFile", "description"}
	for name := range settings {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// wrongType records that a value has another type than it must have; want
// says what to write.
func (p *parser) wrongType(m member, want string) {
	p.errorf(m.value.StartOffset, "%s is %s: write %s", m.what, describe(m.value), want)
}

func isNull(v hujson.Value) bool { return v.Value.Kind() == 'n' }

// text returns a string as it stands in the file.
func (p *parser) text(m member, want string) (string, bool) {
	if m.value.Value.Kind() != '"' {
		p.wrongType(m, want)
		return "", false
	}
	return m.value.Value.(hujson.Literal).String(), true
}

func (p *parser) boolean(m member, to *bool) {
	switch m.value.Value.Kind() {
	case 't':
		*to = true
	case 'f':
		*to = false
	default:
		p.wrongType(m, "true or false, without quotes")
	}
}

func (p *parser) integer(m member, least int, to *int) {
	want := fmt.Sprintf("a whole number, %d or more, without quotes", least)
	if m.value.Value.Kind() != '0' {
		p.wrongType(m, want)
		return
	}
	n, err := strconv.Atoi(string(m.value.Value.(hujson.Literal)))
	if err != nil || n < least || n > math.MaxInt32 {
		p.errorf(m.value.StartOffset, "%s must be %s", m.what, want)
		return
	}
	*to = n
}

func (p *parser) duration(m member, to *time.Duration) {
	const want = `a duration with its unit in quotes, such as "500ms", "30s", "5m" or "1h30m"`
	if m.value.Value.Kind() == '0' {
		number := string(m.value.Value.(hujson.Literal))
		if d, err := time.ParseDuration(number + "s"); err != nil || d < 0 || len(number) > 10 {
			number = "30"
		}
		p.errorf(m.value.StartOffset, "%s is a number without a unit: write \"%ss\" if seconds are meant", m.what, number)
		return
	}
	text, ok := p.text(m, want)
	if !ok {
		return
	}
	d, err := time.ParseDuration(text)
	switch _, noUnit := strconv.ParseFloat(text, 64); {
	case err == nil && d >= 0:
		*to = d
	case err == nil:
		p.errorf(m.value.StartOffset, "%s is negative: write %s", m.what, want)
	case noUnit == nil && len(text) <= 10:
		p.errorf(m.value.StartOffset, "%s has no unit: write \"%ss\" if seconds are meant", m.what, text)
	default:
		p.errorf(m.value.StartOffset, "%s: write %s", m.what, want)
	}
}

// longer reads a duration that is not 0.
func (p *parser) longer(m member, to *time.Duration) {
	d := *to
	if p.duration(m, &d); d == 0 {
		p.errorf(m.value.StartOffset, "%s must be more than 0", m.what)
		return
	}
	*to = d
}

// size reads a number of bytes: a number, or a string with a unit.
func (p *parser) size(m member, to *int) {
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
		p.errorf(m.value.StartOffset, "%s: write %s", m.what, want)
		return
	}
	*to = n * unit
}

func (p *parser) oneOf(m member, to *string, values ...string) {
	want := `"` + strings.Join(values, `", "`) + `"`
	text, ok := p.text(m, "one of "+want)
	if !ok {
		return
	}
	if !slices.Contains(values, text) {
		p.errorf(m.value.StartOffset, "%s has no value %s: write one of %s", m.what, quote(text), want)
		return
	}
	*to = text
}

// elements returns the elements of an array as members, so that they can be
// read as values of keys are.
func (p *parser) elements(m member, want string) (all []member, ok bool) {
	array, ok := m.value.Value.(*hujson.Array)
	if !ok {
		p.wrongType(m, want)
		return nil, false
	}
	for i, v := range array.Elements {
		all = append(all, member{key: m.key, at: v.StartOffset, what: fmt.Sprintf("item %d of %s", i+1, m.what), value: v})
	}
	return all, true
}

// globs reads patterns of tool names. They take the place of those of the
// defaults.
func (p *parser) globs(m member, to *[]string) {
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
			p.errorf(e.value.StartOffset, "%s is no pattern: write a tool's name, with * for any characters, ? for one and [a-z] for a set", e.what)
			continue
		}
		list = append(list, text)
	}
	*to = list
}

// passEnv reads which of the bridge's own variables a child gets: what
// --pass-env takes, or an array of its items.
func (p *parser) passEnv(m member, to *string) {
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
				p.errorf(item.value.StartOffset, "%s: variables that begin with MCP_BRIDGE_ are the bridge's own and are not passed on", item.what)
			case name == "" || strings.ContainsAny(name, "= \t\x00"):
				p.errorf(item.value.StartOffset, `%s: write %s; a value is set in "env"`, item.what, want)
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = []string{"none"}
	}
	*to = strings.Join(names, ",")
}
