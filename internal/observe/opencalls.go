package observe

import (
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// openCalls has the requests of one direction at one end of a session that wait for their answers, by id. A peer may spell an id
// otherwise than it was asked with; to find the request then must not cost a look at each one. The zero value is empty. The
// caller locks it.
type openCalls struct {
	byID         callTable          // the requests that wait, by their ids
	byNormalized map[string][]*Call // by normalizedID: those of byID whose id is spelled in an unusual way; see maxPerNormalizedID

	// cancelled are requests that are not in byID, and whose answers may come still, maxCancelled at most, the oldest first: those
	// that were cancelled, and those that came unwatched and have an answer at the other end of the bridge.
	cancelled []*Call
}

// maxCancelled is how many cancelled requests openCalls keep, so that a late answer is still known to be theirs.
const maxCancelled = 32

// maxPerNormalizedID is how many requests are found by one normalized form: only numbers that are the same
// as float64, and one number or text in several spellings, share one.
const maxPerNormalizedID = 8

// normalizedID returns the form of an id that equivalent ids share: most often the id itself. Some others may share it, too.
func normalizedID(id jsonrpc.ID) string {
	text := id.String()
	switch {
	case text == "" || text[0] == '"' && !strings.Contains(text, `\`):
		return text
	case text[0] == '"':
		decoded, _ := jsonrpc.Text([]byte(text))
		return `"` + decoded + `"`
	case isPlainNumber(text):
		return text
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return text
	case f == float64(int64(f)) && f > -1e15 && f < 1e15:
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// isPlainNumber reports whether a number is nothing but at most 15 digits, perhaps behind a minus, and not "-0".
func isPlainNumber(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	return text != "-0" && len(digits) <= 15
}

// add keeps a request, in the place of another one with exactly its id, which it returns; nil: there was none.
func (b *openCalls) add(call *Call) (old *Call) {
	if old = b.byID.add(call); old != nil {
		b.removeNormalized(old)
	}
	if key := normalizedID(call.ID); key != call.ID.String() && len(b.byNormalized[key]) < maxPerNormalizedID {
		if b.byNormalized == nil {
			b.byNormalized = make(map[string][]*Call)
		}
		b.byNormalized[key] = append(b.byNormalized[key], call)
	}
	return old
}

// findByID returns the request with an id, or else one with an equivalent id; nil: there is none.
func (b *openCalls) findByID(id jsonrpc.ID) *Call {
	if call := b.byID.get(id); call != nil {
		return call
	}
	key := normalizedID(id)
	if key != id.String() {
		// The key of "\\n" reads like the id "\n", which is another.
		if usual, ok := jsonrpc.ParseID([]byte(key)); ok && usual.Equivalent(id) {
			if call := b.byID.get(usual); call != nil {
				return call
			}
		}
	}
	if alike := b.byNormalized[key]; len(alike) > 0 {
		return alike[0]
	}
	return nil
}

// takeByID removes the request with an id, or else one with an equivalent id, and returns it; nil: there is none.
func (b *openCalls) takeByID(id jsonrpc.ID) *Call {
	call := b.findByID(id)
	if call != nil {
		b.remove(call)
	}
	return call
}

// remove forgets a request that waits for its answer. false: the request is not there.
func (b *openCalls) remove(call *Call) bool {
	if !b.byID.remove(call) {
		return false
	}
	b.removeNormalized(call)
	return true
}

// removeNormalized takes a request out of byNormalized, if it is there.
func (b *openCalls) removeNormalized(call *Call) {
	if len(b.byNormalized) == 0 {
		return
	}
	key := normalizedID(call.ID)
	if key == call.ID.String() {
		return
	}
	var rest []*Call
	for _, other := range b.byNormalized[key] {
		if other != call {
			rest = append(rest, other)
		}
	}
	if b.byNormalized[key] = rest; len(rest) == 0 {
		delete(b.byNormalized, key)
	}
}

// addCancelled keeps a cancelled request that was removed. It returns the oldest one if that has to make room; nil: none.
func (b *openCalls) addCancelled(call *Call) (gone *Call) {
	if len(b.cancelled) >= maxCancelled {
		gone = b.cancelled[0]
		b.cancelled = slices.Delete(b.cancelled, 0, 1)
	}
	b.cancelled = append(b.cancelled, call)
	return gone
}

// takeCancelled removes the cancelled request with an id, and returns it; nil: there is none.
func (b *openCalls) takeCancelled(id jsonrpc.ID) *Call {
	for i, call := range b.cancelled {
		if call.ID.Equivalent(id) {
			b.cancelled = slices.Delete(b.cancelled, i, i+1)
			return call
		}
	}
	return nil
}

// removeCancelled removes the cancelled requests that match, and returns them.
func (b *openCalls) removeCancelled(match func(*Call) bool) (all []*Call) {
	b.cancelled = slices.DeleteFunc(b.cancelled, func(call *Call) bool {
		if match(call) {
			all = append(all, call)
			return true
		}
		return false
	})
	return all
}
