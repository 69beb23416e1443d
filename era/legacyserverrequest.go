package era

import (
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// request is a modern client's request, read in one go.
type request struct {
	m       jsonrpc.Message
	id      jsonrpc.ID
	method  string
	refusal *Refusal // what is wrong with it; nil: nothing

	capabilities []byte // of the client; raw, not to be changed, as what follows
	logLevel     []byte // nil: no log messages are wanted
	state        []byte // requestState; nil: no retry
	answers      []byte // inputResponses
	name         []byte // of the tool or prompt, or the resource's URI
	replays      int    // how often it was refused until the user had been at a URL
}

// readRequest reads a request.
func readRequest(m jsonrpc.Message) request {
	r := request{m: m, id: m.ID(), method: m.Method()}
	var version []byte
	for member := range m.ParamsObject().Members() {
		switch member.Key {
		case "_meta":
			version = r.readMeta(member.Value)
		case "requestState":
			r.state = member.Value
			if string(r.state) == "null" {
				r.state = nil
			}
		case "inputResponses":
			r.answers = member.Value
		case "name", "uri":
			if (member.Key == "uri") == (r.method == "resources/read") {
				r.name = member.Value
			}
		}
	}
	r.check(version)
	return r
}

// forServer returns the request with another id and without what no legacy
// server knows (C.0). Every other byte of the params stays, but for the commas
// between.
func (r *request) forServer(id jsonrpc.ID) jsonrpc.Message {
	m := r.m.Plain().WithID(id).WithoutInParams(modernMeta[:], "requestState", "inputResponses")
	if params := m.Params(); params == nil || isObject(params) && isEmpty(params) { // "params":null, too
		m = m.WithParams(nil)
	}
	return m
}

// modernMeta is what no legacy server knows in a request's _meta.
var modernMeta = [...]string{KeyVersion, KeyClientInfo, KeyCapabilities, KeyLogLevel}

// readMeta reads what the request says about itself, but for the version, which it returns.
func (r *request) readMeta(meta []byte) (version []byte) {
	r.capabilities, r.logLevel = nil, nil
	for member := range jsonrpc.Members(meta) {
		switch member.Key {
		case KeyVersion:
			version = member.Value
		case KeyCapabilities:
			r.capabilities = member.Value
		case KeyLogLevel:
			r.logLevel = member.Value
		}
	}
	return version
}

// check finds what is wrong with the request. Mostly nothing is, and that is seen at once.
func (r *request) check(version []byte) {
	plain := string(version) == `"`+NewestModern+`"` && isObject(r.capabilities)
	if !plain || r.logLevel != nil && LogRank(r.logLevel) < 0 {
		r.refusal = MetaOf(r.m).Check(Auto)
	}
}
