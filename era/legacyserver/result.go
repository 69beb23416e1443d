package legacyserver

import (
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// cacheHints are what results of cacheable methods say: a legacy server promises
// nothing, and may answer each client differently (MI16).
const cacheHints = `"ttlMs":0,"cacheScope":"private",`

// results makes the server's responses those of a modern server. Its zero value
// is that of a server that does not say who it is.
type results struct {
	meta              []byte           // the _meta of results: who the server is; nil: it does not say
	preamble          jsonrpc.Fragment // what every result says first
	cacheablePreamble jsonrpc.Fragment // what those of cacheable methods do
}

// setServer is called once, with the raw serverInfo of the answer to initialize.
func (s *results) setServer(info []byte) {
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

// message is the response with a result that a legacy server has given,
// as a modern client wants it (C.0).
func (s *results) message(id jsonrpc.ID, method string, result []byte) jsonrpc.Message {
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
		meta = s.metaOf(shape.Member(result, "_meta"))
	}
	return makeResult(id, `"resultType":"complete",`+hints, meta, rest)
}

// of is message for a call's response. Mostly there is nothing to take
// out of its result, which is copied once then, and not scanned again.
func (s *results) of(c *call, m jsonrpc.Message) jsonrpc.Message {
	result := m.Result()
	if !shape.IsObject(result) {
		return s.message(c.id, c.method, result)
	}
	preamble, cacheable := s.preamble, era.IsCacheable(c.method)
	if cacheable {
		preamble = s.cacheablePreamble
	}
	for member := range m.ResultObject().Members() {
		switch member.Key {
		case "resultType", "_meta":
			return s.message(c.id, c.method, result)
		case "ttlMs", "cacheScope":
			if cacheable {
				return s.message(c.id, c.method, result)
			}
		}
	}
	return m.Plain().WithID(c.id).WithFirst(preamble).WithRelated(c.id)
}

// metaOf adds to the _meta of a result who the server is, and takes away
// that it belongs to a task: the client has not asked for one.
func (s *results) metaOf(meta []byte) []byte {
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

// makeResult writes a response: members, which end with a comma, _meta, and what
// else the object rest has.
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

// notFound returns the data of an error that says that there is no such resource.
// They say so by the URI that was asked for (C.0), or else, where they name another,
// cannot name one, or have a code of their own, by the code (J10).
func (c *call) notFound(data []byte) []byte {
	uri := c.m.Lookup("params", "uri")
	if _, ok := jsonrpc.Text(uri); ok && c.method == "resources/read" && shape.Member(data, "originalCode") == nil {
		switch said := shape.Member(data, "uri"); {
		case said == nil && (data == nil || shape.IsObject(data)):
			return jsonrpc.With(data, "uri", uri)
		case shape.SameText(said, uri):
			return data
		}
	}
	return originalCode(era.CodeResourceNotFound, data)
}

// originalCode puts the code that an error had into its data: beside what they
// have, or around them if they have no room for it. Where the client is an older
// one, too, withOriginalCode undoes it.
func originalCode(code int, data []byte) []byte {
	number := strconv.AppendInt(nil, int64(code), 10)
	if data == nil || shape.IsObject(data) && !shape.IsEmpty(data) && shape.Member(data, "originalCode") == nil && shape.Member(data, "originalData") == nil {
		return jsonrpc.With(data, "originalCode", number)
	}
	out := shape.AppendMember([]byte{'{'}, "originalCode", number)
	return append(shape.AppendMember(out, "originalData", data), '}')
}
