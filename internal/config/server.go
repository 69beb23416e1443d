package config

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
	"github.com/mcp-bridge/mcp-bridge/internal/nearest"
)

// A draft is a server while it is read.
type draft struct {
	server *Server
	keys   map[string]member // by what they mean, see aliases
	given  []string          // settings that the server itself has
	kind   string            // of its type: stdio, http, sse, ws, socket, or "" if it has none
}

// server reads one server.
func (p *parser) server(m member) Server {
	s := Server{Name: m.key, Settings: p.base}
	all, ok := p.fixed(m.value, "the server "+m.what)
	if !ok {
		return s
	}
	d := &draft{server: &s, keys: map[string]member{}}
	mistakes := len(p.problems)
	p.classifyKeys(d, all)
	misspelled := len(p.problems) > mistakes
	s.Disabled = p.disabled(d)
	p.lenient = p.only != m.key && (p.only != "" || s.Disabled)
	defer func() { p.lenient = false }()

	if own, ok := d.keys[bridgeKey]; ok {
		p.bridgeSettings(d, own)
	}
	if text, ok := d.keys["description"]; ok && s.Description == "" {
		s.Description, _ = p.text(text, "a string")
	}
	p.kind(d)
	_, command := d.keys["command"]
	url, remote := d.keys["url"]
	switch {
	case command && remote:
		p.errorf(url.at, `the server has both "command" and %s: it can have only one of them`, url.what)
	case command:
		p.command(d)
	case remote:
		p.remote(d)
	case !misspelled:
		p.errorf(m.at, `the server %s has neither "command" nor "url": write the one that reaches it`, m.what)
	}
	p.withoutEffect(d, command)
	if p.check == nil || s.Disabled || len(p.problems) > mistakes {
		return s
	}
	at := url
	if command {
		at = d.keys["command"]
	}
	if err := p.check(s); err != nil {
		p.errorf(at.value.StartOffset, "the server %s: %v", m.what, err)
	}
	return s
}

// classifyKeys puts the keys of a server where they belong.
func (p *parser) classifyKeys(d *draft, all []member) {
	for _, m := range all {
		meaning := aliases[m.key]
		if m.key == bridgeKey {
			meaning = bridgeKey
		}
		if meaning == "" {
			p.foreign(m)
			continue
		}
		if first, twice := d.keys[meaning]; twice {
			if meaning != "disabled" && !equalValues(first.value, m.value) {
				p.errorf(m.at, "%s and %s mean the same and differ: keep one of them", first.what, m.what)
			}
			if meaning != "disabled" {
				continue
			}
			meaning = "disabled too"
		}
		d.keys[meaning] = m
	}
}

func equalValues(a, b hujson.Value) bool {
	x, ok := a.Value.(hujson.Literal)
	y, ok2 := b.Value.(hujson.Literal)
	return ok && ok2 && x.String() == y.String()
}

// disabled reads "disabled" and its opposites.
func (p *parser) disabled(d *draft) bool {
	off := func(m member) (disabled bool) {
		p.boolean(m, &disabled)
		return disabled == (m.key == "disabled")
	}
	first, ok := d.keys["disabled"]
	if !ok {
		return false
	}
	disabled := off(first)
	if second, ok := d.keys["disabled too"]; ok && off(second) != disabled {
		p.errorf(second.at, "%s and %s contradict each other: keep one of them", first.what, second.what)
	}
	return disabled
}

// bridgeSettings reads the bridge's own settings of a server.
func (p *parser) bridgeSettings(d *draft, own member) {
	all, ok := p.fixed(own.value, own.what)
	if !ok {
		return
	}
	for _, m := range all {
		d.given = append(d.given, m.key)
		switch m.key {
		case "headerFile":
			d.keys["headerFile"] = m
		case "auth":
			d.server.Auth = p.auth(m)
		case "description":
			d.server.Description, _ = p.text(m, "a string")
		default:
			p.setting(&d.server.Settings, m)
		}
	}
}

// kind reads "type". Where nobody asks for more, it says which transport is
// tried first.
func (p *parser) kind(d *draft) {
	m, ok := d.keys["type"]
	if !ok {
		return
	}
	const want = `"stdio", "http", "sse" or "ws"`
	text, ok := p.text(m, "one of "+want)
	if !ok {
		return
	}
	if d.kind = kinds[nearest.Normalize(text)]; d.kind == "" {
		if slices.Contains(modes, text) {
			p.errorf(m.at, `this belongs into "mcp-bridge": {"transport": %q}`, text)
			return
		}
		p.errorf(m.value.StartOffset, "%s has no value %s: write %s", m.what, quote(text), want)
		return
	}
	if d.kind == "remote" {
		d.kind = ""
	}
	s := d.server
	if slices.Contains(d.given, "transport") {
		return
	}
	if d.kind == "sse" && strings.HasPrefix(s.Transport, "http") {
		s.Transport = "sse-first"
	}
	if d.kind == "http" && strings.HasPrefix(s.Transport, "sse") {
		s.Transport = "http-first"
	}
}

// command reads how a child process is started.
func (p *parser) command(d *draft) {
	s, m := d.server, d.keys["command"]
	if d.kind != "" && d.kind != "stdio" {
		p.errorf(d.keys["type"].value.StartOffset, `the type is for a server with a "url", and this one has a "command"`)
	}
	const want = `the name of a program in quotes; what follows it goes into "args"`
	text, ok := p.expanded(m, want)
	if ok && strings.TrimSpace(text) == "" {
		p.errorf(m.value.StartOffset, "%s is empty: write %s", m.what, want)
	}
	s.Command, s.CommandText = text, written(m)
	if _, moved := d.keys["cwd"]; !moved && strings.ContainsAny(text, "/"+string(filepath.Separator)) && !filepath.IsAbs(text) {
		s.Command = filepath.Join(p.dir, text) // as all other paths of the file
	}
	if args, ok := d.keys["args"]; ok {
		p.args(args, &s.Args)
	}
	if cwd, ok := d.keys["cwd"]; ok {
		s.Dir, _ = p.path(cwd)
		s.DirText = written(cwd)
	}
	if ok && strings.ContainsAny(s.Command, " \t") && !p.exists(s.Command, s.Dir) {
		p.notef(m.value.StartOffset, `%s contains spaces, and is taken as the name of one program, as no shell is used: put what follows the program into "args"`, m.what)
	}
	env := map[string]string{}
	if file, ok := d.keys["envFile"]; ok {
		p.envFile(file, env)
	}
	if own, ok := d.keys["env"]; ok {
		p.env(own, env)
	}
	if len(env) > 0 {
		s.Env = env
	}
}

// written returns a string as it stands in the file if it has variables, else "".
func written(m member) string {
	literal, _ := m.value.Value.(hujson.Literal)
	if m.value.Value.Kind() != '"' || !strings.Contains(literal.String(), "${") {
		return ""
	}
	return literal.String()
}

func (p *parser) exists(command, dir string) bool {
	if p.read == nil {
		return false
	}
	if !filepath.IsAbs(command) {
		command = filepath.Join(dir, command)
	}
	_, err := os.Stat(command)
	return err == nil
}

func (p *parser) args(m member, to *[]string) {
	all, ok := p.elements(m, `an array of strings, such as ["-y", "package"]`)
	if !ok {
		return
	}
	for _, e := range all {
		text, ok := p.expanded(e, "a string in quotes")
		if ok && strings.ContainsRune(text, 0) {
			p.errorf(e.value.StartOffset, "%s contains a zero character", e.what)
		}
		*to = append(*to, text)
	}
}

// env reads variables into env. A number is taken as it is spelled, as VS Code
// does it.
func (p *parser) env(m member, env map[string]string) {
	all, ok := p.members(m.value, m.what)
	if !ok {
		return
	}
	for _, v := range all {
		v.what = "the variable " + v.what + ` in "env"`
		if isNull(v.value) {
			continue
		}
		if strings.ContainsAny(v.key, "=\x00") || v.key == "" {
			p.errorf(v.at, "%s: a variable has a name without \"=\"", v.what)
			continue
		}
		var text string
		if v.value.Value.Kind() == '0' {
			text = string(v.value.Value.(hujson.Literal))
		} else if text, ok = p.expanded(v, "a string in quotes"); !ok {
			continue
		}
		if strings.ContainsRune(text, 0) {
			p.errorf(v.value.StartOffset, "%s contains a zero character", v.what)
		}
		env[v.key] = text
	}
}

// remote reads how a server is connected to.
func (p *parser) remote(d *draft) {
	s, m := d.server, d.keys["url"]
	if text, ok := p.expanded(m, "the server's URL in quotes"); ok {
		url, kind, wrong := p.checkURL(text)
		switch {
		case wrong != "":
			p.errorf(m.value.StartOffset, "%s %s", m.what, wrong)
		case d.kind == "sse" && kind == "http", d.kind == "", d.kind == kind:
		case d.kind == "stdio":
			p.errorf(d.keys["type"].value.StartOffset, `the type is for a server with a "command", and this one has a %s`, m.what)
		default:
			p.errorf(d.keys["type"].value.StartOffset, "the type does not fit the beginning of %s", m.what)
		}
		s.URL = url
	}
	header := http.Header{}
	if file, ok := d.keys["headerFile"]; ok {
		p.headerFile(file, header)
	}
	if own, ok := d.keys["headers"]; ok {
		p.headers(own, header)
	}
	if len(header) > 0 {
		s.Header = header
	}
}

// headers reads an object of headers.
func (p *parser) headers(m member, header http.Header) {
	all, ok := p.members(m.value, m.what)
	if !ok {
		return
	}
	seen := map[string]member{}
	for _, h := range all {
		name := http.CanonicalHeaderKey(h.key)
		first, twice := seen[name]
		seen[name] = h
		h.what = "the header " + h.what
		switch {
		case isNull(h.value):
			continue
		case !isToken(h.key):
			p.errorf(h.at, "%s: a header's name has letters, digits and hyphens only", h.what)
			continue
		case twice:
			p.errorf(h.at, "%s is the same as %s: keep one of them", h.what, first.what)
			continue
		}
		text, ok := p.expanded(h, "a string in quotes")
		if ok && strings.ContainsFunc(text, isControl) {
			p.errorf(h.value.StartOffset, "%s contains a line break or another control character", h.what)
			continue
		}
		header[name] = []string{strings.TrimSpace(text)}
	}
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// isToken reports whether s can be the name of a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// path reads the path of a file or directory. A relative one starts where the
// configuration file is.
func (p *parser) path(m member) (string, bool) {
	text, ok := p.expanded(m, "a path in quotes")
	if !ok || text == "" {
		return "", false
	}
	if !filepath.IsAbs(text) {
		text = filepath.Join(p.dir, text)
	}
	return filepath.Clean(text), true
}

// unexpanded is what looks like a variable to a shell and to nobody here.
var unexpanded = lazyregexp.New(`(^|[\s=])\$[A-Za-z_][A-Za-z0-9_]*$`)

// expanded returns a string with variables replaced. ok is false when it
// cannot be used; that is recorded then.
func (p *parser) expanded(m member, want string) (text string, ok bool) {
	raw, ok := p.text(m, want)
	if !ok {
		return "", false
	}
	text, flaws := expand(raw, p.lookup)
	for _, f := range flaws {
		problem := p.newProblem(m.value.StartOffset, m.what+": "+f.text)
		if f.missing {
			p.missing(problem)
		} else {
			record(&p.problems, problem)
		}
	}
	if len(flaws) > 0 {
		return "", false
	}
	if unexpanded.MatchString(raw) {
		p.notef(m.value.StartOffset, `%s: a variable without braces is not expanded: write ${NAME} if one is meant`, m.what)
	}
	if strings.HasPrefix(raw, "~/") || raw == "~" {
		p.notef(m.value.StartOffset, `%s: "~" is not expanded, as no shell is used: write ${HOME}`, m.what)
	}
	return text, true
}

// withoutEffect tells about keys that mean nothing for the kind of server.
func (p *parser) withoutEffect(d *draft, command bool) {
	keys, other, because := []string{"args", "env", "envFile", "cwd"}, "command", "a URL"
	if command {
		keys, other, because = []string{"headers"}, "url", "a command"
	}
	for _, key := range keys {
		if m, ok := d.keys[key]; ok && !emptyValue(m.value) {
			p.notef(m.at, "%s has no effect: the server has %s", m.what, because)
		}
	}
	own := d.keys[bridgeKey]
	for _, set := range slices.Concat(settings, ownSettings) {
		if set.only == other && slices.Contains(d.given, set.key) {
			p.notef(own.at, "%q has no effect: the server has %s", set.key, because)
		}
	}
}

// emptyValue reports whether a value says nothing. Programs write such keys.
func emptyValue(v hujson.Value) bool {
	switch value := v.Value.(type) {
	case *hujson.Object:
		return len(value.Members) == 0
	case *hujson.Array:
		return len(value.Elements) == 0
	}
	return string(v.Value.(hujson.Literal)) == `""`
}
