package legacyclient

import (
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// declared is what the client can do, as it said in initialize.
type declared struct {
	raw           []byte // as a modern clientCapabilities
	roots         bool
	sampling      bool
	samplingTools bool
	form, url     bool // modes of elicitation
}

// advertised is what the server can do, as far as the Filter must know.
type advertised struct {
	logging   bool
	subscribe bool
	changes   changes
}

// begin takes initialize: it becomes server/discover (C.2).
func (f *filter) begin(m jsonrpc.Message, out *era.Out) {
	if f.phase != fresh {
		f.refuse(m.ID(), jsonrpc.CodeInvalidRequest, "the session has begun already: initialize is sent once", nil, out)
		return
	}
	version, ok := jsonrpc.Text(m.Lookup("params", "protocolVersion"))
	if !ok {
		f.refuse(m.ID(), jsonrpc.CodeInvalidParams, "params.protocolVersion must be a string", nil, out)
		return
	}
	if !era.IsLegacy(version) {
		version = era.NewestLegacy // ED6: never a modern one
	}
	f.phase = discovering
	f.initialize = m
	f.version = version
	f.declared = projectDeclared(m.Lookup("params", "capabilities"), version)
	f.bareMeta = f.everyMeta(m.Lookup("params", "clientInfo"))
	f.lastID++
	f.discover = jsonrpc.IntID(f.lastID)
	out.Server(jsonrpc.NewRequest(f.discover, "server/discover", f.bareParams("")))
}

// everyMeta returns the _meta that every request has.
func (f *filter) everyMeta(clientInfo []byte) []byte {
	meta := []byte(`{"` + era.KeyVersion + `":"` + era.NewestModern + `",`)
	if shape.IsObject(clientInfo) {
		meta = append(append(append(meta, `"`+era.KeyClientInfo+`":`...), clientInfo...), ',')
	}
	return append(append(append(meta, `"`+era.KeyCapabilities+`":`...), f.declared.raw...), '}')
}

// bareParams returns the params of a request of the Filter's own; members are
// those after _meta, with their comma.
func (f *filter) bareParams(members string) []byte {
	return []byte(`{"_meta":` + string(f.bareMeta) + members + `}`)
}

// projectDeclared makes the capabilities of a client of a legacy version modern
// (C.2): roots without listChanged, no tasks, and elicitation as far as the
// version has it: nothing before 2025-06-18, then forms only, from 2025-11-25 as declared.
// Everything else stays.
func projectDeclared(raw []byte, version string) declared {
	if !shape.IsObject(raw) {
		return declared{raw: []byte("{}")}
	}
	var d declared
	d.raw = jsonrpc.Without(raw, "tasks")
	for m := range jsonrpc.Members(raw) {
		if m.Key == "extensions" {
			d.raw = replaceCapability(d.raw, m.Key, withoutTasks(m.Value))
			continue
		}
		if m.Key != "roots" && m.Key != "sampling" && m.Key != "elicitation" {
			continue
		}
		if !shape.IsObject(m.Value) {
			d.raw = jsonrpc.Without(d.raw, m.Key)
			continue
		}
		switch m.Key {
		case "roots":
			d.roots = true
			d.raw = replaceCapability(d.raw, m.Key, jsonrpc.Without(m.Value, "listChanged"))
		case "sampling":
			d.sampling = true
			d.samplingTools = shape.IsObject(shape.Member(m.Value, "tools"))
		case "elicitation":
			if version < era.Version2025_06_18 {
				d.raw = jsonrpc.Without(d.raw, m.Key)
				continue
			}
			if version < era.Version2025_11_25 {
				d.form = true
				d.raw = replaceCapability(d.raw, m.Key, onlyForms(m.Value))
				continue
			}
			d.url = shape.IsObject(shape.Member(m.Value, "url"))
			d.form = !d.url || shape.IsObject(shape.Member(m.Value, "form")) // {} means forms
		}
	}
	return d
}

// onlyForms returns what elicitation is to a client of a revision that has nothing
// but forms: what it says of these, and of what the bridge does not know, stays.
func onlyForms(elicitation []byte) []byte {
	elicitation = jsonrpc.Without(elicitation, "url")
	if shape.IsObject(shape.Member(elicitation, "form")) {
		return elicitation
	}
	return jsonrpc.With(elicitation, "form", []byte("{}"))
}

// replaceCapability replaces a capability; nil takes it away.
func replaceCapability(capabilities []byte, key string, value []byte) []byte {
	if value == nil {
		return jsonrpc.Without(capabilities, key)
	}
	return jsonrpc.With(capabilities, key, value)
}

// withoutTasks takes the extension for tasks out of extensions (C.5); nil if
// there is no other.
func withoutTasks(extensions []byte) []byte {
	if !shape.IsObject(extensions) {
		return nil
	}
	rest := jsonrpc.Without(extensions, era.ExtensionTasks)
	if len(rest) != len(extensions) && shape.IsEmpty(rest) {
		return nil
	}
	return rest
}

// discovered takes the answer to server/discover and answers initialize.
func (f *filter) discovered(now time.Time, m jsonrpc.Message, out *era.Out) {
	if shape.ErrorCode(m) == era.CodeUnsupportedVersion && !f.insisted && era.HasModern(m.Lookup("error", "data", "supported")) {
		// It has what we have asked for: once more (C.2).
		f.insisted = true
		f.lastID++
		f.discover = jsonrpc.IntID(f.lastID)
		out.Server(jsonrpc.NewRequest(f.discover, "server/discover", f.bareParams("")))
		return
	}
	id := f.initialize.ID()
	f.insisted = false
	f.initialize, f.discover = jsonrpc.Message{}, jsonrpc.ID{}
	if refusal := checkDiscovery(m); refusal != nil {
		f.phase = fresh
		out.Client(refusal.Response(id).WithRelated(id))
	} else {
		f.phase = ready
		f.readCapabilities(m.Lookup("result", "capabilities"))
		f.reply(id, f.initializeResult(m), out)
	}
	queued := f.queued
	f.queued, f.queuedBytes = nil, 0
	for _, m := range queued {
		f.FromClient(now, m, out)
	}
}

// checkDiscovery finds out why a session cannot be had with the server that
// answers so; nil: it can.
func checkDiscovery(m jsonrpc.Message) *era.Refusal {
	if m.IsError() {
		return discoveryFailed(m)
	}
	if parts := readResult(m); !parts.ok || parts.kind != "complete" {
		return &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the server has answered server/discover with no valid result", Data: shape.Reason("invalid_result")}
	}
	supported := m.Lookup("result", "supportedVersions")
	if supported != nil && !era.HasModern(supported) {
		return noCommonVersion(supported)
	}
	return nil
}

// discoveryFailed is what an error in answer to server/discover means for initialize.
func discoveryFailed(m jsonrpc.Message) *era.Refusal {
	code := shape.ErrorCode(m)
	text, _ := jsonrpc.Text(m.Lookup("error", "message"))
	switch code {
	case era.CodeUnsupportedVersion:
		return noCommonVersion(m.Lookup("error", "data", "supported"))
	case era.CodeHeaderMismatch, jsonrpc.CodeMethodNotFound:
		return &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the server cannot be discovered: " + text, Data: shape.Reason("discovery_failed")}
	case era.CodeMissingCapability:
		return &era.Refusal{Code: code, Text: text, Data: m.Lookup("error", "data")}
	}
	return &era.Refusal{Code: jsonrpc.CodeInternalError, Text: text, Data: m.Lookup("error", "data")}
}

// noCommonVersion refuses initialize since the server has no version that the
// bridge could speak with it; supported is the raw list of those it has.
func noCommonVersion(supported []byte) *era.Refusal {
	if len(supported) == 0 || supported[0] != '[' {
		supported = []byte("[]")
	}
	return &era.Refusal{
		Code: jsonrpc.CodeInvalidParams,
		Text: "the server does not speak 2026-07-28, which the bridge was to speak with it (--protocol)",
		Data: []byte(`{"supported":` + string(supported) + `}`),
	}
}

// readCapabilities notes what the server can do and completes the _meta of calls.
func (f *filter) readCapabilities(capabilities []byte) {
	isTrue := func(feature, flag string) bool {
		return string(shape.Member(shape.Member(capabilities, feature), flag)) == "true"
	}
	f.server = advertised{
		logging:   shape.IsObject(shape.Member(capabilities, "logging")),
		subscribe: isTrue("resources", "subscribe"),
		changes: changes{
			tools:     isTrue("tools", "listChanged"),
			prompts:   isTrue("prompts", "listChanged"),
			resources: isTrue("resources", "listChanged"),
		},
	}
	// There are servers that log without saying that they can: it is theirs to say
	// whether they do, and before 2026-07-28 nobody had to ask.
	f.askForLogs(jsonrpc.Quote(f.opts.DefaultLogLevel))
}

// askForLogs makes later calls ask for a level of logs, raw JSON.
func (f *filter) askForLogs(level []byte) {
	f.meta = jsonrpc.NewFragment(jsonrpc.With(f.bareMeta, era.KeyLogLevel, level))
}

// initializeResult makes a DiscoverResult an InitializeResult.
func (f *filter) initializeResult(m jsonrpc.Message) []byte {
	result := m.Result()
	capabilities := jsonrpc.Without(shape.Member(result, "capabilities"), "tasks")
	if !shape.IsObject(capabilities) {
		capabilities = []byte("{}")
	}
	if extensions := shape.Member(capabilities, "extensions"); extensions != nil {
		capabilities = replaceCapability(capabilities, "extensions", withoutTasks(extensions))
	}
	parts := readResult(m)
	info := shape.Member(parts.meta, era.KeyServerInfo)
	if !shape.IsObject(info) {
		info = f.opts.ServerInfo
	}
	if !shape.IsObject(info) {
		info = buildinfo.Implementation() // in InitializeResult it is required
	}
	b := []byte(`{"protocolVersion":"` + f.version + `","capabilities":` + string(capabilities) + `,"serverInfo":` + string(info))
	rest := jsonrpc.Without(legalResult(result, parts, true), "supportedVersions", "capabilities", "protocolVersion", "serverInfo")
	if shape.IsEmpty(rest) {
		return append(b, '}')
	}
	return append(append(b, ','), rest[1:]...)
}

// setLevel takes logging/setLevel: it holds for every later call (C.2).
func (f *filter) setLevel(m jsonrpc.Message, out *era.Out) {
	if !f.server.logging {
		f.refuse(m.ID(), jsonrpc.CodeMethodNotFound, "the server has no logging", nil, out)
		return
	}
	level := era.LogRank(m.Lookup("params", "level"))
	if level < 0 {
		f.refuse(m.ID(), jsonrpc.CodeInvalidParams, "params.level must be one of "+strings.Join(era.LogLevels, ", "), nil, out)
		return
	}
	f.level = level
	f.askForLogs(jsonrpc.Quote(era.LogLevels[level]))
	f.reply(m.ID(), nil, out)
}
