package legacyserver

import (
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// cacheHints are the members that results of cacheable methods must have. A legacy
// server promises nothing, and may answer each client differently: so results are
// not cached (MI16).
const cacheHints = `"ttlMs":0,"cacheScope":"private",`

// resultTranslator makes a legacy server's results modern.
type resultTranslator struct {
	meta              []byte           // the _meta of results, with serverInfo; nil: none
	preamble          jsonrpc.Fragment // the members that are put first in results of methods that are not cacheable
	cacheablePreamble jsonrpc.Fragment // the members that are put first in results of cacheable methods
}

// setServerInfo sets the raw serverInfo that all results get: info is that of the answer to
// initialize. It must be called once, before makeResponse and translate.
func (s *resultTranslator) setServerInfo(info []byte) {
	if shape.IsObject(info) {
		s.meta = append(shape.AppendMember([]byte{'{'}, era.KeyServerInfo, info), '}')
	}
	preamble := func(hints string) jsonrpc.Fragment {
		members := `{"resultType":"complete",` + hints
		if s.meta != nil {
			members += `"_meta":` + string(s.meta) + ","
		}
		return jsonrpc.NewFragment([]byte(members[:len(members)-1] + "}"))
	}
	s.preamble, s.cacheablePreamble = preamble(""), preamble(cacheHints)
}

// makeResponse returns the response to the client's request id of this method, with a legacy
// server's raw result in modern form (C.0).
func (s *resultTranslator) makeResponse(id jsonrpc.ID, method string, result []byte) jsonrpc.Message {
	if !shape.IsObject(result) {
		return jsonrpc.NewError(id, jsonrpc.CodeInternalError, "the server's result is no object", nil).WithRelated(id)
	}
	var hints string
	rest := result
	if era.IsCacheable(method) {
		hints = cacheHints
		rest = jsonrpc.Without(result, "resultType", "_meta", "ttlMs", "cacheScope")
	} else {
		rest = jsonrpc.Without(result, "resultType", "_meta")
	}
	meta := s.meta
	if len(rest) != len(result) {
		meta = s.withServerInfo(shape.Member(result, "_meta"))
	}
	return makeResult(id, `"resultType":"complete",`+hints, meta, rest)
}

// translate returns the client's response to c for m, the server's response with a result, which is made modern
// (C.0). If nothing has to be removed from the result, it is copied once and not scanned.
func (s *resultTranslator) translate(c *call, m jsonrpc.Message) jsonrpc.Message {
	result := m.Result()
	if !shape.IsObject(result) {
		return s.makeResponse(c.id, c.method, result)
	}
	preamble, cacheable := s.preamble, era.IsCacheable(c.method)
	if cacheable {
		preamble = s.cacheablePreamble
	}
	for member := range m.ResultObject().Members() {
		switch member.Key {
		case "resultType", "_meta":
			return s.makeResponse(c.id, c.method, result)
		case "ttlMs", "cacheScope":
			if cacheable {
				return s.makeResponse(c.id, c.method, result)
			}
		}
	}
	return m.Plain().WithID(c.id).WithFirst(preamble).WithRelated(c.id)
}

// withServerInfo returns meta, the raw _meta of a server's result, with the serverInfo of initialize, and
// without the related task, of which the client does not know. A meta that is no object, or nil, counts as
// empty. nil: nothing is left.
func (s *resultTranslator) withServerInfo(meta []byte) []byte {
	if !shape.IsObject(meta) {
		return s.meta
	}
	meta = jsonrpc.Without(meta, era.KeyRelatedTask)
	if info := shape.Member(s.meta, era.KeyServerInfo); info != nil {
		meta = jsonrpc.With(meta, era.KeyServerInfo, info)
	}
	if shape.IsEmpty(meta) {
		return nil
	}
	return meta
}

// makeResult returns the response to the client's request id. members are the first members of
// the result, each with a comma after it; then follow meta as _meta (nil: none), and the members of
// the object rest.
func makeResult(id jsonrpc.ID, members string, meta, rest []byte) jsonrpc.Message {
	result := append([]byte{'{'}, members...)
	if meta != nil {
		result = append(append(append(result, `"_meta":`...), meta...), ',')
	}
	if shape.IsEmpty(rest) {
		result[len(result)-1] = '}'
	} else {
		result = append(result, rest[1:]...)
	}
	return jsonrpc.NewResult(id, result).WithRelated(id)
}

// notFoundData returns the data for the error that a resource does not exist. In
// 2026-07-28 such an error has the URI of the request in its data (C.0). If the
// data cannot say that, it gets the original code instead (J10).
func (c *call) notFoundData(data []byte) []byte {
	uri := c.m.Lookup("params", "uri")
	if _, ok := jsonrpc.Text(uri); ok && c.method == "resources/read" && shape.Member(data, "originalCode") == nil {
		switch said := shape.Member(data, "uri"); {
		case said == nil && (data == nil || shape.IsObject(data)):
			return jsonrpc.With(data, "uri", uri)
		case shape.EqualStrings(said, uri):
			return data
		}
	}
	return withOriginalCode(era.CodeResourceNotFound, data)
}

// withOriginalCode adds the original code of an error to its data, or wraps data that
// cannot take it. Package legacyclient undoes this for a legacy client.
func withOriginalCode(code int, data []byte) []byte {
	number := strconv.AppendInt(nil, int64(code), 10)
	if data == nil || shape.IsObject(data) && !shape.IsEmpty(data) && shape.Member(data, "originalCode") == nil && shape.Member(data, "originalData") == nil {
		return jsonrpc.With(data, "originalCode", number)
	}
	out := shape.AppendMember([]byte{'{'}, "originalCode", number)
	return append(shape.AppendMember(out, "originalData", data), '}')
}
