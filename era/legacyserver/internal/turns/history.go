package turns

import "hash/maphash"

const (
	// forgetAfterCalls is how many calls of a tool in a row must cause fewer input requests than
	// expected before fewer are expected.
	forgetAfterCalls = 20

	// forgetSuspectAfterCalls is how many calls in a row must cause fewer input requests than expected, before fewer are
	// expected, of a tool whose calls are only suspected to cause so many.
	forgetSuspectAfterCalls = 3

	// sureAfterCalls is how many calls of a tool that causes input requests must have ended, none with
	// more than expected, before it counts as known how many a call causes at most.
	sureAfterCalls = 10

	// maxTools is of how many tools and prompts the history is kept.
	maxTools = 1000
)

// askHistory knows how often calls of each tool ask: how many input requests they cause. Calls of a
// tool without a history take turns, until the first of them has ended. The zero value is ready.
//
// BenchmarkTurns of package legacyserver shows what the history is worth. 16 clients that accept input
// requests call a tool that takes 20 ms and never asks: 761 calls a second, and 50
// if all calls take turns. If the tool works for 500 ms after it has asked: 20
// calls a second, and 2.
type askHistory struct {
	tools map[toolKey]toolHistory // the history of each tool; absent: there is none
	seed  maphash.Seed            // the seed of the hashes in the keys
}

// toolKey names a tool or a prompt. All resources have the same key.
type toolKey struct {
	method string // tools/call or prompts/get, or resources/read for all resources
	name   uint64 // a hash of the raw name, which clients choose; 0 for resources
}

// toolHistory is how many input requests calls of one tool cause.
type toolHistory struct {
	expectedRequests int  // how many input requests a call is expected to cause at most
	hasEndedCall     bool // a call has ended; before, any number of input requests is possible (MightAsk)
	endedCalls       int  // how many calls have ended since expectedRequests was raised last, up to sureAfterCalls
	callsWithFewer   int  // how many calls in a row, the last ones, have caused less than expectedRequests; after suspect it counts from forgetAfterCalls-forgetSuspectAfterCalls
	mostAsked        int  // the most input requests that one of the calls in callsWithFewer has caused
}

// toolKeyOf returns the toolKey of a request. name is raw JSON.
func (h *askHistory) toolKeyOf(method string, name []byte) toolKey {
	if method == "resources/read" { // the number of URIs has no bound
		return toolKey{method: method}
	}
	if h.tools == nil {
		h.tools, h.seed = make(map[toolKey]toolHistory), maphash.MakeSeed()
	}
	return toolKey{method, maphash.Bytes(h.seed, name)}
}

// historyOf returns the history of a tool; the zero toolHistory: there is none.
func (h *askHistory) historyOf(tool toolKey) toolHistory { return h.tools[tool] }

// set replaces the history of a tool. If there are too many tools it removes
// another one, if possible one whose calls cause no input requests.
func (h *askHistory) set(tool toolKey, to toolHistory) {
	if h.tools == nil {
		h.tools, h.seed = make(map[toolKey]toolHistory), maphash.MakeSeed()
	}
	if _, known := h.tools[tool]; !known && len(h.tools) >= maxTools {
		victim := tool
		for other, its := range h.tools {
			if victim = other; its.expectedRequests == 0 {
				break
			}
		}
		delete(h.tools, victim)
	}
	h.tools[tool] = to
}

// raiseExpected notes that calls of a tool may cause n input requests each, if fewer were expected.
func (h *askHistory) raiseExpected(tool toolKey, n int) {
	if its := h.historyOf(tool); n > its.expectedRequests {
		h.set(tool, toolHistory{expectedRequests: n, hasEndedCall: its.hasEndedCall})
	}
}

// suspect notes that calls of a tool may cause n input requests each, if fewer were expected, where it is not certain
// that the tool has caused so many: if the next forgetSuspectAfterCalls calls cause fewer, fewer are expected again. It
// does nothing before a call of the tool has ended.
func (h *askHistory) suspect(tool toolKey, n int) {
	if its := h.historyOf(tool); n > its.expectedRequests && its.hasEndedCall {
		h.set(tool, toolHistory{expectedRequests: n, hasEndedCall: true, callsWithFewer: forgetAfterCalls - forgetSuspectAfterCalls})
	}
}

// isSure reports whether enough calls have ended to know how many input requests a call of the tool
// causes at most. Until then a call takes turns even after as many as expected: one more input request
// would be taken for another call's.
func (its toolHistory) isSure() bool {
	return its.hasEndedCall && (its.expectedRequests == 0 || its.endedCalls >= sureAfterCalls)
}

// record notes that a call of a tool has ended, and how many input requests it has caused (asked). It
// reports whether fewer may be expected of the tool's calls now than before, so that some need no turn
// any more.
func (h *askHistory) record(tool toolKey, asked int) (less bool) {
	its := h.historyOf(tool)
	was := its
	its.endedCalls = min(its.endedCalls+1, sureAfterCalls)
	switch {
	case !its.hasEndedCall:
		its.hasEndedCall, its.expectedRequests, less = true, max(its.expectedRequests, asked), true
	case asked >= its.expectedRequests:
		its.callsWithFewer, its.mostAsked = 0, 0
	case its.callsWithFewer+1 < forgetAfterCalls:
		its.callsWithFewer, its.mostAsked = its.callsWithFewer+1, max(its.mostAsked, asked)
	default:
		its = toolHistory{expectedRequests: max(its.mostAsked, asked), hasEndedCall: true, endedCalls: sureAfterCalls}
		less = true
	}
	less = less || its.isSure() && !was.isSure()
	if its != was {
		h.set(tool, its)
	}
	return less
}
