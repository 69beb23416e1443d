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

	params []byte // as a legacy server wants them; nil: none
}

// readRequest reads a request, and takes out of its params what no legacy
// server knows (C.0). Every other byte stays, but for the commas between.
func readRequest(m jsonrpc.Message) request {
	r := request{m: m, id: m.ID(), method: m.Method()}
	var version []byte
	params := m.Params()
	kept := newKept(params)
	for member := range jsonrpc.Members(params) {
		switch member.Key {
		case "_meta":
			version = r.readMeta(member.Value)
			if meta := legacyMeta(member.Value); meta != nil {
				kept.keep(member, meta)
				continue
			}
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
			kept.keep(member, member.Value)
			continue
		default:
			kept.keep(member, member.Value)
			continue
		}
		kept.skip(member)
	}
	r.params = kept.object()
	r.check(version)
	return r
}

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

// legacyMeta returns the _meta of a request as a legacy server wants it; nil: none.
func legacyMeta(meta []byte) []byte {
	meta = jsonrpc.Without(meta, KeyVersion, KeyClientInfo, KeyCapabilities, KeyLogLevel)
	if !isObject(meta) || isEmpty(meta) {
		return nil
	}
	return meta
}

// kept writes an object with some of the members of another.
type kept struct {
	from []byte
	end  int // behind the last member that was looked at
	out  []byte
}

func newKept(from []byte) kept {
	return kept{from: from, end: 1, out: append(make([]byte, 0, len(from)), '{')}
}

// keep writes a member with value, its key as it is spelled.
func (k *kept) keep(m jsonrpc.Member, value []byte) {
	if len(k.out) > 1 {
		k.out = append(k.out, ',')
	}
	at := k.end
	for k.from[at] != '"' { // the white space and the comma ahead of the key
		at++
	}
	k.out = append(k.out, k.from[at:m.At]...)
	k.out = append(k.out, value...)
	k.skip(m)
}

func (k *kept) skip(m jsonrpc.Member) { k.end = m.At + len(m.Value) }

// object returns what was written; nil if nothing was.
func (k *kept) object() []byte {
	if len(k.out) == 1 {
		return nil
	}
	return append(k.out, '}')
}
