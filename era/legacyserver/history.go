package legacyserver

import "hash/maphash"

const (
	// forgetAfter is how many calls in a row have to ask less than expected before
	// that is believed; suspectFor is the same for a tool that is only suspected.
	forgetAfter = 20
	suspectFor  = 3

	// maxTools is how many tools are remembered.
	maxTools = 1000
)

// askHistory is how often calls of each tool ask. Of a tool without a history
// nothing is known, and its calls take turns until one of them has ended. The
// zero value is ready.
//
// BenchmarkTurns shows what it is for: with 16 clients that can be asked, and a
// tool that takes 20 ms and never asks, 761 calls a second instead of 50, and 22
// instead of 2 if the tool works for half a second after it has asked.
type askHistory struct {
	tools map[toolKey]toolHistory
	seed  maphash.Seed
}

// toolKey names a tool or a prompt, or all resources.
type toolKey struct {
	method string
	name   uint64 // its hash: clients choose names
}

// toolHistory is how often calls of one tool ask.
type toolHistory struct {
	questions int  // that a call is expected to ask at most
	complete  bool // a call has ended: more than that are not expected
	fewer     int  // so many calls in a row have asked less
	most      int  // none of these has asked more
}

// key returns the toolKey of a request; name is raw JSON.
func (h *askHistory) key(method string, name []byte) toolKey {
	if method == "resources/read" { // there is no end of URIs
		return toolKey{method: method}
	}
	if h.tools == nil {
		h.tools, h.seed = make(map[toolKey]toolHistory), maphash.MakeSeed()
	}
	return toolKey{method, maphash.Bytes(h.seed, name)}
}

func (h *askHistory) of(tool toolKey) toolHistory { return h.tools[tool] }

// set replaces the history of a tool. If there are too many, another is forgotten:
// one that does not ask, if there is any.
func (h *askHistory) set(tool toolKey, to toolHistory) {
	if h.tools == nil {
		h.tools, h.seed = make(map[toolKey]toolHistory), maphash.MakeSeed()
	}
	if _, known := h.tools[tool]; !known && len(h.tools) >= maxTools {
		victim := tool
		for other, its := range h.tools {
			if victim = other; its.questions == 0 {
				break
			}
		}
		delete(h.tools, victim)
	}
	h.tools[tool] = to
}

// expect raises what is expected of a tool to n questions.
func (h *askHistory) expect(tool toolKey, n int) {
	if its := h.of(tool); n > its.questions {
		h.set(tool, toolHistory{questions: n, complete: its.complete})
	}
}

// suspect is expect for a tool that may have asked, or another one has: the next
// calls will show.
func (h *askHistory) suspect(tool toolKey, n int) {
	if its := h.of(tool); n > its.questions && its.complete {
		h.set(tool, toolHistory{questions: n, complete: true, fewer: forgetAfter - suspectFor})
	}
}

// record takes note of a call that has ended after so many questions. It reports
// whether less is expected now.
func (h *askHistory) record(tool toolKey, asked int) (less bool) {
	its := h.of(tool)
	was := its
	switch {
	case !its.complete:
		its.complete, its.questions, less = true, max(its.questions, asked), true
	case asked >= its.questions:
		its.fewer, its.most = 0, 0
	case its.fewer+1 < forgetAfter:
		its.fewer, its.most = its.fewer+1, max(its.most, asked)
	default:
		its = toolHistory{questions: max(its.most, asked), complete: true}
		less = true
	}
	if its != was {
		h.set(tool, its)
	}
	return less
}
