package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"

	"github.com/mcp-bridge/mcp-bridge/internal/nearest"
)

// A parser reads one file and collects what is wrong with it.
type parser struct {
	fileName    string // the name of the configuration file, for problems
	baseDir     string // the folder of the file: paths in the file are relative to it
	data        []byte // the content of the file, without a byte order mark
	lineOffsets []int  // the offset in data of each line's beginning

	lookup             func(string) (string, bool)  // returns the value of an environment variable, and whether it is set
	readFile           func(string) ([]byte, error) // reads a file that the configuration file names; nil: such files are not read
	onlyServer         string                       // the name of the server that is wanted; "": all that are not disabled (Options.OnlyServer)
	commandsOnlyClient string                       // the name of the client that knows no server with a URL; "": the file is for no such client (Options.CommandsOnlyClient)
	checkServer        func(Server) error           // returns what else is wrong with a server in which no mistake was found; nil: nothing more is checked (Options.CheckServer)
	checkScopes        func(string) error           // returns what is wrong with one line of "scopes", such as "tools/call delete_* -> admin"; nil: the lines are not checked (Options.CheckScopes)
	defaults           Settings                     // the settings of a server that says nothing: those of Options, and then of the file's "defaults"

	missingIsNotice bool      // the server that is read now is not wanted: if something that it needs is not there, that is a notice, not a mistake
	config          Config    // what was read so far, and the notices
	problems        []Problem // the mistakes that were found so far
}

// parse reads data, the content of the file with this name, and returns what Load returns. read reads the files that the file names; nil:
// they are not read.
func parse(name string, data []byte, o Options, read func(string) ([]byte, error)) (*Config, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return &Config{}, fmt.Errorf("config file %s: %w", name, err)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // a byte order mark
	p := &parser{
		fileName: name, baseDir: filepath.Dir(abs), data: data, lineOffsets: lineStarts(data),
		lookup: o.Lookup, readFile: read, onlyServer: o.OnlyServer, commandsOnlyClient: o.CommandsOnlyClient, checkServer: o.CheckServer, checkScopes: o.CheckScopes,
		config: Config{MaxChildrenTotal: -1, Files: []string{abs}},
	}
	if p.lookup == nil {
		p.lookup = os.LookupEnv
	}
	p.defaults = DefaultSettings()
	if o.Defaults != nil {
		p.defaults = *o.Defaults
	}
	if root, ok := p.parseSyntax(); ok {
		p.readRoot(root)
	}
	slices.Sort(p.config.Files)
	p.config.Files = slices.Compact(p.config.Files)
	if len(p.problems) > 0 {
		return &Config{Files: p.config.Files}, Problems(sorted(p.problems, name))
	}
	p.config.Notices = sorted(p.config.Notices, name)
	return &p.config, nil
}

// errorf records a mistake at an offset of the file.
func (p *parser) errorf(offset int, format string, args ...any) {
	appendProblem(&p.problems, p.newProblem(offset, fmt.Sprintf(format, args...)))
}

// notef records a notice, which is no mistake, at an offset of the file.
func (p *parser) notef(offset int, format string, args ...any) {
	appendProblem(&p.config.Notices, p.newProblem(offset, fmt.Sprintf(format, args...)))
}

// addMissing records that something which the file needs, such as an environment variable, is not there, or that a file which it names is
// wrong: as a notice if missingIsNotice, else as a mistake.
func (p *parser) addMissing(problem Problem) {
	if p.missingIsNotice {
		appendProblem(&p.config.Notices, problem)
	} else {
		appendProblem(&p.problems, problem)
	}
}

// maxProblems is how many mistakes, and how many notices, are told about one file: nobody reads more.
const maxProblems = 1000

// appendProblem appends a problem to a list. At maxProblems, it appends that there are more, and from then on nothing.
func appendProblem(list *[]Problem, problem Problem) {
	if len(*list) == maxProblems {
		problem.Text = "there is more like this"
	}
	if len(*list) <= maxProblems {
		*list = append(*list, problem)
	}
}

// newProblem returns a Problem at an offset of the configuration file.
func (p *parser) newProblem(offset int, text string) Problem {
	line := sort.SearchInts(p.lineOffsets, offset+1)
	column := 1 + utf8.RuneCount(p.data[p.lineOffsets[line-1]:offset])
	return Problem{File: p.fileName, Line: line, Column: column, Text: text}
}

// A member is a key of an object with its value, or an element of an array (parser.elements).
type member struct {
	key    string       // the key as the file spells it; of an element, the key of the array
	offset int          // the offset of the key, or of the element, in the file
	label  string       // what messages call the key or the element: short, and fit to be printed
	value  hujson.Value // the value of the key; the element
}

// members returns the keys of an object with their values. what is the object's name in messages. A key that is there twice is
// a mistake, and the second one is left out. ok is false if v is no object, which is recorded as a mistake.
func (p *parser) members(v hujson.Value, what string) (all []member, ok bool) {
	object, ok := v.Value.(*hujson.Object)
	if !ok {
		p.errorf(v.StartOffset, "%s is %s: write an object, {...}", what, typeName(v))
		return nil, false
	}
	seen := map[string]int{}
	for _, m := range object.Members {
		key := m.Name.Value.(hujson.Literal).String()
		at := m.Name.StartOffset
		if first, twice := seen[key]; twice {
			p.errorf(at, "%s is here for the second time: the first is in line %d", printableName(key), p.newProblem(first, "").Line)
			continue
		}
		seen[key] = at
		all = append(all, member{key: key, offset: at, label: printableName(key), value: m.Value})
	}
	return all, true
}

// knownMembers returns the keys of an object with their values, as members does, but without keys that are comments by convention
// (isComment), and without nulls, which programs write for what is not there. It is for objects whose keys are known: not for names that others
// choose.
func (p *parser) knownMembers(v hujson.Value, what string) (kept []member, ok bool) {
	all, ok := p.members(v, what)
	for _, m := range all {
		if !isComment(m.key) && !isNull(m.value) {
			kept = append(kept, m)
		}
	}
	return kept, ok
}

// readRoot reads the whole file: the bridge's own settings, and the servers.
func (p *parser) readRoot(root hujson.Value) {
	all, ok := p.knownMembers(root, "the file")
	if !ok {
		return
	}
	i := slices.IndexFunc(all, func(m member) bool { return m.key == bridgeKey })
	if i >= 0 {
		p.readDaemonSettings(all[i])
	}
	found := false
	for _, m := range all {
		switch {
		case m.key == bridgeKey:
		case slices.Contains(serverKeys, m.key):
			found = true
			p.readServers(m)
		case slices.Contains(clientTopKeys, m.key):
			p.notef(m.offset, "%s is for a client, and ignored here", m.label)
		case nearest.To(m.key, slices.Concat(serverKeys, []string{bridgeKey})) != "":
			p.errorf(m.offset, "%s is not known here%s", m.label, p.suggestKey(m.key, slices.Concat(serverKeys, []string{bridgeKey})))
		default:
			p.notef(m.offset, "%s is not known here, and ignored", m.label)
		}
	}
	if !found && len(p.problems) == 0 {
		p.errorf(root.StartOffset, `the file names no servers: write {"mcpServers": {...}}`)
	}
}

// bridgeKey is the key, at the top of the file and in each server, under which the bridge's own settings are.
const bridgeKey = "mcp-bridge"

// serverKeys are the names under which clients keep their servers.
var serverKeys = []string{"mcpServers", "servers", "context_servers"}

// readDaemonSettings reads the "mcp-bridge" at the top of the file: "defaults", "maxChildrenTotal" and "scopes". All else is a mistake, also
// what is a flag of serve.
func (p *parser) readDaemonSettings(top member) {
	all, ok := p.knownMembers(top.value, top.label)
	if !ok {
		return
	}
	for _, m := range all {
		switch flag := daemonFlags[nearest.Normalize(m.key)]; {
		case m.key == "defaults":
			if all, ok := p.knownMembers(m.value, m.label); ok {
				for _, m := range all {
					p.readSetting(&p.defaults, m)
				}
			}
		case m.key == "maxChildrenTotal":
			p.integer(m, 0, &p.config.MaxChildrenTotal)
		case m.key == "scopes":
			p.readScopes(m)
		case flag != "":
			p.errorf(m.offset, "%s is said on the command line: %s", m.label, flag)
		case findSetting(m.key) != nil:
			p.errorf(m.offset, `%s is for servers: put it into "defaults" for all of them, or into the "mcp-bridge" of one`, m.label)
		default:
			p.errorf(m.offset, "%s is not known in \"mcp-bridge\"%s", m.label, p.suggestKey(m.key, []string{"defaults", "maxChildrenTotal", "scopes"}))
		}
	}
}

// readScopes reads "scopes", the lines that say which scopes of access tokens messages need, into Config.Scopes.
func (p *parser) readScopes(m member) {
	all, _ := p.elements(m, `an array of lines, such as ["tools/call delete_* -> admin"]`)
	for _, e := range all {
		text, ok := p.text(e, `a line in quotes, such as "tools/call delete_* -> admin"`)
		if !ok {
			continue
		}
		if p.checkScopes != nil {
			if err := p.checkScopes(text); err != nil {
				p.errorf(e.value.StartOffset, "%s: %v", e.label, err)
				continue
			}
		}
		p.config.Scopes = append(p.config.Scopes, text)
	}
}

// daemonFlags are keys that people may write into the file, though only a flag can say it, each with that flag. The keys are
// normalized (nearest.Normalize).
var daemonFlags = map[string]string{
	"listen": "--listen", "host": "--host", "port": "--port", "unixmode": "--unix-mode",
	"tlscert": "--tls-cert", "tlskey": "--tls-key", "tlsclientca": "--tls-client-ca",
	"pathprefix": "--path-prefix", "trustedproxy": "--trusted-proxy", "trustedproxies": "--trusted-proxy",
	"publicurl": "--public-url", "oidcissuer": "--oidc-issuer", "issuer": "--oidc-issuer", "jwksurl": "--jwks-url",
	"audience": "--audience", "introspect": "--introspect", "requirescope": "--require-scope", "scopemap": "--scope-map",
	"tokenfile": "--token-file", "tokens": "--token-file", "insecure": "--insecure",
	"alloworigin": "--allow-origin", "alloworigins": "--allow-origin",
	"allowhost": "--allow-host", "allowhosts": "--allow-host",
	"loglevel": "--log-level", "logformat": "--log-format",
}

// suggestKey returns the end of a message about a key that is none of known: the one of known that was probably meant, or that
// the key is to be removed.
func (p *parser) suggestKey(key string, known []string) string {
	if similar := nearest.To(key, known); similar != "" {
		return fmt.Sprintf(": did you mean %q?", similar)
	}
	return ": remove it"
}

// readServers reads the object of servers, such as "mcpServers", into Config.Servers.
func (p *parser) readServers(top member) {
	all, ok := p.members(top.value, top.label)
	if !ok {
		return
	}
	for _, m := range all {
		if isComment(m.key) && m.value.Value.Kind() != '{' {
			continue
		}
		if wrong := checkName(m.key); wrong != "" {
			p.errorf(m.offset, "the server name %s %s", m.label, wrong)
		}
		if slices.ContainsFunc(p.config.Servers, func(s Server) bool { return s.Name == m.key }) {
			p.errorf(m.offset, "there is another server %s in this file", m.label)
		}
		p.config.Servers = append(p.config.Servers, p.readServer(m))
	}
}

// checkName returns what is wrong with a server's name, which is a segment of the path under which the server is reached; "": nothing.
func checkName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case name == "." || name == "..":
		return "means a directory in a path: choose another"
	case len(name) > 100:
		return "is longer than 100 bytes"
	case strings.TrimSpace(name) != name:
		return "begins or ends with white space"
	case strings.ContainsAny(name, `/\%?#`):
		return `contains one of / \ % ? #, which paths cannot carry: ` + suggestName(name)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }):
		return "contains a control character"
	}
	return ""
}

// suggestName returns the end of a message about a server's name that is not allowed: a similar name that is.
func suggestName(name string) string {
	name = strings.Trim(strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\%?# `, r) || r < ' ' {
			return '-'
		}
		return r
	}, name), "-. ")
	if name == "" {
		return "choose another"
	}
	return "call it " + printableName(name) + ", for example"
}
