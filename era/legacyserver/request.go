package legacyserver

import (
	"bytes"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// request is a modern client's request, read once.
type request struct {
	m       jsonrpc.Message // the message as the client has sent it
	id      jsonrpc.ID      // the id of m
	method  string          // the method of m
	refusal *era.Refusal    // why the request is not valid; nil: it is

	capabilities      []byte // what the client can do; raw
	logLevel          []byte // the level of the log messages that the client wants, raw; nil: it wants none
	requestState      []byte // params.requestState, raw; nil: the request is no retry of a call that is parked or has got URLs
	inputResponses    []byte // params.inputResponses, raw; nil: absent
	isRetry           bool   // params has requestState or inputResponses, with any value
	hasOnlyModernMeta bool   // its _meta is valid and has modernMetaKeys only, so that a legacy server gets no _meta at all; otherwise the server gets what else is in it
	targetName        []byte // the name of the tool or the prompt, or the URI of the resource; raw
	urlRounds         int    // how often the call was answered with URLs to visit
}

// readRequest reads a request. last is the _meta of an earlier request, which is not read again if
// this one is the same; otherwise last may become the _meta of this request.
func readRequest(m jsonrpc.Message, last *lastMeta) request {
	r := request{m: m, id: m.ID(), method: m.Method()}
	for member := range m.ParamsObject().Members() {
		switch member.Key {
		case "requestState":
			r.isRetry, r.requestState = true, member.Value
			if string(r.requestState) == "null" {
				r.requestState = nil
			}
		case "inputResponses":
			r.isRetry, r.inputResponses = true, member.Value
		case "name", "uri":
			if (member.Key == "uri") == (r.method == "resources/read") {
				r.targetName = member.Value
			}
		}
	}
	if meta := m.Meta(); last.raw == nil || !bytes.Equal(meta, last.raw) {
		at := r.readMeta(meta)
		if !r.hasOnlyModernMeta || len(meta) > maxLastMetaSize {
			return r
		}
		at.raw = append(last.raw[:0], meta...)
		*last = at
	} else {
		r.hasOnlyModernMeta, r.capabilities, r.logLevel = true, last.capabilities.bytesIn(meta), last.logLevel.bytesIn(meta)
	}
	return r
}

// forServer returns the request for the server: with another id, and without the
// members that legacy revisions do not have (C.0). All other bytes of params stay,
// except for commas between members.
func (r *request) forServer(id jsonrpc.ID) jsonrpc.Message {
	m := r.m.Plain().WithID(id)
	if r.hasOnlyModernMeta && !r.isRetry {
		m = m.WithoutMeta()
	} else {
		m = m.WithoutInParams(modernMetaKeys[:], "requestState", "inputResponses")
	}
	if params := m.Params(); params == nil || shape.IsObject(params) && shape.IsEmpty(params) { // "params":null, too
		m = m.WithParams(nil)
	}
	return m
}

// modernMetaKeys are the keys of _meta that legacy revisions do not have: forServer takes them out of a request.
var modernMetaKeys = [...]string{era.KeyVersion, era.KeyClientInfo, era.KeyCapabilities, era.KeyLogLevel}

// readMeta reads meta, the _meta of the request, into its fields, and sets refusal if meta is not
// valid. at has the places of the values in meta.
func (r *request) readMeta(meta []byte) (at lastMeta) {
	var version []byte
	r.hasOnlyModernMeta = true
	for member := range jsonrpc.Members(meta) {
		switch member.Key {
		case era.KeyVersion:
			version = member.Value
		case era.KeyCapabilities:
			r.capabilities, at.capabilities = member.Value, spanOf(member)
		case era.KeyLogLevel:
			r.logLevel, at.logLevel = member.Value, spanOf(member)
		case era.KeyClientInfo:
		default:
			r.hasOnlyModernMeta = false
		}
	}
	sound := string(version) == `"`+era.NewestModern+`"` && shape.IsObject(r.capabilities)
	if !sound || r.logLevel != nil && era.LogRank(r.logLevel) < 0 {
		r.refusal = era.MetaOf(r.m).Check(era.Auto)
	}
	r.hasOnlyModernMeta = r.hasOnlyModernMeta && r.refusal == nil
	return at
}

// lastMeta is the _meta of an earlier request that had modernMetaKeys only. Most clients send
// the same _meta with each request; it is not read again.
type lastMeta struct {
	raw                    []byte // the _meta; nil: there was none yet
	capabilities, logLevel span   // where the client's capabilities and its log level stand in raw
}

// maxLastMetaSize is the longest _meta, in bytes, that is remembered in lastMeta.
const maxLastMetaSize = 4 << 10

// span is from where to where a value stands in an object; zero: it is absent.
type span struct {
	from, to int // the index of the first byte, and that behind the last; to is 0 if the value is absent
}

// spanOf returns where the value of m stands in its object.
func spanOf(m jsonrpc.Member) span { return span{m.At, m.At + len(m.Value)} }

// bytesIn returns the value that stands at the span in object; nil: it is absent.
func (p span) bytesIn(object []byte) []byte {
	if p.to == 0 {
		return nil
	}
	return object[p.from:p.to:p.to]
}
