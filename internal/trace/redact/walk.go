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
	maxListedPaths   = 32  // how many paths a walk lists; one more, "*", stands for the others
	maxPathBytes     = 200 // how long a listed path may be, in bytes, until it is cut short with "..."
	maxRemovedValues = 64  // how many strings that were taken out because of a name or a path are looked for in the rest of a message
	minRemovedBytes  = 6   // how long a value must be, in bytes, for rememberRemoved to keep it
	maxNestingDepth  = 4   // up to how many levels deep JSON in strings of JSON is looked through
	maxRemovalPasses = 8   // rememberRemoved looks at so many times the length of the message in all, and at no more
)

// walk looks at every member of a message once, and notes what is to be taken out. It does not recurse into objects and arrays,
// because messages may be deep.
type walk struct {
	redactor       *Redactor // says what is looked for
	text           []byte    // the message, or JSON that stood in a string of it; valid JSON
	stack          []frame   // the objects and arrays around what is looked at, the outermost first
	cuts           []cut     // what is to be taken out of text
	paths          []string  // the paths of what is taken out
	removedValues  [][]byte  // strings in values that were taken out because of a name or of a rule that is a path, but for those that rememberRemoved leaves out
	extraValues    [][]byte  // values that are looked for beside the Redactor's
	nestingDepth   int       // in how many strings, each inside the other, text stands; 0: text is the message
	searchStrings  bool      // keys, strings and numbers are looked through, as secrets may stand in them
	decodesEscapes bool      // strings with escapes are decoded before they are looked through
	removedBytes   int       // how many bytes rememberRemoved was given in all
	elicitation    tristate  // whether the message is elicitation/create; see isElicitation
}

// tristate is the answer to a question with yes or no, which is looked for only when it is needed, and then kept.
type tristate uint8

const (
	unknown tristate = iota // the answer was not looked for so far
	no                      // the answer is no
	yes                     // the answer is yes
)

// walkPool is walks that were released, whose memory is used again.
var walkPool = sync.Pool{New: func() any { return &walk{stack: make([]frame, 0, 16)} }}

// release puts a walk, emptied, into walkPool, unless it has much memory.
func (w *walk) release() {
	if cap(w.stack) <= 1024 && cap(w.cuts) <= 64 {
		clear(w.cuts)
		*w = walk{stack: w.stack[:0], cuts: w.cuts[:0]}
		walkPool.Put(w)
	}
}

// frame is an object or array around what a walk looks at, whose end it has not reached.
type frame struct {
	ownKeyFrom       int  // where the key begins whose value this is, behind its quote; 0, like ownKeyTo: it is an element, or the outermost value
	ownKeyTo         int  // where the key ends whose value this is, before its quote
	index            int  // of an array: index of the element that is looked at; -1: none so far
	currentKey       span // of an object: the key of the member that is looked at, without quotes
	isObject         bool // false: it is an array
	inSchema         bool // it is a JSON schema, or stands in one: names in it are those of properties
	ofSensitiveName  bool // in a schema: it describes a property with a sensitive name, or stands in what does
	hasSensitiveName bool // it has a member "name" or "key" whose value is a sensitive name
	pairValue        span // where the value of its member "value" stands; 0, 0: it has none so far
	isPairValue      bool // it is the value of the member "value" of the object around it
}

// span is a part of walk.text.
type span struct {
	from int // index of the first byte
	to   int // index behind the last byte
}

// run goes through text and sets cuts, paths and removedValues.
func (w *walk) run() {
	w.searchStrings, w.decodesEscapes = w.redactor.needsSearch(w.text, w.extraValues)
	i := skipSpace(w.text, 0)
	i = w.visitValue(i, frame{})
	for len(w.stack) > 0 && i < len(w.text) {
		top := &w.stack[len(w.stack)-1]
		for i = skipSpace(w.text, i); i < len(w.text) && w.text[i] == ','; {
			i = skipSpace(w.text, i+1)
		}
		switch {
		case i >= len(w.text):
		case w.text[i] == '}' || w.text[i] == ']':
			i++
			w.endContainer(i)
		case top.isObject:
			i = w.visitMember(top, i)
		default:
			top.index++
			if w.isRulePath() {
				i = w.cutValue(i)
			} else {
				i = w.visitValue(i, frame{inSchema: top.inSchema, ofSensitiveName: top.ofSensitiveName})
			}
		}
	}
}

// isClean reports whether it is sure that there is nothing to take out of a JSON text, as with most messages: a walk costs
// several times as much. extra are values that are looked for, beside the secrets.
func (d *Redactor) isClean(text []byte, extra [][]byte) bool {
	search, _ := d.needsSearch(text, extra)
	return !search && len(d.rulePaths) == 0 && hasNoSensitiveName(text)
}

// hasNoSensitiveName reports whether it is sure that no name in a JSON text is a reason to take something out. It goes from
// string to string, without regard to where they stand.
func hasNoSensitiveName(text []byte) bool {
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
		if set&hasBackslash != 0 || string(name) == "requestState" || sensitivityIn(name, set) != harmless {
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

// maxShortNameBytes is how long a name may be, in bytes, for nameAt to look at each letter: a longer one is taken to have all
// letters. Redactor.Name keeps no longer one.
const maxShortNameBytes = 64

// nameAt reads the JSON string whose text begins at i. It returns the index behind its closing quote, and the set of its
// letters, with hasBackslash if there is a backslash. The set of a string above maxShortNameBytes has everything.
func nameAt(text []byte, i int) (end int, set uint32) {
	for near := min(i+maxShortNameBytes, len(text)); i < near; i++ {
		c := text[i]
		if c == '"' {
			return i + 1, set
		}
		set |= letterSetOf[c]
		if c == '\\' {
			i++
		}
	}
	return endOfString(text, i), ^uint32(0)
}

// needsSearch reports whether a walk has to look for secrets in the keys and strings of a JSON text (search), and whether it
// has to decode those with escapes for that (escape). extra are values that are looked for, too.
func (d *Redactor) needsSearch(text []byte, extra [][]byte) (search, escape bool) {
	if d.off { // a requestState is looked for wherever it stands
		return len(extra) > 0, len(extra) > 0
	}
	escapes := bytes.IndexByte(text, '\\') >= 0
	escape = escapes && (d.hasEscapable || d.learned.hasEscapable() || len(d.rulePatterns) > 0 || len(extra) > 0 || bytes.Contains(text, []byte(`\u`)))
	search = escape || len(extra) > 0 || len(d.rulePatterns) > 0 || d.containsSecret(text) ||
		escapes && bytes.Contains(text, []byte(`\"`)) || mayHaveURL(text) ||
		bytes.IndexByte(text, '=') >= 0 && bytes.ContainsAny(text, "?#&")
	return search, escape
}

// mayHaveURL reports whether "://" stands in a text. To look for the colon first would find one at each member.
func mayHaveURL(text []byte) bool {
	return bytes.Contains(text, []byte("//")) && bytes.Contains(text, []byte("://"))
}

// visitMember looks at the member of top whose key begins at i, and returns the index behind its value; or behind the opening
// bracket if the value is an object or array, which is put on the stack.
func (w *walk) visitMember(top *frame, i int) int {
	end := endOfString(w.text, i+1)
	top.currentKey = span{i + 1, end - 1}
	raw := w.text[top.currentKey.from:top.currentKey.to]
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
		w.searchString(top.currentKey, nil)
	}
	if w.redactor.off {
		return w.visitValue(i, frame{ownKeyFrom: top.currentKey.from, ownKeyTo: top.currentKey.to})
	}
	if len(w.redactor.rulePaths) > 0 && w.isRulePath() || top.ofSensitiveName && isExampleKey(key) {
		return w.cutValue(i)
	}
	child := frame{ownKeyFrom: top.currentKey.from, ownKeyTo: top.currentKey.to, inSchema: top.inSchema || w.isSchema(key), ofSensitiveName: top.ofSensitiveName}
	if t := sensitivityOf(key); t != harmless && !w.isProtocolName(key) {
		switch c := w.text[i]; {
		case child.inSchema && c == '{':
			child.ofSensitiveName = child.ofSensitiveName || t == alwaysSecret // the examples of a count are numbers
		case c == '-' || c >= '0' && c <= '9':
			if t == alwaysSecret {
				return w.cutValue(i)
			}
		case c != 'n' && c != 't' && c != 'f' && !(c == '"' && w.text[i+1] == '"'):
			return w.cutValue(i)
		}
	}
	child.isPairValue = w.recordPair(top, key, i)
	end = w.visitValue(i, child)
	if child.isPairValue && w.text[i] != '{' && w.text[i] != '[' { // else endContainer does it, and top may have moved
		top.pairValue.to = end
	}
	return end
}

// recordPair notes in top that its member key, whose value begins at i, is one of a name and its value, as in
// {"name":"token","value":"x"}. It reports whether the member is "value"; then the caller sets pairValue.to.
func (w *walk) recordPair(top *frame, key []byte, i int) (isValue bool) {
	switch string(key) {
	case "name", "key":
		if w.text[i] == '"' {
			top.hasSensitiveName = top.hasSensitiveName || sensitivityOf(decode(w.text[i+1:endOfString(w.text, i+1)-1])) != harmless
		}
	case "value":
		top.pairValue = span{i, 0}
		return true
	}
	return false
}

// endContainer takes the innermost object or array, which ends before the index end, off the stack. If it is a pair of a
// sensitive name and its value, the value is taken out.
func (w *walk) endContainer(end int) {
	last := len(w.stack) - 1
	top := &w.stack[last]
	if top.isPairValue && last > 0 {
		w.stack[last-1].pairValue.to = end
	}
	if top.hasSensitiveName && top.pairValue.to > top.pairValue.from+2 {
		top.currentKey = span{}
		w.rememberRemoved(w.text[top.pairValue.from:top.pairValue.to])
		w.cuts = append(w.cuts, cut{top.pairValue.from, top.pairValue.to, `"` + Placeholder + `"`})
		w.listPath(".value", false)
	}
	w.stack = w.stack[:last]
}

// visitValue looks at the value that begins at i, and returns the index behind it; of an object or array, which it puts on the stack
// as f, the index behind the opening bracket.
func (w *walk) visitValue(i int, f frame) int {
	if i >= len(w.text) {
		return i
	}
	switch w.text[i] {
	case '{', '[':
		f.isObject, f.index = w.text[i] == '{', -1
		w.stack = append(w.stack, f)
		return i + 1
	case '"':
		end := endOfString(w.text, i+1)
		if w.searchStrings {
			w.searchString(span{i + 1, end - 1}, &f)
		}
		return end
	}
	end := endOfScalar(w.text, i)
	if w.searchStrings && (w.redactor.containsSecret(w.text[i:end]) || len(appendValueCuts(nil, w.text[i:end], w.extraValues)) > 0) {
		w.addCut(span{i, end}, `"`+Placeholder+`"`, false)
	}
	return end
}

// searchString looks for secrets in a string, and takes them out; at is where it stands, without its quotes. f is nil if the
// string is a key.
func (w *walk) searchString(at span, f *frame) {
	raw := w.text[at.from:at.to]
	n := len(w.cuts)
	switch {
	case mayHoldMembers(raw):
		w.searchNestedJSON(at, decode(raw), f == nil)
		return
	case bytes.IndexByte(raw, '\\') < 0:
	case !w.decodesEscapes: // a secret would stand there as it is
	default:
		text := decode(raw)
		if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
			w.searchNestedJSON(at, text, f == nil)
		} else if cuts := w.redactor.appendTextCuts(nil, text, w.extraValues); len(cuts) > 0 {
			w.addCut(at, escapedText(applyCuts(text, cuts)), f == nil)
		}
		return
	}
	w.cuts = w.redactor.appendTextCuts(w.cuts, raw, w.extraValues)
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
		w.listPath("", f == nil)
	}
}

// searchNestedJSON looks for secrets in a string that may be JSON, or have assignments in it, and takes them out. at is where
// the string stands, and text is it decoded. key: it is a key.
func (w *walk) searchNestedJSON(at span, text []byte, key bool) {
	with := Placeholder
	if value := bytes.TrimSpace(text); w.nestingDepth < maxNestingDepth && jsonrpc.Valid(value) && (value[0] == '{' || value[0] == '[') {
		in := walk{redactor: w.redactor, text: value, extraValues: w.extraValues, nestingDepth: w.nestingDepth + 1}
		if !w.redactor.isClean(value, w.extraValues) {
			in.run()
		}
		clean := in.applyCuts()
		w.removedValues = append(w.removedValues, in.removedValues...)
		switch {
		case w.redactor.containsSecret(clean): // a secret that goes from one member to the next
		case len(in.cuts) == 0:
			return
		default:
			with = escapedText(clean)
		}
	} else if cuts, sure := w.assignmentCuts(text); sure {
		if cuts = w.redactor.appendTextCuts(cuts, text, w.extraValues); len(cuts) == 0 {
			return
		}
		with = escapedText(applyCuts(text, cuts))
	}
	w.addCut(at, with, key)
}

// assignmentCuts returns what appendAssignmentCuts finds in text; with Options.Off, nothing.
func (w *walk) assignmentCuts(text []byte) (cuts []cut, sure bool) {
	if w.redactor.off {
		return nil, true
	}
	return appendAssignmentCuts(nil, text)
}

// escapedText returns text as it stands between the quotes of a JSON string.
func escapedText(text []byte) string {
	q := jsonrpc.Quote(string(text))
	return string(q[1 : len(q)-1])
}

// mayHoldMembers reports whether a JSON string, as it is escaped, may have JSON in it with a sensitive name.
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

// isProtocolName reports whether key, which is a sensitive name, stands where the protocol has progressToken, and so names no
// secret.
func (w *walk) isProtocolName(key []byte) bool {
	if string(key) != "progressToken" {
		return false
	}
	parent := w.keyOf(len(w.stack) - 1)
	return parent == "params" && len(w.stack) == 2 || parent == "_meta"
}

// isSchema reports whether the value of the member that is looked at is a JSON schema: key is a name of one, and stands where
// the protocol has it.
func (w *walk) isSchema(key []byte) bool {
	switch string(key) {
	case "inputSchema", "outputSchema":
		return w.nestingDepth == 0 && len(w.stack) == 4 && w.keyOf(1) == "result" && w.keyOf(2) == "tools"
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

// isElicitation reports whether text is a message with the method elicitation/create.
func (w *walk) isElicitation() bool {
	if w.elicitation == unknown {
		w.elicitation = no
		if string(jsonrpc.Lookup(w.text, "method")) == `"elicitation/create"` {
			w.elicitation = yes
		}
	}
	return w.elicitation == yes
}

// isExampleKey reports whether key is one under which a schema has values of a property: default, const, enum, example or
// examples.
func isExampleKey(key []byte) bool {
	switch string(key) {
	case "default", "const", "enum", "examples", "example":
		return true
	}
	return false
}

// keyOf returns the key whose value is the object or array stack[n], as it is spelled; "": it has none, or there is no
// stack[n].
func (w *walk) keyOf(n int) string {
	if n < 0 || n >= len(w.stack) {
		return ""
	}
	return string(w.text[w.stack[n].ownKeyFrom:w.stack[n].ownKeyTo])
}

// isRulePath reports whether one of Redactor.rulePaths is the path of the member or element that is looked at.
func (w *walk) isRulePath() bool {
	return slices.ContainsFunc(w.redactor.rulePaths, func(path []string) bool {
		if len(path) != len(w.stack) {
			return false
		}
		for i := range w.stack {
			f := &w.stack[i]
			have := strconv.Itoa(f.index)
			if f.isObject {
				have = string(decode(w.text[f.currentKey.from:f.currentKey.to]))
			}
			if path[i] != "*" && path[i] != have {
				return false
			}
		}
		return true
	})
}

// cutValue takes out all of the value at i, because of its name or a rule, and returns the index behind it.
func (w *walk) cutValue(i int) int {
	end := endOfValue(w.text, i)
	w.rememberRemoved(w.text[i:end])
	w.addCut(span{i, end}, `"`+Placeholder+`"`, false)
	return end
}

// rememberRemoved adds the strings in value, which is taken out because of a name or a path, to removedValues, but for keys,
// short ones and plain values.
func (w *walk) rememberRemoved(value []byte) {
	if w.removedBytes += len(value); w.removedBytes > maxRemovalPasses*len(w.text) { // pairs within pairs: no honest message has that many
		return
	}
	for i := 0; i < len(value) && len(w.removedValues) < maxRemovedValues; i++ {
		if value[i] != '"' {
			continue
		}
		end := endOfString(value, i+1)
		if text := decode(value[i+1 : end-1]); len(text) >= minRemovedBytes && !isKey(value, end) && !slices.Contains(plainValues, string(text)) {
			w.removedValues = append(w.removedValues, bytes.Clone(text)) // the message's memory may be used again
		}
		i = end - 1
	}
}

// isKey reports whether the JSON string that ends before the index i is a key: a colon follows.
func isKey(text []byte, i int) bool {
	i = skipSpace(text, i)
	return i < len(text) && text[i] == ':'
}

// addCut has the part at of the text replaced by with, and lists the path of what is looked at. key: the part is a key.
func (w *walk) addCut(at span, with string, key bool) {
	w.cuts = append(w.cuts, cut{at.from, at.to, with})
	w.listPath("", key)
}

// listPath adds the path of what is looked at, and more behind it, to paths. key: the last key was taken out, so it is not
// shown.
func (w *walk) listPath(more string, key bool) {
	if len(w.paths) > maxListedPaths {
		return
	}
	path := "*"
	if len(w.paths) < maxListedPaths {
		path = w.path(key) + more
	}
	if !slices.Contains(w.paths, path) {
		w.paths = append(w.paths, path)
	}
}

// path returns the path of what is looked at, such as "params.list[2].pin", with Placeholder for keys that have secrets or are
// very long. hideKey: its last key is not shown either.
func (w *walk) path(hideKey bool) string {
	var b strings.Builder
	for i := range w.stack {
		f := &w.stack[i]
		switch {
		case b.Len() > maxPathBytes:
			return b.String() + "..."
		case !f.isObject:
			b.WriteString("[" + strconv.Itoa(f.index) + "]")
		case f.currentKey.to > 0:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			name := decode(w.text[f.currentKey.from:f.currentKey.to])
			if hideKey && i == len(w.stack)-1 || len(name) > maxPathBytes || len(w.redactor.appendTextCuts(nil, name, w.extraValues)) > 0 {
				name = []byte(Placeholder)
			}
			b.Write(name)
		}
	}
	return b.String()
}

// sensitiveStrings returns the strings that are values of sensitive names in text; nil: there are none, or text is no JSON
// object.
func (w *walk) sensitiveStrings() (all []string) {
	if len(w.text) == 0 || w.text[0] != '{' || !jsonrpc.Valid(w.text) {
		return nil
	}
	w.run()
	for _, f := range w.removedValues {
		all = append(all, string(f))
	}
	return all
}

// applyCuts returns text with cuts replaced; without cuts, text itself.
func (w *walk) applyCuts() []byte {
	if len(w.cuts) == 0 {
		return w.text
	}
	return applyCuts(w.text, w.cuts)
}
