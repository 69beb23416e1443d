package matrix

import (
	"slices"
	"testing"
)

// erasScript is for pairs of which one side at least is modern: the test says what a client wants
// and what a server answers, and checks what becomes of it in the words of the other era.
var erasScript = script{
	name:   "eras",
	steps:  erasSteps,
	pairs:  slices.Concat(floors(false), pairs(true, true), pairs(true, false), pairs(false, true)),
	legend: eraLegend,
	hosted: true,
}

// erasSteps are those of the other script, as the two eras say them.
var erasSteps = []step{
	{"hello", eraHello, nil},
	{"pages", inEra(eraPages), nil},
	{"calls", inEra(eraCalls), nil},
	{"progress", inEra(eraProgress), nil},
	{"log", inEra(eraLog), nil},
	{"elicit", inEra(eraElicit), nil},
	{"sample", inEra(eraSample), nil},
	{"roots", inEra(eraRoots), nil},
	{"all3", inEra(eraTogether), nil},
	{"decline", inEra(eraDecline), onlyLegacyClients},
	{"incapable", eraIncapable, nil},
	{"parked", inEra(eraParked), onlyParked},
	{"subscribe", inEra(eraSubscribe), nil},
	{"changed", inEra(eraChanged), nil},
	{"cancel", inEra(eraCancel), nil},
	{"ids", inEra(eraIDs), nil},
	{"errors", inEra(eraErrors), nil},
	{"unknown", inEra(eraUnknown), bridged},
	{"cannot", inEra(eraCannot), bridged},
	{"1MiB", inEra(eraBig), nil},
	{"50calls", inEra(eraConcurrent), nil},
	{"2clients", eraTwoClients, nil},
	{"headers", inEra(eraHeaders), onlyModernHTTP},
	{"params", inEra(eraParams), bridged},
	{"both eras", eraBoth, onlyModernBridged},
	{"hangup", eraHangUp, nil},
	{"deadline", eraDeadline, onlyParked},
	{"restart", inEra(eraRestart), bridged},
	{"sigterm", eraTerminate, bridged},
	{"leftovers", eraLeftovers, bridged},
}

func onlyLegacyClients(w *world) string {
	if w.modernClient {
		return notInEra
	}
	return ""
}

// onlyParked: calls are parked where a legacy server asks a modern client.
func onlyParked(w *world) string {
	if !w.modernClient || w.modernServer {
		return notInEra
	}
	return bridged(w)
}

func onlyModernHTTP(w *world) string {
	switch {
	case !w.modernClient:
		return notInEra
	case w.ingress != "http":
		return notByWires
	}
	return bridged(w)
}

func onlyModernBridged(w *world) string {
	if !w.modernClient {
		return notInEra
	}
	return bridged(w)
}

// inEra makes a step of what runs with the row's main client.
func inEra(run func(*testing.T, *eraClient)) func(*testing.T, *world) string {
	return inMain(run, func(w *world) **eraClient { return &w.main }, (*world).open)
}

const eraLegend = `Milliseconds; "-" is what needs a bridge, "n/a" what one of the eras does not have, "n/w" what the transport does not have.
What cannot cross, and what happens instead (the steps "cannot", "log", "decline", "unknown" and "elicit" hold it to that):
` + eraLimits

// eraLimits is what neither era can say in the words of the other.
const eraLimits = `  modern client, legacy server:
    log lines outside of any call, or with several calls in flight and no stream that says whose they are: dropped
    questions outside of any call: answered in the client's place (roots -32601, elicitation "cancel", sampling an error)
    questions in calls that may not ask (completion/complete): answered with an error
    progress and log lines of a call that waits for its client: dropped
    notifications/elicitation/complete: dropped, the client learns it by its retry
    error -32042: becomes a result that asks for input; -32002 becomes -32602; other reserved codes -32603
    refusal of a question as an error: 2026-07-28 has none; silence, until --park-timeout cancels the call
    notifications of the client: there are none but cancelled
  legacy client, modern server:
    an error or a refusal as the answer to sampling and roots: the call ends with isError, nothing is retried
    pings either way and notifications/roots/list_changed: answered or taken by the bridge
    batches, Last-Event-ID and sessions: the client's side alone has them
    log levels: go with each call, so a change does not reach calls in flight
`
