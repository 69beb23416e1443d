package redact

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	maxPaths  = 32 // are listed of what was taken out; "*" stands for more
	maxPath   = 200
	maxFound  = 64 // values that were taken out are looked for in the rest of a message
	minFound  = 6  // bytes long
	maxNested = 4  // how deep JSON in strings of JSON is looked at
	maxKept   = 8  // how often a message as a whole may be gone through for such values
)

// walk looks at every member of a message once. It does not recurse, because messages may be deep.
type walk struct {
	d             *Redactor
	text          []byte // valid JSON
	stack         []frame
	cuts          []cut
	paths         []string
	removed       [][]byte // values that were taken out because of their names
	extra         [][]byte // values that are looked for, beside the secrets
	nested        int      // how many strings this text stands in
	searchStrings bool     // there may be something in strings
	escape        bool     // strings with escapes have to be decoded for it
	removedBytes  int      // how many bytes noteRemoved was given
	elicitation   tristate // whether the message is elicitation/create
}

// tristate is what is found out once.
type tristate uint8

const (
	unknown tristate = iota
	no
	yes
)

// walks is memory for walks.
var walks = sync.Pool{New: func() any { return &walk{stack: make([]frame, 0, 16)} }}

// release keeps the memory of a walk, unless it is much.
func (w *walk) release() {
	if cap(w.stack) <= 1024 && cap(w.cuts) <= 64 {
		clear(w.cuts)
		*w = walk{stack: w.stack[:0], cuts: w.cuts[:0]}
		walks.Put(w)
	}
}

// frame is an object or array that is not at its end.
type frame struct {
	from, to         int  // of the key whose value it is, without quotes; 0, 0: an element, or the outermost one
	index            int  // of the element that is looked at; of an array
	key              span // of the member that is looked at; of an object
	object           bool
	schema           bool // its names are those of properties in a schema, or it is in such a property
	ofSensitiveName  bool // in a schema: it is the value of a sensitive name
	hasSensitiveName bool // its member "name" or "key" is a sensitive name
	value            span // of its member "value"
	paired           bool // it is the member "value" of the one around it
}

type span struct{ from, to int }

// run finds what is to be taken out.
func (w *walk) run() {
	w.searchStrings, w.escape = w.d.needsSearch(w.text, w.extra)
	i := skipSpace(w.text, 0)
	i = w.value(i, frame{})
	for len(w.stack) > 0 && i < len(w.text) {
		top := &w.stack[len(w.stack)-1]
		for i = skipSpace(w.text, i); i < len(w.text) && w.text[i] == ','; {
			i = skipSpace(w.text, i+1)
		}
		switch {
		case i >= len(w.text):
		case w.text[i] == '}' || w.text[i] == ']':
			i++
			w.pop(i)
		case top.object:
			i = w.member(top, i)
		default:
			top.index++
			if w.isChosen() {
				i = w.cutValue(i)
			} else {
				i = w.value(i, frame{schema: top.schema, ofSensitiveName: top.ofSensitiveName})
			}
		}
	}
}

// isClean reports whether there is nothing to take out of a text, as is so with most messages: a walk costs several times as much.
func (d *Redactor) isClean(text []byte, extra [][]byte) bool {
	search, _ := d.needsSearch(text, extra)
	return !search && len(d.paths) == 0 && isHarmless(text)
}

// isHarmless reports whether no name in a text tells that something is taken out. It goes from string to string, without
// regard to where they stand.
func isHarmless(text []byte) bool {
	for i := 0; ; {
		from := startOfString(text, i)
		if from < 0 {
			return true
		}
		to, set := nameAt(text, from) // or an element of an array
		name := text[from : to-1]
		if i = skipSpace(text, to); i >= len(text) || text[i] != ':' {
			i = to
			continue
		}
		i = skipSpace(text, i+1)
		if set&escape != 0 || string(name) == "requestState" || sensitivityIn(name, set) != harmless {
			return false
		}
		if i >= len(text) || text[i] != '"' {
			continue
		}
		from = i + 1
		i = endOfString(text, from)
		if string(name) == "name" || string(name) == "key" { // of a pair with "value"
			if value := text[from : i-1]; bytes.IndexByte(value, '\\') >= 0 || sensitivityOf(value) != harmless {
				return false
			}
		}
	}
}

// maxName is how long a name is, in bytes, that is looked at byte by byte.
const maxName = 64

// nameAt returns the index behind the closing quote of the name whose text begins at i, and the set of its letters, with escape
// if it has a backslash. For a long one that is all there is.
func nameAt(text []byte, i int) (end int, set uint32) {
	for near := min(i+maxName, len(text)); i < near; i++ {
		c := text[i]
		if c == '"' {
			return i + 1, set
		}
		set |= letterOf[c]
		if c == '\\' {
			i++
		}
	}
	return endOfString(text, i), ^uint32(0)
}

// needsSearch reports whether strings of a text have to be looked at, and whether those with escapes have to be decoded for it.
func (d *Redactor) needsSearch(text []byte, extra [][]byte) (search, escape bool) {
	if d.off { // a requestState is looked for wherever it stands
		return len(extra) > 0, len(extra) > 0
	}
	escapes := bytes.IndexByte(text, '\\') >= 0
	escape = escapes && (d.special || d.learned.isSpecial() || len(d.patterns) > 0 || len(extra) > 0 || bytes.Contains(text, []byte(`\u`)))
	search = escape || len(extra) > 0 || len(d.patterns) > 0 || d.containsSecret(text) ||
		escapes && bytes.Contains(text, []byte(`\"`)) || mayHaveURL(text) ||
		bytes.IndexByte(text, '=') >= 0 && bytes.ContainsAny(text, "?#&")
	return search, escape
}

// mayHaveURL reports whether "://" stands in a text. To look for the colon first would find one at each member.
func mayHaveURL(text []byte) bool {
	return bytes.Contains(text, []byte("//")) && bytes.Contains(text, []byte("://"))
}

// member looks at the member whose key begins at i, and returns where what comes next begins.
func (w *walk) member(top *frame, i int) int {
	end := endOfString(w.text, i+1)
	top.key = span{i + 1, end - 1}
	raw := w.text[top.key.from:top.key.to]
	if i = skipSpace(w.text, end); i < len(w.text) {
		i = skipSpace(w.text, i+1) // the colon
	}
	if i >= len(w.text) {
		return i
	}
	key := decode(raw)
	if string(key) == "requestState" {
		return w.cutValue(i)
	}
	if w.searchStrings {
		w.inString(top.key, nil)
	}
	if w.d.off {
		return w.value(i, frame{from: top.key.from, to: top.key.to})
	}
	if len(w.d.paths) > 0 && w.isChosen() || top.ofSensitiveName && isExample(key) {
		return w.cutValue(i)
	}
	child := frame{from: top.key.from, to: top.key.to, schema: top.schema || w.isSchema(key), ofSensitiveName: top.ofSensitiveName}
	if t := sensitivityOf(key); t != harmless && !w.isProtocolName(key) {
		switch c := w.text[i]; {
		case child.schema && c == '{':
			child.ofSensitiveName = child.ofSensitiveName || t == secret // the examples of a count are numbers
		case c == '-' || c >= '0' && c <= '9':
			if t == secret {
				return w.cutValue(i)
			}
		case c != 'n' && c != 't' && c != 'f' && !(c == '"' && w.text[i+1] == '"'):
			return w.cutValue(i)
		}
	}
	child.paired = w.pair(top, key, i)
	end = w.value(i, child)
	if child.paired && w.text[i] != '{' && w.text[i] != '[' { // else pop does it, and top may have moved
		top.value.to = end
	}
	return end
}

// pair notes members that may be a name and its value: {"name":"token","value":"x"}. It reports whether
// this is the value, whose end is not known yet.
func (w *walk) pair(top *frame, key []byte, i int) (isValue bool) {
	switch string(key) {
	case "name", "key":
		if w.text[i] == '"' {
			top.hasSensitiveName = top.hasSensitiveName || sensitivityOf(decode(w.text[i+1:endOfString(w.text, i+1)-1])) != harmless
		}
	case "value":
		top.value = span{i, 0}
		return true
	}
	return false
}

// pop ends the innermost object or array, at end.
func (w *walk) pop(end int) {
	last := len(w.stack) - 1
	top := &w.stack[last]
	if top.paired && last > 0 {
		w.stack[last-1].value.to = end
	}
	if top.hasSensitiveName && top.value.to > top.value.from+2 {
		top.key = span{}
		w.noteRemoved(w.text[top.value.from:top.value.to])
		w.cuts = append(w.cuts, cut{top.value.from, top.value.to, `"` + Placeholder + `"`})
		w.note(".value", false)
	}
	w.stack = w.stack[:last]
}

// value looks at the value at i, which becomes f if it is an object or array, and returns
// where what comes next begins.
func (w *walk) value(i int, f frame) int {
	if i >= len(w.text) {
		return i
	}
	switch w.text[i] {
	case '{', '[':
		f.object, f.index = w.text[i] == '{', -1
		w.stack = append(w.stack, f)
		return i + 1
	case '"':
		end := endOfString(w.text, i+1)
		if w.searchStrings {
			w.inString(span{i + 1, end - 1}, &f)
		}
		return end
	}
	end := endOfScalar(w.text, i)
	if w.searchStrings && (w.d.containsSecret(w.text[i:end]) || len(findAll(nil, w.text[i:end], w.extra)) > 0) {
		w.cut(span{i, end}, `"`+Placeholder+`"`, false)
	}
	return end
}

// inString looks for secrets in a string without its quotes: a key, or a value that f stands for.
func (w *walk) inString(at span, f *frame) {
	raw := w.text[at.from:at.to]
	n := len(w.cuts)
	switch {
	case mayHoldMembers(raw):
		w.inside(at, decode(raw), f == nil)
		return
	case bytes.IndexByte(raw, '\\') < 0:
	case !w.escape: // a secret would stand there as it is
	default:
		text := decode(raw)
		if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
			w.inside(at, text, f == nil)
		} else if cuts := w.d.inText(nil, text, w.extra); len(cuts) > 0 {
			w.cut(at, quoted(splice(text, cuts)), f == nil)
		}
		return
	}
	w.cuts = w.d.inText(w.cuts, raw, w.extra)
	half := false // there is a cut through an escape
	for i := range w.cuts[n:] {
		c := &w.cuts[n+i]
		half = half || c.from > 0 && raw[c.from-1] == '\\' || raw[c.to-1] == '\\'
		c.from += at.from
		c.to += at.from
	}
	if half {
		w.cuts = append(w.cuts[:n], cut{at.from, at.to, Placeholder})
	}
	if len(w.cuts) > n {
		w.note("", f == nil)
	}
}

// inside looks at members in a string that may be JSON, or has JSON in it.
func (w *walk) inside(at span, text []byte, key bool) {
	with := Placeholder
	if value := bytes.TrimSpace(text); w.nested < maxNested && jsonrpc.Valid(value) && (value[0] == '{' || value[0] == '[') {
		in := walk{d: w.d, text: value, extra: w.extra, nested: w.nested + 1}
		if !w.d.isClean(value, w.extra) {
			in.run()
		}
		clean := in.splice()
		w.removed = append(w.removed, in.removed...)
		switch {
		case w.d.containsSecret(clean): // it goes from one member to the next
		case len(in.cuts) == 0:
			return
		default:
			with = quoted(clean)
		}
	} else if cuts, sure := w.assigned(text); sure {
		if cuts = w.d.inText(cuts, text, w.extra); len(cuts) == 0 {
			return
		}
		with = quoted(splice(text, cuts))
	}
	w.cut(at, with, key)
}

// assigned is assignments, of which there are none where secrets are left in.
func (w *walk) assigned(text []byte) (cuts []cut, sure bool) {
	if w.d.off {
		return nil, true
	}
	return assignments(nil, text)
}

// quoted returns text as it stands between the quotes of a string.
func quoted(text []byte) string {
	q := jsonrpc.Quote(string(text))
	return string(q[1 : len(q)-1])
}

// mayHoldMembers reports whether a string, as it is escaped, may have a sensitive name between quotes.
func mayHoldMembers(raw []byte) bool {
	if bytes.Contains(raw, []byte(`\u`)) {
		return bytes.IndexByte(raw, ':') >= 0
	}
	last := -1
	for at := 0; ; {
		i := bytes.IndexByte(raw[at:], '\\')
		if i < 0 || at+i+1 >= len(raw) {
			return false
		}
		if at += i; raw[at+1] != '"' {
			at++
			continue
		}
		if next := skipSpace(raw, at+2); last >= 0 && next < len(raw) && (raw[next] == ':' || raw[next] == '\\') {
			if sensitivityOf(bytes.TrimRight(raw[last:at], `\`)) != harmless {
				return true
			}
		}
		at += 2
		last = at
	}
}

// isProtocolName reports whether a name that sounds sensitive is the protocol's own.
func (w *walk) isProtocolName(key []byte) bool {
	if string(key) != "progressToken" {
		return false
	}
	parent := w.keyOf(len(w.stack) - 1)
	return parent == "params" && len(w.stack) == 2 || parent == "_meta"
}

// isSchema reports whether the member that is looked at is a schema, where the protocol has one.
func (w *walk) isSchema(key []byte) bool {
	switch string(key) {
	case "inputSchema", "outputSchema":
		return w.nested == 0 && len(w.stack) == 4 && w.keyOf(1) == "result" && w.keyOf(2) == "tools"
	case "requestedSchema":
		switch len(w.stack) {
		case 2:
			return w.keyOf(1) == "params" && w.isElicitation()
		case 5:
			return w.keyOf(1) == "result" && w.keyOf(2) == "inputRequests" && w.keyOf(4) == "params"
		}
	}
	return false
}

// isElicitation reports whether the message asks the user.
func (w *walk) isElicitation() bool {
	if w.elicitation == unknown {
		w.elicitation = no
		if string(jsonrpc.Lookup(w.text, "method")) == `"elicitation/create"` {
			w.elicitation = yes
		}
	}
	return w.elicitation == yes
}

// isExample reports whether a member of a schema holds a value.
func isExample(key []byte) bool {
	switch string(key) {
	case "default", "const", "enum", "examples", "example":
		return true
	}
	return false
}

// keyOf returns the key whose value is the nth object or array, as it is spelled; "": it has none.
func (w *walk) keyOf(n int) string {
	if n < 0 || n >= len(w.stack) {
		return ""
	}
	return string(w.text[w.stack[n].from:w.stack[n].to])
}

// isChosen reports whether the user has named the path of what is looked at.
func (w *walk) isChosen() bool {
	return slices.ContainsFunc(w.d.paths, func(path []string) bool {
		if len(path) != len(w.stack) {
			return false
		}
		for i := range w.stack {
			f := &w.stack[i]
			have := strconv.Itoa(f.index)
			if f.object {
				have = string(decode(w.text[f.key.from:f.key.to]))
			}
			if path[i] != "*" && path[i] != have {
				return false
			}
		}
		return true
	})
}

// cutValue takes out the value at i, and returns where what comes next begins.
func (w *walk) cutValue(i int) int {
	end := endOfValue(w.text, i)
	w.noteRemoved(w.text[i:end])
	w.cut(span{i, end}, `"`+Placeholder+`"`, false)
	return end
}

// noteRemoved notes the strings of a value that is taken out.
func (w *walk) noteRemoved(value []byte) {
	if w.removedBytes += len(value); w.removedBytes > maxKept*len(w.text) { // values in values: nobody has that many
		return
	}
	for i := 0; i < len(value) && len(w.removed) < maxFound; i++ {
		if value[i] != '"' {
			continue
		}
		end := endOfString(value, i+1)
		if text := decode(value[i+1 : end-1]); len(text) >= minFound && !isKey(value, end) && !slices.Contains(plainValues, string(text)) {
			w.removed = append(w.removed, bytes.Clone(text)) // the message's memory may be used again
		}
		i = end - 1
	}
}

// isKey reports whether the string that ends at i is a key.
func isKey(text []byte, i int) bool {
	i = skipSpace(text, i)
	return i < len(text) && text[i] == ':'
}

// cut takes out what is looked at; key says that this is a key.
func (w *walk) cut(at span, with string, key bool) {
	w.cuts = append(w.cuts, cut{at.from, at.to, with})
	w.note("", key)
}

// note lists the path of what is looked at. key: the key itself was taken out.
func (w *walk) note(more string, key bool) {
	if len(w.paths) > maxPaths {
		return
	}
	path := "*"
	if len(w.paths) < maxPaths {
		path = w.path(key) + more
	}
	if !slices.Contains(w.paths, path) {
		w.paths = append(w.paths, path)
	}
}

func (w *walk) path(hideKey bool) string {
	var b strings.Builder
	for i := range w.stack {
		f := &w.stack[i]
		switch {
		case b.Len() > maxPath:
			return b.String() + "..."
		case !f.object:
			b.WriteString("[" + strconv.Itoa(f.index) + "]")
		case f.key.to > 0:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			name := decode(w.text[f.key.from:f.key.to])
			if hideKey && i == len(w.stack)-1 || len(name) > maxPath || len(w.d.inText(nil, name, w.extra)) > 0 {
				name = []byte(Placeholder)
			}
			b.Write(name)
		}
	}
	return b.String()
}

// sensitiveStrings returns the strings with sensitive names in a secret that is itself JSON.
func (w *walk) sensitiveStrings() (all []string) {
	if len(w.text) == 0 || w.text[0] != '{' || !jsonrpc.Valid(w.text) {
		return nil
	}
	w.run()
	for _, f := range w.removed {
		all = append(all, string(f))
	}
	return all
}

func (w *walk) splice() []byte {
	if len(w.cuts) == 0 {
		return w.text
	}
	return splice(w.text, w.cuts)
}
