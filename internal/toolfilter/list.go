package toolfilter

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Bounds of what openLists remembers. Where one is exceeded, matchesAll is set, and every response
// is filtered from then on.
const (
	maxOpenLists   = 1000 // how many tools/list requests without an answer are remembered; more: openLists.matchesAll
	maxListIDBytes = 256  // how long the id of a tools/list request that is remembered may be; longer: openLists.matchesAll
)

// openLists remembers which tools/list requests have no answer yet. Where it
// cannot be sure, an answer counts as one of theirs: a request whose id only
// nearly came back stays, and so does a cancelled one, whose answer may still
// come when the client has used its id again for something else. When there
// are too many, all answers count.
type openLists struct {
	mayHaveOpen atomic.Bool         // false: no response needs to be looked at, and mu is taken only for another tools/list. True where openIDs has one, or matchesAll is set
	mu          sync.Mutex          // guards openIDs and matchesAll
	openIDs     map[jsonrpc.ID]bool // the ids of the tools/list requests without an answer; true: the client has cancelled it
	matchesAll  bool                // there were too many to remember, or one with too long an id: from now on every response may answer a tools/list
}

// noteSent notes the id of a tools/list that the server gets.
func (l *openLists) noteSent(id jsonrpc.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.openIDs[id]; known {
		return
	}
	if len(l.openIDs) >= maxOpenLists || len(id.String()) > maxListIDBytes {
		l.matchesAll = true
		l.mayHaveOpen.Store(true)
		return
	}
	if l.openIDs == nil {
		l.openIDs = make(map[jsonrpc.ID]bool)
	}
	l.openIDs[id] = false
	l.mayHaveOpen.Store(true)
}

// noteCancelled notes that the client has cancelled a request, which may be a tools/list.
func (l *openLists) noteCancelled(id jsonrpc.ID) {
	if !l.mayHaveOpen.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.openIDs[id]; known {
		l.openIDs[id] = true
	}
}

// mayAnswerList reports whether a response with this id may answer a tools/list, so that it must be
// filtered. It forgets the request with exactly this id, unless that was cancelled.
func (l *openLists) mayAnswerList(id jsonrpc.ID) bool {
	if !l.mayHaveOpen.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.matchesAll {
		return true
	}
	if cancelled, known := l.openIDs[id]; known {
		if !cancelled {
			delete(l.openIDs, id)
			l.mayHaveOpen.Store(len(l.openIDs) > 0)
		}
		return true
	}
	for asked := range l.openIDs {
		if asked.Equivalent(id) {
			return true
		}
	}
	return false
}

// hideInAnswer returns m, the answer to a tools/list, without the hidden tools; all other bytes stay, and so does an
// error. If m cannot be filtered, hideInAnswer returns an error response in its place.
func (f *filter) hideInAnswer(m jsonrpc.Message) jsonrpc.Message {
	withheld := func(why string) jsonrpc.Message {
		text := "the server's list of tools cannot be filtered and is withheld: " + why
		return jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, text, nil).WithRelated(m.Related()).WithMark(m.Mark())
	}
	if name := misspelledEnvelopeKey(&m); name != "" {
		return withheld(misspelledKeyText(name))
	}
	if m.IsError() {
		return m
	}
	result := m.Result()
	if result[0] != '{' {
		return withheld("it is no object")
	}
	if kept, changed := f.pruneResult(result); changed {
		return m.WithResult(kept)
	}
	return m
}

// pruneResult returns a tools/list result without the hidden tools; changed is false if it had
// none. Readers may disagree about which of several equal keys counts, and some take Tools for
// tools, so none of them shows a hidden one.
func (f *filter) pruneResult(result []byte) (kept []byte, changed bool) {
	copied := 0
	for m := range jsonrpc.Members(result) {
		if !strings.EqualFold(m.Key, "tools") {
			continue
		}
		if tools, less := f.pruneTools(m.Value); less {
			kept = append(append(kept, result[copied:m.At]...), tools...)
			copied = m.At + len(m.Value)
		}
	}
	return append(kept, result[copied:]...), copied > 0
}

// pruneTools returns a JSON array of tools without the hidden ones; pruned is false if there were
// none. A value that is no array, other than null, becomes an empty one.
func (f *filter) pruneTools(array []byte) (kept []byte, pruned bool) {
	switch array[0] {
	case '[':
	case 'n':
		return array, false // null, from servers that have none
	default:
		return []byte("[]"), true
	}
	type piece struct{ gap, tool []byte } // a tool and what stands before it
	var pieces []piece
	first, end, n := 0, 1, 0
	for at, tool := range jsonrpc.Elements(array) {
		if n == 0 {
			first = at
		}
		if f.isVisibleTool(tool) {
			pieces = append(pieces, piece{array[end:at], tool})
		}
		n++
		end = at + len(tool)
	}
	switch len(pieces) {
	case n:
		return array, false
	case 0:
		return []byte("[]"), true
	}
	pieces[0].gap = array[1:first] // no comma before the first one
	kept = append(make([]byte, 0, len(array)), '[')
	for _, p := range pieces {
		kept = append(append(kept, p.gap...), p.tool...)
	}
	return append(kept, array[end:]...), true
}

// isVisibleTool reports whether an element of a list is a tool that may be seen: it
// has a name, and whichever of its names counts, it is not hidden.
func (f *filter) isVisibleTool(tool []byte) bool {
	named := false
	for m := range jsonrpc.Members(tool) {
		if !strings.EqualFold(m.Key, "name") {
			continue
		}
		name, ok := unquote(m.Value)
		if !ok || !f.isVisibleName(name) {
			return false
		}
		named = named || m.Key == "name"
	}
	return named
}
