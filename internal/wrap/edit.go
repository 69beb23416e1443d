package wrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// Errors of Wrap and Unwrap: what keeps a server from being wrapped or unwrapped.
var (
	ErrNoServer       = errors.New("there is no such server")       // the error for a name that no server of the configuration has
	ErrAlreadyWrapped = errors.New("the server is wrapped already") // the error of Wrap for a server that has the bridge in front of it
	ErrNotWrapped     = errors.New("the server is not wrapped")     // the error of Unwrap for a server that has no bridge in front of it
	// ErrRemote is the error for a server without a command, as one with a URL is.
	ErrRemote = errors.New("the server has no command: it is a remote one, without a process that the bridge could stand in front of; to reach it through the bridge, write " + RemoteExample + " in place of its URL")
	// ErrIsBridge is the error of Wrap for a server whose command is mcp-bridge without another command behind it; its demo can be wrapped.
	ErrIsBridge = errors.New("the server is mcp-bridge already, and \"mcp-bridge trace\" shows what passes without a second one in front")
)

// RemoteExample is what to write into a client's configuration, in place of a URL, for a remote server that is reached through the bridge.
const RemoteExample = `"command": "mcp-bridge", "args": ["connect", "URL"]`

// maxBrackets is how many opening brackets, { and [, a configuration may have, those in strings and comments included. So it also bounds how
// deeply objects and arrays are nested: the parser recurses.
const maxBrackets = 50_000

// serverContainers are the members under which clients keep their servers.
var serverContainers = []string{"mcpServers", "servers", "context_servers"}

// byteOrderMark is what some editors of Windows begin a file with.
const byteOrderMark = "\xef\xbb\xbf"

// Wrap returns text, a client's configuration, with "mcp-bridge connect" in front of the command of the server with this name. bridge is the
// path of mcp-bridge. A server that is wrapped already, is mcp-bridge itself, or is a remote one, is an error.
func Wrap(text []byte, name, bridge string) ([]byte, error) {
	if rest, marked := bytes.CutPrefix(text, []byte(byteOrderMark)); marked {
		out, err := Wrap(rest, name, bridge)
		return append([]byte(byteOrderMark), out...), err
	}
	e, err := newServerEditor(text, name)
	if err != nil {
		return nil, err
	}
	if e.isWrapped() {
		return nil, ErrAlreadyWrapped
	}
	if e.isBridge() && !e.isDemo() {
		return nil, ErrIsBridge
	}
	if strings.HasPrefix(name, "-") { // Unwrap could not tell it from the flags
		return nil, errors.New("the server's name looks like a flag; change the file by hand")
	}
	var own []byte
	switch {
	case e.args == nil: // "=" tells Unwrap so
		own = jsonStringList("connect", "--name="+name, "--")
	default:
		own = jsonStringList("connect", "--name", name, "--")
	}
	own = append(append(own, ", "...), e.rawText(e.command)...)
	switch {
	case e.args == nil:
		own = append(append([]byte(`, "args": [`), own...), ']')
		e.addEdit(e.command.EndOffset, e.command.EndOffset, own)
	case len(e.args.Value.(*hujson.Array).Elements) > 0:
		own = append(own, ',')
		fallthrough
	default:
		e.addEdit(e.args.StartOffset+1, e.args.StartOffset+1, own)
	}
	e.addEdit(e.command.StartOffset, e.command.EndOffset, jsonStringList(bridge))
	return e.apply()
}

// Unwrap returns text, a client's configuration, without what Wrap has put in front of the command of the server with this name. Other
// arguments that somebody has added for the bridge are taken out, too. A server that is not wrapped is an error (ErrNotWrapped).
func Unwrap(text []byte, name string) ([]byte, error) {
	if rest, marked := bytes.CutPrefix(text, []byte(byteOrderMark)); marked {
		out, err := Unwrap(rest, name)
		return append([]byte(byteOrderMark), out...), err
	}
	e, err := newServerEditor(text, name)
	if err != nil {
		return nil, err
	}
	if !e.isWrapped() {
		return nil, ErrNotWrapped
	}
	all := e.args.Value.(*hujson.Array).Elements
	at := slices.IndexFunc(all, func(v hujson.Value) bool { return isString(v, "--") }) + 1
	command := all[at]
	absent := slices.ContainsFunc(all[:at], func(v hujson.Value) bool { return strings.HasPrefix(stringOf(v), "--name=") })
	switch {
	case absent && at == len(all)-1:
		e.removeArgs()
	case at == len(all)-1 && command.AfterExtra == nil:
		e.addEdit(e.args.StartOffset+1, command.EndOffset, nil)
	default: // up to the comma, before which there may be a comment
		e.addEdit(e.args.StartOffset+1, command.EndOffset+len(command.AfterExtra)+1, nil)
	}
	e.addEdit(e.command.StartOffset, e.command.EndOffset, e.rawText(&command))
	return e.apply()
}

// Servers returns the names of the servers in a client's configuration.
func Servers(text []byte) ([]string, error) {
	all, err := findServers(bytes.TrimPrefix(text, []byte(byteOrderMark)))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range all.Members {
		names = append(names, stringOf(m.Name))
	}
	return names, nil
}

// parse reads JSON with comments and trailing commas. The words of its errors show nothing of
// the file, in which there may be secrets.
func parse(text []byte) (root hujson.Value, err error) {
	switch {
	case !utf8.Valid(text):
		return root, errors.New("it is not in UTF-8")
	case bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) > maxBrackets:
		return root, fmt.Errorf("it has more than %d brackets", maxBrackets)
	}
	if root, err = hujson.Parse(append(slices.Clip(text), '\n')); err != nil { // the end of a comment in the last line
		return root, errors.New("it is not JSON; mcp-bridge check-config says where")
	}
	return root, nil
}

// findServers returns the object in a client's configuration that has the servers.
func findServers(text []byte) (*hujson.Object, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	top, ok := root.Value.(*hujson.Object)
	if !ok {
		return nil, errors.New("it is not the configuration of a client: that is an object")
	}
	for _, key := range serverContainers {
		v, err := findMember(top, key)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		if all, ok := v.Value.(*hujson.Object); ok {
			return all, nil
		}
		return nil, fmt.Errorf("its %q is not an object", key)
	}
	return nil, fmt.Errorf("it has none of the members %s", strings.Join(serverContainers, ", "))
}

// findMember returns the value of a key of o; nil: there is none. It is an error if the key stands there twice.
func findMember(o *hujson.Object, key string) (found *hujson.Value, err error) {
	for i := range o.Members {
		m := &o.Members[i]
		if !isString(m.Name, key) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%q stands twice in it", key)
		}
		found = &m.Value
	}
	return found, nil
}

// serverEditor collects edits of one server in the text of a client's configuration.
type serverEditor struct {
	text    []byte         // the text before the edits
	server  *hujson.Object // the server in the text
	command *hujson.Value  // its command, a string
	args    *hujson.Value  // its args, an array of strings; nil: it has none
	edits   []edit         // what is to be changed; apply does it
}

// An edit puts other text in the place of some bytes of a text.
type edit struct {
	from int    // the offset of the first byte to replace
	to   int    // the offset behind the last byte to replace; from: text is only put in
	text []byte // what is put there; nil: the bytes are only taken out
}

// newServerEditor finds the server with this name in the text of a client's configuration. It is an error if there is none
// (ErrNoServer), if it has no command (ErrRemote), or if command and args have wrong types.
func newServerEditor(text []byte, name string) (*serverEditor, error) {
	e := &serverEditor{text: text}
	all, err := findServers(text)
	if err != nil {
		return nil, err
	}
	server, err := findMember(all, name)
	switch {
	case err != nil:
		return nil, err
	case server == nil:
		return nil, ErrNoServer
	}
	var ok bool
	if e.server, ok = server.Value.(*hujson.Object); !ok {
		return nil, errors.New("the server is not an object")
	}
	if e.command, err = findMember(e.server, "command"); err != nil {
		return nil, err
	}
	if e.args, err = findMember(e.server, "args"); err != nil {
		return nil, err
	}
	if e.command == nil {
		return nil, ErrRemote
	}
	if e.command.Value.Kind() != '"' {
		return nil, errors.New("the server's command is not a string")
	}
	if e.args == nil {
		return e, nil
	}
	list, ok := e.args.Value.(*hujson.Array)
	if !ok || slices.ContainsFunc(list.Elements, func(v hujson.Value) bool { return v.Value.Kind() != '"' }) {
		return nil, errors.New("the server's args are not an array of strings")
	}
	return e, nil
}

// isWrapped reports whether the server is run by "mcp-bridge connect ... -- COMMAND", as Wrap writes it, or somebody by hand.
func (e *serverEditor) isWrapped() bool {
	if e.args == nil {
		return false
	}
	all := e.args.Value.(*hujson.Array).Elements
	at := slices.IndexFunc(all, func(v hujson.Value) bool { return isString(v, "--") })
	return e.isBridge() && at > 0 && at < len(all)-1 && isString(all[0], "connect")
}

// isBridge reports whether the server's command is mcp-bridge, by its name.
func (e *serverEditor) isBridge() bool {
	program := stringOf(*e.command)
	return strings.HasPrefix(program[strings.LastIndexAny(program, `/\`)+1:], "mcp-bridge")
}

// isDemo reports whether the server's first argument is "demo", whatever its command is. If the command is mcp-bridge
// (isBridge), mcp-bridge is then the server itself, and no bridge.
func (e *serverEditor) isDemo() bool {
	if e.args == nil {
		return false
	}
	all := e.args.Value.(*hujson.Array).Elements
	return len(all) > 0 && isString(all[0], "demo")
}

// rawText returns a value as it stands in the text.
func (e *serverEditor) rawText(v *hujson.Value) []byte { return e.text[v.StartOffset:v.EndOffset] }

// addEdit has text put in the place of the bytes from the offset from to the offset to.
func (e *serverEditor) addEdit(from, to int, text []byte) {
	e.edits = append(e.edits, edit{from, to, text})
}

// removeArgs has the key "args" of the server taken out with its value and the comma in front of it; if it is the first key, with the
// comma behind it.
func (e *serverEditor) removeArgs() {
	at := slices.IndexFunc(e.server.Members, func(m hujson.ObjectMember) bool { return isString(m.Name, "args") })
	name, end := e.server.Members[at].Name, e.args.EndOffset
	if at > 0 {
		before := e.server.Members[at-1].Value
		e.addEdit(before.EndOffset+len(before.AfterExtra), end, nil)
		return
	}
	e.addEdit(name.StartOffset, end+len(e.args.AfterExtra)+1, nil) // command follows
}

// apply returns the text with all edits made. It is an error if the result cannot be parsed.
func (e *serverEditor) apply() ([]byte, error) {
	slices.SortFunc(e.edits, func(a, b edit) int { return a.from - b.from })
	var out []byte
	at := 0
	for _, x := range e.edits {
		out = append(append(out, e.text[at:x.from]...), x.text...)
		at = x.to
	}
	out = append(out, e.text[at:]...)
	if _, err := parse(out); err != nil {
		return nil, errors.New("it cannot be edited safely; change it by hand")
	}
	return out, nil
}

// jsonStringList returns strings as JSON, with commas between them and no brackets.
func jsonStringList(all ...string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i, s := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		_ = enc.Encode(s)       // a string can be encoded
		b.Truncate(b.Len() - 1) // its line feed
	}
	return b.Bytes()
}

// stringOf returns a value that is a string; "": it is none.
func stringOf(v hujson.Value) string {
	if l, ok := v.Value.(hujson.Literal); ok && l.Kind() == '"' {
		return l.String()
	}
	return ""
}

// isString reports whether a value is the string want.
func isString(v hujson.Value, want string) bool {
	l, ok := v.Value.(hujson.Literal)
	return ok && l.Kind() == '"' && l.String() == want
}
