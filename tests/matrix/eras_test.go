package matrix

import (
	"fmt"
	"testing"
	"time"
)

// A scenario is one column of the matrix of eras. It uses the main client,
// which it leaves as it was, or clients of its own. It may return a word for
// the table.
type scenario struct {
	name string
	run  func(t *testing.T, w *world) string
	// where says why a row does not have the step; nil: every row has it.
	where func(w *world) (not string)
}

// scenarios is the script: the one of the first matrix, as the two eras say it.
var scenarios = []scenario{
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

// Why a row does not have a step.
const (
	noBridge   = "-"   // it is about the bridge
	notInEra   = "n/a" // the era, or the pair of them, does not have it
	notByWires = "n/w" // the transport does not have it
)

func bridged(w *world) string {
	if w.floor {
		return noBridge
	}
	return ""
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

// inEra runs a step with the main client. After one that failed, the next has
// a new one, so that what it shows is its own.
func inEra(run func(t *testing.T, k *visitor)) func(*testing.T, *world) string {
	return func(t *testing.T, w *world) string {
		if w.main == nil {
			w.main = w.open(t)
		}
		k := w.main
		w.main = nil
		run(t, k)
		k.settle(t)
		w.main = k
		return ""
	}
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

// TestEras runs the script for the pairs of transports and eras in which one
// side at least is modern; before that for each transport without a bridge.
func TestEras(t *testing.T) {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	b := newTable(names, eraLegend)
	defer b.publish(t)
	t.Run("pair", func(t *testing.T) {
		for _, modern := range []bool{false, true} {
			for _, egress := range egresses {
				if modern && egress == "sse" {
					continue
				}
				runEras(t, b, modern, egress, modern, egress, true)
			}
		}
		for _, pair := range [][2]bool{{true, true}, {true, false}, {false, true}} {
			for _, ingress := range ingresses {
				for _, egress := range egresses {
					if pair[0] && ingress == "sse" || pair[1] && egress == "sse" {
						continue // HTTP+SSE is of the legacy era
					}
					runEras(t, b, pair[0], ingress, pair[1], egress, false)
				}
			}
		}
	})
}

var eraNames = map[bool]string{false: "legacy ", true: "modern "}

func runEras(t *testing.T, b *table, modernClient bool, ingress string, modernServer bool, egress string, floor bool) {
	row := eraNames[modernClient] + ingress + " > " + eraNames[modernServer] + egress
	if floor {
		row = "floor " + eraNames[modernServer] + egress
	}
	b.row(row)
	t.Run(row, func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, modernClient, ingress, modernServer, egress, floor)
		for _, s := range scenarios {
			if s.where != nil {
				if not := s.where(w); not != "" {
					b.set(row, s.name, not)
					continue
				}
			}
			b.set(row, s.name, failed)
			var word string
			began := time.Now()
			ok := t.Run(s.name, func(t *testing.T) { word = s.run(t, w) })
			if !ok && s.name == "hello" {
				return // nothing else can work
			}
			if !ok {
				w.abandon()
				continue
			}
			cell := fmt.Sprint(time.Since(began).Milliseconds())
			if word != "" {
				cell += " " + word
			}
			b.set(row, s.name, cell)
		}
	})
}
