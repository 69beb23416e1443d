package legacyserver

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// stateIssuer makes and reads the requestState of results that ask for input.
type stateIssuer struct {
	resultTranslator *resultTranslator // has the _meta of results
	sealer           *era.Sealer       // seals the States; nil: no client is asked for input
	timeout          time.Duration     // how long a State is valid

	unit      string // Options.Unit, which a State must have
	serverRun string // Options.ServerRun, which the State of a parked call must have
	principal string // Options.Principal, which a State must have
}

// newState returns a new State for the call whose request is r. It is valid from now on for timeout. The caller sets CallID and
// Round.
func (s *stateIssuer) newState(now time.Time, r *request) era.State {
	return era.State{
		Unit:      s.unit,
		ServerRun: s.serverRun,
		Principal: s.principal,
		Method:    r.method,
		Digest:    digestOf(r.m),
		Expires:   now.Add(s.timeout),
	}
}

// digestOf returns a digest of a call's params, which must be the same in its
// retry. _meta may differ, and so may the spelling.
func digestOf(m jsonrpc.Message) string {
	params := jsonrpc.Without(m.Params(), "_meta", "inputResponses", "requestState")
	sum := sha256.Sum256(shape.AppendCanonical(nil, params, shape.MaxCanonicalDepth))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// inputRequiredResponse returns the response to the client's request id that asks for input.
// requests are raw inputRequests; state becomes the requestState.
func (s *stateIssuer) inputRequiredResponse(id jsonrpc.ID, requests []byte, state era.State) jsonrpc.Message {
	rest := shape.AppendMember([]byte{'{'}, "inputRequests", requests)
	rest = shape.AppendMember(rest, "requestState", jsonrpc.Quote(s.sealer.Seal(state)))
	return makeResult(id, `"resultType":"input_required",`, s.resultTranslator.meta, append(rest, '}'))
}

// openState returns the State of r, a retry, and whether it is valid for r: one that has expired by now is not.
func (s *stateIssuer) openState(now time.Time, r *request) (era.State, bool) {
	text, ok := jsonrpc.Text(r.requestState)
	if !ok || s.sealer == nil {
		return era.State{}, false
	}
	state, err := s.sealer.Open(text)
	ok = err == nil && state.Unit == s.unit && state.Principal == s.principal &&
		state.Method == r.method && now.Before(state.Expires) && state.Digest == digestOf(r.m)
	return state, ok
}

// sendToURL answers a call that the server has refused until the user has visited some URLs
// (-32042): the client gets them as input requests, and its retry starts the call again. No call
// is parked. A client that cannot visit URLs, or was sent to some too often, gets an error. data is
// that of the server's error. ok is false if it names no URLs, or nobody is asked.
func (s *stateIssuer) sendToURL(now time.Time, c *call, data []byte) (m jsonrpc.Message, ok bool) {
	requests, n := []byte{'{'}, 0
	for _, e := range jsonrpc.Elements(shape.Member(data, "elicitations")) {
		if !shape.IsObject(e) || !isURLMode(e) {
			continue
		}
		n++
		requests = appendInput(requests, "m"+strconv.Itoa(n), "elicitation/create", jsonrpc.Without(e, "elicitationId"))
	}
	if n == 0 || s.sealer == nil {
		return m, false
	}
	if lacking := missingMode(shape.Member(c.capabilities, "elicitation"), true); lacking != nil {
		data := append(shape.AppendMember([]byte{'{'}, "requiredCapabilities", lacking), '}')
		return jsonrpc.NewError(c.id, era.CodeMissingCapability, "the call needs a capability that the client does not have", data).WithRelated(c.id), true
	}
	if c.urlRounds == maxInputRounds {
		return jsonrpc.NewError(c.id, jsonrpc.CodeInternalError, "the call has asked too often", shape.ReasonData("rounds")).WithRelated(c.id), true
	}
	state := s.newState(now, &c.request)
	state.Replay, state.Round, state.CallID = true, c.urlRounds+1, strconv.Itoa(n)
	return s.inputRequiredResponse(c.id, append(requests, '}'), state), true
}

// appendInput appends an entry to requests, the raw inputRequests in the making. An entry gets
// empty params if it has none, because some clients cannot read it otherwise.
func appendInput(requests []byte, key, method string, params []byte) []byte {
	if params == nil {
		params = []byte("{}")
	}
	entry := shape.AppendMember([]byte{'{'}, "method", jsonrpc.Quote(method))
	entry = shape.AppendMember(entry, "params", params)
	return shape.AppendMember(requests, key, append(entry, '}'))
}

// missingCapabilityRefusal returns the Refusal of a call whose client lacks the capability lacking,
// as missingCapability returns it (C.4.3).
func missingCapabilityRefusal(lacking []byte) *era.Refusal {
	data := append(shape.AppendMember([]byte{'{'}, "requiredCapabilities", lacking), '}')
	return &era.Refusal{Code: era.CodeMissingCapability, Text: "the call needs a capability that the client does not have", Data: data}
}
