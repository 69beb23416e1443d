package legacyserver

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// openTimeout is how long requests wait for the answer to initialize.
	openTimeout = time.Minute

	// maxHeld is how many requests wait for it.
	maxHeld = 1000

	// maxCause is how much of the server's own words an error repeats.
	maxCause = 500
)

// handshake is what initialize has brought.
type handshake struct {
	open    bool
	failure *era.Refusal      // why it is not; nil: initialize is not answered yet, and requests are held
	held    []jsonrpc.Message // in order

	capabilities      []byte           // as the server declares them; raw
	discovery         []byte           // the result of server/discover
	meta              []byte           // the _meta of results: who the server is; nil: it does not say
	preamble          jsonrpc.Fragment // what every result says first
	cacheablePreamble jsonrpc.Fragment // what those of cacheable methods do
	version           string
}

// Start sends initialize. It declares what the clients can do, so that all of
// them must be able to do it (C.1).
func (f *Filter) Start(now time.Time, out *era.Out) {
	info := f.o.ClientInfo
	if !isImplementation(info) { // the server may refuse it, and then everybody who shares it
		info = buildinfo.Implementation()
	}
	params := shape.AppendMember([]byte{'{'}, "protocolVersion", jsonrpc.Quote(era.NewestLegacy))
	params = shape.AppendMember(params, "capabilities", f.o.Capabilities)
	params = shape.AppendMember(params, "clientInfo", info)
	late := f.timers.set(now.Add(openTimeout), func(_ time.Time, out *era.Out) {
		f.unheld(&era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the server has not answered initialize within a minute", Data: shape.Reason("initialize_timeout")}, out)
	})
	f.ask("initialize", append(params, '}'), func(now time.Time, m jsonrpc.Message, out *era.Out) {
		f.timers.stop(late)
		f.initialized(now, m, out)
	}, out)
}

// isImplementation reports whether info is what servers take for a clientInfo.
// They are strict about the members that they know.
func isImplementation(info []byte) bool {
	if !shape.IsObject(info) {
		return false
	}
	var name, version bool
	for m := range jsonrpc.Members(info) {
		ok := true
		switch m.Key {
		case "name":
			ok = shape.IsText(m.Value)
			name = ok
		case "version":
			ok = shape.IsText(m.Value)
			version = ok
		case "title", "description", "websiteUrl":
			ok = shape.IsText(m.Value)
		case "icons":
			ok = areIcons(m.Value)
		}
		if !ok {
			return false
		}
	}
	return name && version
}

func areIcons(raw []byte) bool {
	if !shape.IsArray(raw) {
		return false
	}
	for _, icon := range jsonrpc.Elements(raw) {
		if !shape.IsObject(icon) || !shape.IsText(shape.Member(icon, "src")) {
			return false
		}
		for m := range jsonrpc.Members(icon) {
			switch m.Key {
			case "mimeType", "theme":
				if !shape.IsText(m.Value) {
					return false
				}
			case "sizes":
				if !shape.IsArray(m.Value) {
					return false
				}
			}
		}
	}
	return true
}

// makePreambles is called when meta is known.
func (l *handshake) makePreambles() {
	preamble := func(hints string) jsonrpc.Fragment {
		members := `{"resultType":"complete",` + hints
		if l.meta != nil {
			members += `"_meta":` + string(l.meta) + ","
		}
		return jsonrpc.NewFragment([]byte(members[:len(members)-1] + "}"))
	}
	l.preamble, l.cacheablePreamble = preamble(""), preamble(cacheHints)
}

// unheld refuses what waits, and what will come, unless initialize is answered after all.
func (f *Filter) unheld(why *era.Refusal, out *era.Out) {
	f.link.failure = why
	for _, m := range f.link.held {
		out.Client(why.Response(m.ID()).WithRelated(m.ID()))
	}
	f.link.held = nil
	f.failed.Store(true)
}

// initialized takes the answer to initialize.
func (f *Filter) initialized(now time.Time, m jsonrpc.Message, out *era.Out) {
	version, _ := jsonrpc.Text(m.Lookup("result", "protocolVersion"))
	if m.IsError() || !era.IsLegacy(version) {
		f.unheld(initializeFailed(m, version), out)
		return
	}
	l := &f.link
	l.open, l.failure, l.version = true, nil, version
	f.failed.Store(false)
	l.capabilities = []byte("{}")
	if c := m.Lookup("result", "capabilities"); shape.IsObject(c) {
		l.capabilities = c
	}
	if info := m.Lookup("result", "serverInfo"); shape.IsObject(info) {
		l.meta = append(shape.AppendMember([]byte{'{'}, era.KeyServerInfo, info), '}')
	}
	l.makePreambles()
	l.discovery = discoveryResult(l, m.Lookup("result", "instructions"))
	f.logs.supported = shape.Member(l.capabilities, "logging") != nil
	out.Server(jsonrpc.NewNotification("notifications/initialized", nil))
	f.learnTools(now, out)

	held := l.held
	l.held = nil
	for _, m := range held {
		f.serve(now, m, out)
	}
}

// initializeFailed says why initialize has come to nothing.
func initializeFailed(m jsonrpc.Message, version string) *era.Refusal {
	text := "the server answered initialize with a protocol version that the bridge does not know"
	if m.IsError() {
		text = "initialize has failed" // the server has refused it, or there was none
		if cause, ok := jsonrpc.Text(m.Lookup("error", "message")); ok {
			text += ": " + cause[:min(len(cause), maxCause)]
		}
	} else if version != "" {
		text += ": " + version[:min(len(version), maxCause)]
	}
	return &era.Refusal{Code: jsonrpc.CodeInternalError, Text: text, Data: shape.Reason("initialize_failed")}
}

// discoveryResult is what server/discover is answered (C.1). The bridge serves
// listen and every version itself; of the capabilities only tasks are no more
// what they were (C.0, C.5).
func discoveryResult(l *handshake, instructions []byte) []byte {
	capabilities := jsonrpc.Without(l.capabilities, "tasks")
	if extensions := shape.Member(capabilities, "extensions"); shape.IsObject(extensions) {
		capabilities = jsonrpc.With(capabilities, "extensions", jsonrpc.Without(extensions, era.ExtensionTasks))
	}
	versions := []byte{'['}
	for i, v := range era.Auto.Versions() {
		if i > 0 {
			versions = append(versions, ',')
		}
		versions = append(versions, jsonrpc.Quote(v)...)
	}
	out := shape.AppendMember([]byte{'{'}, "supportedVersions", append(versions, ']'))
	out = shape.AppendMember(out, "capabilities", capabilities)
	if _, ok := jsonrpc.Text(instructions); ok {
		out = shape.AppendMember(out, "instructions", instructions)
	}
	return append(out, '}')
}

// fromClient checks a request and serves it, as soon as that is possible.
func (f *Filter) fromClient(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch {
	case f.link.open:
		f.serve(now, m, out)
	case f.link.failure != nil:
		out.Client(f.link.failure.Response(m.ID()).WithRelated(m.ID()))
	case len(f.link.held) == maxHeld:
		f.refuse(m.ID(), jsonrpc.CodeInternalError, "too many requests wait for the server to start", shape.Reason("busy"), out)
	default:
		f.link.held = append(f.link.held, m)
	}
}

// serve serves a request; the server has been initialized.
func (f *Filter) serve(now time.Time, m jsonrpc.Message, out *era.Out) {
	r := readRequest(m, &f.spoken)
	if r.refusal != nil {
		out.Client(r.refusal.Response(r.id).WithRelated(r.id))
		return
	}
	if f.inProgress(r.id) {
		f.refuse(r.id, jsonrpc.CodeInvalidRequest, "a request with this id is in progress", nil, out) // J3
		return
	}
	switch r.method {
	case "server/discover":
		out.Client(f.resultMessage(r.id, r.method, f.link.discovery))
	case "subscriptions/listen":
		f.listen(now, r, out)
	case "", "tasks/get", "tasks/update", "tasks/cancel": // the extension for tasks is not advertised (C.5)
		out.Client(era.NotFound(r.method).Response(r.id).WithRelated(r.id))
	default:
		if era.IsRemovedMethod(r.method) {
			out.Client(era.NotFound(r.method).Response(r.id).WithRelated(r.id))
			return
		}
		f.call(now, r, out)
	}
}

// inProgress reports whether an answer is owed for the id.
func (f *Filter) inProgress(id jsonrpc.ID) bool {
	return f.calls[id] != nil || f.subs.listening(id)
}
