package streamclient

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/toolheader"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// modernAttempt is how a request is put to the server, and what has been tried.
type modernAttempt struct {
	msg           jsonrpc.Message // the message of the call, or the same with another id
	version       string          // what the header Mcp-Protocol-Version says
	hasName       bool            // there is a header Mcp-Name
	name          string          // what Mcp-Name says, not encoded
	rawName       bool            // Mcp-Name has name as it is, never in base64: some servers want it so (ME2)
	tool          modernTool      // of a tools/call: which arguments go as headers too, and whether the tool can be called; zero: nothing is known
	hasEmptyParam bool            // one of the Mcp-Param headers has an empty value
	emptyAsBase64 bool            // an empty value in an Mcp-Param header goes as the base64 of nothing
	header        http.Header     // the headers of the POST, as headerOf has made them

	resent        bool // the request was sent again because its reply was lost
	busyRetries   int  // how often the request was sent again because the server was busy
	nameRetried   bool // the server has refused the Mcp-Name, and rawName was changed
	paramsRetried bool // the server has refused the headers of a tools/call, maybe the Mcp-Param ones, and was asked for its tools again
}

// prepareHeaders makes attempt.header for a call; it may have to ask the server for its tools. A call
// that cannot go out gets its answer, an error, or the fault; both are zero if it can go out.
func (c *modernConn) prepareHeaders(call *modernCall, attempt *modernAttempt) (answer jsonrpc.Message, fault *httpdial.Fault) {
	if no := attempt.readRequest(call); no != nil {
		return no.Response(call.id), nil
	}
	attempt.rawName = c.client.sendRawNames.Load() && maySendRaw(attempt.name)
	attempt.emptyAsBase64 = c.client.emptyAsBase64.Load()
	if call.method == "tools/call" && attempt.hasName {
		attempt.tool = c.toolOf(call, attempt.name, 0, false)
		if call.ctx.Err() != nil {
			return answer, c.target.Peer.NetFault(call.ctx.Err())
		}
		if attempt.tool.err != nil {
			return jsonrpc.NewError(call.id, jsonrpc.CodeInvalidParams,
				"this tool cannot be called over HTTP: its definition has invalid x-mcp-header annotations", nil), nil
		}
	}
	attempt.header = c.headerOf(call, attempt)
	return answer, nil
}

// readRequest reads what the headers have to say out of the message of call (ME1). It returns a
// Refusal for a method or version that no header can have, and so no server can know; nil: none.
func (at *modernAttempt) readRequest(call *modernCall) *era.Refusal {
	if !isHeaderText(call.method) {
		return era.MethodNotFound(call.method)
	}
	at.version = era.NewestModern
	if raw := call.msg.Lookup("params", "_meta", era.KeyVersion); raw != nil {
		at.version, _ = jsonrpc.Text(raw)
		if !isHeaderText(at.version) {
			return era.UnsupportedVersion(era.OnlyModern, at.version)
		}
	}
	if key := wire.NameParamKey(call.method); key != "" && call.msg.Kind() == jsonrpc.Request {
		at.name, at.hasName = jsonrpc.Text(call.msg.Lookup("params", key))
	}
	return nil
}

// baseHeader returns the headers that every POST has, with space for so many more.
func (c *modernConn) baseHeader(more int) http.Header {
	header := make(http.Header, len(c.target.Header)+2+more)
	maps.Copy(header, c.target.Header)
	header["Accept"] = valueAcceptBoth
	header["Content-Type"] = valueJSON
	return header
}

// headerOf makes the headers of a message: those that all have, and what the
// message says (ME1, ME2, ME3).
func (c *modernConn) headerOf(call *modernCall, attempt *modernAttempt) http.Header {
	header := c.baseHeader(3 + len(attempt.tool.params))
	values := []string{attempt.version, call.method, attempt.name}
	header[wire.HeaderVersion] = values[0:1:1]
	header[wire.HeaderMCPMethod] = values[1:2:2]
	if attempt.hasName {
		if !attempt.rawName {
			values[2] = toolheader.EncodeValue(attempt.name)
		}
		header[wire.HeaderMCPName] = values[2:3:3]
	}
	if len(attempt.tool.params) > 0 {
		params := toolheader.Headers(attempt.tool.params, call.msg.Lookup("params", "arguments"))
		attempt.encodeEmpty(params)
		maps.Copy(header, params)
	}
	return header
}

// encodeEmpty sets hasEmptyParam, and writes the empty values in params, which are Mcp-Param headers,
// in base64 if emptyAsBase64 says so.
func (at *modernAttempt) encodeEmpty(params http.Header) {
	at.hasEmptyParam = false
	for _, values := range params {
		if values[0] != "" {
			continue
		}
		at.hasEmptyParam = true
		if at.emptyAsBase64 {
			values[0] = toolheader.EncodedEmpty
		}
	}
}

// isHeaderText reports whether s can be the value of a header as it is, without base64; false for "".
func isHeaderText(s string) bool { return s != "" && toolheader.EncodeValue(s) == s }

// maySendRaw reports whether a name can be the value of a header without base64, also if it is not
// ASCII: it has no control characters, which HTTP forbids, and no spaces around it, which HTTP removes.
func maySendRaw(name string) bool {
	control := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	return name == strings.Trim(name, " \t") && !strings.ContainsFunc(name, control)
}

// isHeaderMismatch reports whether a response is the error that the headers were wrong (-32020).
func isHeaderMismatch(m jsonrpc.Message) bool {
	return m.IsError() && string(m.Lookup("error", "code")) == "-32020"
}

// wantsOtherHeaders reports whether a response says that the headers were wrong, and others may be left
// to be tried (correctHeaders): not if both the name and the params were corrected before.
func (at *modernAttempt) wantsOtherHeaders(answer jsonrpc.Message) bool {
	return isHeaderMismatch(answer) && !(at.nameRetried && at.paramsRetried)
}

// correctHeaders makes other headers in attempt after the server has refused, with answer, those that
// were sent: once for Mcp-Name, once for the Mcp-Param headers. False: there are no others to try.
func (c *modernConn) correctHeaders(call *modernCall, attempt *modernAttempt, answer jsonrpc.Message) bool {
	text, _ := jsonrpc.Text(answer.Lookup("error", "message"))
	text = strings.ToLower(text)
	switch {
	case strings.Contains(text, "mcp-name") && !strings.Contains(text, "mcp-param-"): // ME2
		if attempt.nameRetried || toolheader.EncodeValue(attempt.name) == attempt.name || !attempt.rawName && !maySendRaw(attempt.name) {
			return false
		}
		attempt.nameRetried = true
		attempt.rawName = !attempt.rawName
		attempt.header = c.headerOf(call, attempt)
		return true
	case call.method != "tools/call", attempt.paramsRetried,
		strings.Contains(text, "mcp-method"), strings.Contains(text, "mcp-protocol-version"):
		return false
	}
	attempt.paramsRetried = true // ME4
	c.log.Debug("the server wants other headers for a tool: asking for its tools")
	tool := c.toolOf(call, attempt.name, attempt.tool.learnedSeq, true)
	if tool.err != nil || call.ctx.Err() != nil {
		return false
	}
	attempt.tool = tool
	attempt.emptyAsBase64 = true // it may have missed an empty one; all servers must understand this
	before := attempt.header
	attempt.header = c.headerOf(call, attempt)
	if maps.EqualFunc(before, attempt.header, slices.Equal) {
		return false
	}
	if c.opts.OnToolsChanged != nil {
		c.opts.OnToolsChanged()
	}
	return true
}

// learnHeaderForms remembers how the server wants its Mcp-Name and empty Mcp-Params, if
// that was found out.
func (c *modernConn) learnHeaderForms(attempt *modernAttempt, answer jsonrpc.Message) {
	if attempt.nameRetried && !isHeaderMismatch(answer) && c.client.sendRawNames.Swap(attempt.rawName) != attempt.rawName {
		c.log.Debug("learned how the server reads the Mcp-Name header", "base64", !attempt.rawName)
	}
	if attempt.paramsRetried && attempt.hasEmptyParam && !isHeaderMismatch(answer) {
		c.client.emptyAsBase64.Store(true)
	}
}
