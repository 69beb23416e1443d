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

// A serverDraft is a server while it is read.
type serverDraft struct {
	server      *Server           // what was read so far
	members     map[string]member // its keys, by what they stand for (keyAliases); also "mcp-bridge", the "headerFile" that is inside of that, and as "disabled too" a second key that stands for "disabled"
	ownSettings []string          // the keys of its own "mcp-bridge", as opposed to those of "defaults"
	transport   string            // what its "type" means: stdio, http, sse, ws or socket; "": it has no type, or one that fits every URL ("remote")
}

// readServer reads the server whose name is the key of m and whose keys are in the value of m. Mistakes are recorded; the Server then has
// what could be read.
func (p *parser) readServer(m member) Server {
	s := Server{Name: m.key, Settings: p.defaults}
	all, ok := p.knownMembers(m.value, "the server "+m.label)
	if !ok {
		return s
	}
	d := &serverDraft{server: &s, members: map[string]member{}}
	mistakes := len(p.problems)
	p.classifyKeys(d, all)
	misspelled := len(p.problems) > mistakes
	s.Disabled = p.readDisabled(d)
	p.missingIsNotice = p.onlyServer != m.key && (p.onlyServer != "" || s.Disabled)
	defer func() { p.missingIsNotice = false }()

	if own, ok := d.members[bridgeKey]; ok {
		p.readBridgeSettings(d, own)
	}
	if text, ok := d.members["description"]; ok && s.Description == "" {
		s.Description, _ = p.text(text, "a string")
	}
	p.readType(d)
	_, hasCommand := d.members["command"]
	url, remote := d.members["url"]
	switch {
	case hasCommand && remote:
		p.errorf(url.offset, `the server has both "command" and %s: it can have only one of them`, url.label)
	case hasCommand:
		p.readCommand(d)
	case remote:
		if p.commandsOnlyClient != "" {
			p.notef(url.offset, `the server %s has %s, and %s knows servers with a command only: for %[3]s, write "command": "mcp-bridge", "args": ["connect", "URL"]`, m.label, url.label, p.commandsOnlyClient)
		}
		p.readRemote(d)
	case !misspelled:
		p.errorf(m.offset, `the server %s has neither "command" nor "url": write the one that reaches it`, m.label)
	}
	p.noteWithoutEffect(d, hasCommand)
	if p.checkServer == nil || s.Disabled || len(p.problems) > mistakes {
		return s
	}
	at := url
	if hasCommand {
		at = d.members["command"]
	}
	if err := p.checkServer(s); err != nil {
		p.errorf(at.value.StartOffset, "the server %s: %v", m.label, err)
	}
	return s
}

// classifyKeys puts the keys of a server into d.members, and records what is to say about those that are not known, and about two that
// mean the same.
func (p *parser) classifyKeys(d *serverDraft, all []member) {
	for _, m := range all {
		meaning := keyAliases[m.key]
		if m.key == bridgeKey {
			meaning = bridgeKey
		}
		if meaning == "" {
			p.noteForeignKey(m)
			continue
		}
		if first, twice := d.members[meaning]; twice {
			if meaning != "disabled" && !equalValues(first.value, m.value) {
				p.errorf(m.offset, "%s and %s mean the same and differ: keep one of them", first.label, m.label)
			}
			if meaning != "disabled" {
				continue
			}
			meaning = "disabled too"
		}
		d.members[meaning] = m
	}
}

// equalValues reports whether two values, each a string, a number, a boolean or null, have the same text: 1 equals "1", but not 1.0. Objects
// and arrays are never equal.
func equalValues(a, b hujson.Value) bool {
	x, ok := a.Value.(hujson.Literal)
	y, ok2 := b.Value.(hujson.Literal)
	return ok && ok2 && x.String() == y.String()
}

// readDisabled returns whether the server is disabled, as "disabled" says it, or its opposites "enabled" and "isActive". If two of them
// contradict each other, that is recorded as a mistake.
func (p *parser) readDisabled(d *serverDraft) bool {
	off := func(m member) (disabled bool) {
		p.boolean(m, &disabled)
		return disabled == (m.key == "disabled")
	}
	first, ok := d.members["disabled"]
	if !ok {
		return false
	}
	disabled := off(first)
	if second, ok := d.members["disabled too"]; ok && off(second) != disabled {
		p.errorf(second.offset, "%s and %s contradict each other: keep one of them", first.label, second.label)
	}
	return disabled
}

// readBridgeSettings reads the "mcp-bridge" of a server: the bridge's own settings for it.
func (p *parser) readBridgeSettings(d *serverDraft, bridgeMember member) {
	all, ok := p.knownMembers(bridgeMember.value, bridgeMember.label)
	if !ok {
		return
	}
	for _, m := range all {
		d.ownSettings = append(d.ownSettings, m.key)
		switch m.key {
		case "headerFile":
			d.members["headerFile"] = m
		case "auth":
			d.server.Auth = p.readAuth(m)
		case "description":
			d.server.Description, _ = p.text(m, "a string")
		default:
			p.readSetting(&d.server.Settings, m)
		}
	}
}

// readType reads "type" into d.transport. If the server has no setting "transport" of its own, its type also decides which transport is
// tried first.
func (p *parser) readType(d *serverDraft) {
	m, ok := d.members["type"]
	if !ok {
		return
	}
	const want = `"stdio", "http", "sse" or "ws"`
	text, ok := p.text(m, "one of "+want)
	if !ok {
		return
	}
	if d.transport = serverTypes[nearest.Normalize(text)]; d.transport == "" {
		if slices.Contains(transportModes, text) {
			p.errorf(m.offset, `this belongs into "mcp-bridge": {"transport": %q}`, text)
			return
		}
		p.errorf(m.value.StartOffset, "%s has no value %s: write %s", m.label, printableName(text), want)
		return
	}
	if d.transport == "remote" {
		d.transport = ""
	}
	s := d.server
	if slices.Contains(d.ownSettings, "transport") {
		return
	}
	if d.transport == "sse" && strings.HasPrefix(s.Transport, "http") {
		s.Transport = "sse-first"
	}
	if d.transport == "http" && strings.HasPrefix(s.Transport, "sse") {
		s.Transport = "http-first"
	}
}

// readCommand reads the keys that say how a server's process is started: command, args, env, envFile and cwd.
func (p *parser) readCommand(d *serverDraft) {
	s, m := d.server, d.members["command"]
	if d.transport != "" && d.transport != "stdio" {
		p.errorf(d.members["type"].value.StartOffset, `the type is for a server with a "url", and this one has a "command"`)
	}
	const want = `the name of a program in quotes; what follows it goes into "args"`
	text, ok := p.expandText(m, want)
	if ok && strings.TrimSpace(text) == "" {
		p.errorf(m.value.StartOffset, "%s is empty: write %s", m.label, want)
	}
	s.Command, s.UnexpandedCommand = text, unexpandedText(m)
	if _, moved := d.members["cwd"]; !moved && strings.ContainsAny(text, "/"+string(filepath.Separator)) && !filepath.IsAbs(text) {
		s.Command = filepath.Join(p.baseDir, text) // as all other paths of the file
	}
	if cwd, ok := d.members["cwd"]; ok {
		s.Dir, _ = p.readPath(cwd)
		s.UnexpandedDir = unexpandedText(cwd)
	}
	if ok && strings.ContainsAny(s.Command, " \t") && !p.commandExists(s.Command, s.Dir) {
		p.notef(m.value.StartOffset, `%s contains spaces, and is taken as the name of one program, as no shell is used: put what follows the program into "args"`, m.label)
	}
	env := map[string]string{}
	if file, ok := d.members["envFile"]; ok {
		p.readEnvFile(file, env)
	}
	if own, ok := d.members["env"]; ok {
		p.readEnv(own, env)
	}
	if len(env) > 0 {
		s.Env = env
	}
	if args, ok := d.members["args"]; ok {
		p.readArgs(args, env, &s.Args)
	}
}

// unexpandedText returns the value of m as it stands in the file if it is a string with ${...}, else "".
func unexpandedText(m member) string {
	literal, _ := m.value.Value.(hujson.Literal)
	if m.value.Value.Kind() != '"' || !strings.Contains(literal.String(), "${") {
		return ""
	}
	return literal.String()
}

// commandExists reports whether there is a file at the path of a command; one that is relative begins in dir ("": the current
// directory). It is false where other files are not read (parser.readFile is nil).
func (p *parser) commandExists(command, dir string) bool {
	if p.readFile == nil {
		return false
	}
	if !filepath.IsAbs(command) {
		command = filepath.Join(dir, command)
	}
	_, err := os.Stat(command)
	return err == nil
}

// readArgs appends the arguments of a command to dst, with variables expanded. env are the environment variables that the file sets for
// the command.
func (p *parser) readArgs(m member, env map[string]string, dst *[]string) {
	all, ok := p.elements(m, `an array of strings, such as ["-y", "package"]`)
	if !ok {
		return
	}
	for _, e := range all {
		text, ok := p.readArgument(e, env)
		if ok && strings.ContainsRune(text, 0) {
			p.errorf(e.value.StartOffset, "%s contains a zero character", e.label)
		}
		*dst = append(*dst, text)
	}
}

// readArgument returns an argument with variables replaced. A variable that is not set, but is among those of the server's own
// env, stays in it as ${NAME}: clients that replace no variables pass it on so, and the program replaces it (mcp-remote does). ok is false if
// m is no string, or another variable cannot be replaced: why is recorded.
func (p *parser) readArgument(m member, env map[string]string) (text string, ok bool) {
	literal, _ := m.value.Value.(hujson.Literal)
	if m.value.Value.Kind() != '"' {
		return p.expandText(m, "a string in quotes")
	}
	_, flaws := expand(literal.String(), p.lookup)
	left := slices.DeleteFunc(flaws, func(f expandError) bool { _, has := env[f.name]; return !has })
	if len(left) > 0 {
		p.notef(m.value.StartOffset, `%s: ${%s} is left to the program: the variable is not set here, and "env" has it`, m.label, left[0].name)
	}
	return p.expandTextWith(func(name string) (string, bool) {
		if slices.ContainsFunc(left, func(f expandError) bool { return f.name == name }) {
			return "${" + name + "}", true
		}
		return p.lookup(name)
	}, m, "a string in quotes")
}

// readEnv reads the object of environment variables of a server into env, with variables in their values expanded. A number is taken as
// it is spelled, as VS Code does it.
func (p *parser) readEnv(m member, env map[string]string) {
	all, ok := p.members(m.value, m.label)
	if !ok {
		return
	}
	for _, v := range all {
		v.label = "the variable " + v.label + ` in "env"`
		if isNull(v.value) {
			continue
		}
		if strings.ContainsAny(v.key, "=\x00") || v.key == "" {
			p.errorf(v.offset, "%s: a variable has a name without \"=\"", v.label)
			continue
		}
		var text string
		if v.value.Value.Kind() == '0' {
			text = string(v.value.Value.(hujson.Literal))
		} else if text, ok = p.expandText(v, "a string in quotes"); !ok {
			continue
		}
		if strings.ContainsRune(text, 0) {
			p.errorf(v.value.StartOffset, "%s contains a zero character", v.label)
		}
		env[v.key] = text
	}
}

// readRemote reads the keys that say how a remote server is reached: its URL and headers.
func (p *parser) readRemote(d *serverDraft) {
	s, m := d.server, d.members["url"]
	if text, ok := p.expandText(m, "the server's URL in quotes"); ok {
		url, kind, wrong := p.checkURL(text)
		switch {
		case wrong != "":
			p.errorf(m.value.StartOffset, "%s %s", m.label, wrong)
		case d.transport == "sse" && kind == "http", d.transport == "", d.transport == kind:
		case d.transport == "stdio":
			p.errorf(d.members["type"].value.StartOffset, `the type is for a server with a "command", and this one has a %s`, m.label)
		default:
			p.errorf(d.members["type"].value.StartOffset, "the type does not fit the beginning of %s", m.label)
		}
		s.URL = url
	}
	header := http.Header{}
	if file, ok := d.members["headerFile"]; ok {
		p.readHeaderFile(file, header)
	}
	if own, ok := d.members["headers"]; ok {
		p.readHeaders(own, header)
	}
	if len(header) > 0 {
		s.Header = header
	}
}

// readHeaders reads m, an object of HTTP headers, into header, with variables expanded. A header that is in header already
// gets the new value instead. What is wrong with m is recorded as a mistake.
func (p *parser) readHeaders(m member, header http.Header) {
	all, ok := p.members(m.value, m.label)
	if !ok {
		return
	}
	seen := map[string]member{}
	for _, h := range all {
		name := http.CanonicalHeaderKey(h.key)
		first, twice := seen[name]
		seen[name] = h
		h.label = "the header " + h.label
		switch {
		case isNull(h.value):
			continue
		case !isToken(h.key):
			p.errorf(h.offset, "%s: a header's name has letters, digits and hyphens only", h.label)
			continue
		case twice:
			p.errorf(h.offset, "%s is the same as %s: keep one of them", h.label, first.label)
			continue
		}
		text, ok := p.expandText(h, "a string in quotes")
		if ok && strings.ContainsFunc(text, isControl) {
			p.errorf(h.value.StartOffset, "%s contains a line break or another control character", h.label)
			continue
		}
		header[name] = []string{strings.TrimSpace(text)}
	}
}

// isControl reports whether r is a control character other than a tab.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// isToken reports whether s can be the name of an HTTP header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// readPath returns the path of a file or directory, with variables expanded; a relative one begins in the folder of the
// configuration file. false: it is empty, or it cannot be used, and why is recorded.
func (p *parser) readPath(m member) (string, bool) {
	text, ok := p.expandText(m, "a path in quotes")
	if !ok || text == "" {
		return "", false
	}
	if !filepath.IsAbs(text) {
		text = filepath.Join(p.baseDir, text)
	}
	return filepath.Clean(text), true
}

// shellVariable matches a text that ends with a variable of a shell without braces, which expand leaves alone.
var shellVariable = lazyregexp.New(`(^|[\s=])\$[A-Za-z_][A-Za-z0-9_]*$`)

// expandText returns the value of m, which must be a string, with variables (${NAME}) replaced. ok is false if that is not possible: why
// is recorded. want is what to write, for the message that it is no string.
func (p *parser) expandText(m member, want string) (text string, ok bool) {
	return p.expandTextWith(p.lookup, m, want)
}

// expandTextWith returns the value of m, which must be a string, with variables (${NAME}) replaced by what lookup returns. ok is false if
// that is not possible: why is recorded. want is what to write, for the message that it is no string.
func (p *parser) expandTextWith(lookup func(string) (string, bool), m member, want string) (text string, ok bool) {
	raw, ok := p.text(m, want)
	if !ok {
		return "", false
	}
	text, flaws := expand(raw, lookup)
	for _, f := range flaws {
		problem := p.newProblem(m.value.StartOffset, m.label+": "+f.text)
		if f.isMissing {
			p.addMissing(problem)
		} else {
			appendProblem(&p.problems, problem)
		}
	}
	if len(flaws) > 0 {
		return "", false
	}
	if shellVariable.MatchString(raw) {
		p.notef(m.value.StartOffset, `%s: a variable without braces is not expanded: write ${NAME} if one is meant`, m.label)
	}
	if strings.HasPrefix(raw, "~/") || raw == "~" {
		p.notef(m.value.StartOffset, `%s: "~" is not expanded, as no shell is used: write ${HOME}`, m.label)
	}
	return text, true
}

// noteWithoutEffect records notices about keys of a server that have no effect, because it has a command (isCommand), or a URL.
func (p *parser) noteWithoutEffect(d *serverDraft, isCommand bool) {
	keys, otherType, reason := []string{"args", "env", "envFile", "cwd"}, "command", "a URL"
	if isCommand {
		keys, otherType, reason = []string{"headers"}, "url", "a command"
	}
	for _, key := range keys {
		if m, ok := d.members[key]; ok && !isEmptyValue(m.value) {
			p.notef(m.offset, "%s has no effect: the server has %s", m.label, reason)
		}
	}
	bridgeMember := d.members[bridgeKey]
	for _, set := range slices.Concat(settings, serverOnlySettings) {
		if set.serverType == otherType && slices.Contains(d.ownSettings, set.key) {
			p.notef(bridgeMember.offset, "%q has no effect: the server has %s", set.key, reason)
		}
	}
}

// isEmptyValue reports whether a value is an empty string, object or array, as programs write it for keys that are not used.
func isEmptyValue(v hujson.Value) bool {
	switch value := v.Value.(type) {
	case *hujson.Object:
		return len(value.Members) == 0
	case *hujson.Array:
		return len(value.Elements) == 0
	}
	return string(v.Value.(hujson.Literal)) == `""`
}
