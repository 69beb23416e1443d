package remote

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
)

// A modernServer is a server that speaks 2026-07-28. It is immutable.
type modernServer struct {
	prober        *prober                    // makes the requests
	capabilities  map[string]json.RawMessage // those that the server has declared, by name
	discoverReply *probe.Reply               // the reply to server/discover
}

// harmlessMethod returns server/discover, which changes nothing; it implements requester.
func (m *modernServer) harmlessMethod() string { return "server/discover" }

// hasCapability reports whether the server has declared a capability; it implements requester.
func (m *modernServer) hasCapability(capability string) bool {
	return m.capabilities[capability] != nil
}

// ask makes a request of 2026-07-28; change, if not nil, changes how it is sent. It implements requester.
func (m *modernServer) ask(ctx context.Context, method string, params map[string]any, change func(*probe.Request)) *probe.Reply {
	return m.prober.askModern(ctx, method, params, change)
}

// modernRequest returns a request of 2026-07-28, with the headers and the _meta that it must have; members of _meta in params
// are kept.
func (p *prober) modernRequest(method string, params map[string]any) probe.Request {
	header := legacyHeader()
	header[headerVersion], header[headerMethod] = era.NewestModern, method
	if name, ok := params["name"].(string); ok {
		header[headerName] = name
	}
	all := map[string]any{}
	maps.Copy(all, params)
	meta := map[string]any{era.KeyVersion: era.NewestModern, era.KeyCapabilities: map[string]any{}, era.KeyClientInfo: json.RawMessage(buildinfo.Implementation())}
	if own, ok := params["_meta"].(map[string]any); ok {
		maps.Copy(meta, own)
	}
	all["_meta"] = meta
	id := p.NewID()
	return probe.Request{Header: header, ID: id, Body: probe.EncodeMessage(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": all})}
}

// askModern makes a request of 2026-07-28; change, if not nil, changes how it is sent.
func (p *prober) askModern(ctx context.Context, method string, params map[string]any, change func(*probe.Request)) *probe.Reply {
	q := p.modernRequest(method, params)
	if change != nil {
		change(&q)
	}
	return p.doAndCheck(ctx, q)
}

// discover sends server/discover, to see whether the server speaks 2026-07-28. A session that the reply opens is deleted by
// cleanup.
func (p *prober) discover(ctx context.Context) *probe.Reply {
	q := p.modernRequest("server/discover", nil)
	r := p.doAndCheck(ctx, q)
	if r.Header.Get(headerSession) != "" { // some open a session for whoever comes
		p.deleteSessionAtEnd(r, q, false)
	}
	return r
}

// modernServerOf returns the server that has answered server/discover with r, and notes the fact "server"; nil: it does not
// speak 2026-07-28.
func (p *prober) modernServerOf(r *probe.Reply) *modernServer {
	var result struct {
		SupportedVersions []string                   `json:"supportedVersions"`
		Capabilities      map[string]json.RawMessage `json:"capabilities"`
		Meta              map[string]json.RawMessage `json:"_meta"`
	}
	if !r.HasResult() || json.Unmarshal(r.Result(), &result) != nil || !slices.ContainsFunc(result.SupportedVersions, era.IsModern) {
		return nil
	}
	var info struct{ Name, Version string }
	if json.Unmarshal(result.Meta[era.KeyServerInfo], &info) == nil && info.Name != "" {
		p.setFact("server", "%s %s", info.Name, info.Version)
	}
	return &modernServer{prober: p, capabilities: result.Capabilities, discoverReply: r}
}

// missingHeaderPattern matches what servers say of a header of MCP that did not come; its groups have the name.
var missingHeaderPattern = lazyregexp.New(`(?i)(Mcp-Method|Mcp-Name|Mcp-Protocol-Version)\b.{0,40}(missing|required|absent)|(missing|requires?|no)\b.{0,40}(Mcp-Method|Mcp-Name|Mcp-Protocol-Version)`)

// addDroppedHeader adds H9 if r, the reply to a request of 2026-07-28, says that a header is missing that was sent. It reports
// whether r says so.
func (p *prober) addDroppedHeader(r *probe.Reply) bool {
	e := r.RPCError()
	if r.Status/100 == 2 || e == nil || e.Code != era.CodeHeaderMismatch {
		return false
	}
	name := ""
	if m := missingHeaderPattern.FindStringSubmatch(e.Message); m != nil {
		name = m[1] + m[4]
	}
	if name == "" {
		return false
	}
	p.addFinding("H9", doctor.Error, "The "+name+" header of clients is lost on the way", "it was sent, and "+r.Summary(),
		"Every request of 2026-07-28 is refused.", passHeaderAdvice(p, name, "of requests"))
	return true
}

// checkHeaders sends a request with all headers of 2026-07-28, and adds H9 or H15 if it is refused for them or for its
// revision. It does nothing if m is nil, or the server has no tools.
func (m *modernServer) checkHeaders(ctx context.Context) {
	if m == nil || !m.hasCapability("tools") {
		return
	}
	r := m.ask(ctx, "tools/list", nil, nil)
	if r.Err != nil || r.IsInconclusive() || r.Status/100 == 2 || m.prober.addDroppedHeader(r) {
		return
	}
	if e := r.RPCError(); e != nil && e.Code == era.CodeUnsupportedVersion {
		m.prober.addFinding("H15", doctor.Error, "The server refuses the protocol version that it offers", "server/discover lists "+era.NewestModern+"; tools/list: "+r.Summary(),
			"Clients of "+era.NewestModern+" fail.", "If there are several replicas, see whether all have the same version; else correct the server.")
	}
}

// checkSubscription opens a subscription, whose first event is due at once; if that does not come, it is checked again later
// (H11). It does nothing if m is nil.
func (m *modernServer) checkSubscription(ctx context.Context) {
	if m == nil || m.discoverReply.Err != nil {
		return
	}
	if m.subscribe(ctx) != "" {
		m.prober.recheckLater(m, m.discoverReply, m.subscribe)
	}
}

// subscribe opens a subscription and waits for its first event. It returns what did not come within checkTimeout; "": all did,
// or the server has refused.
func (m *modernServer) subscribe(ctx context.Context) (silent string) {
	q := m.prober.modernRequest("subscriptions/listen", map[string]any{"notifications": map[string]any{"toolsListChanged": true}})
	q.Timeout = checkTimeout
	r := m.prober.Start(ctx, q)
	defer r.Close()
	switch {
	case r.TimedOut(0):
		return "subscriptions/listen: no headers came"
	case !r.IsStream():
		return ""
	}
	got := r.NextEvent()
	m.prober.checkReply(r)
	m.prober.checkCompression(r)
	if !got && r.TimedOut(0) {
		return "subscriptions/listen: headers came, and the first event did not come"
	}
	return ""
}

// addNewestFails adds H15 if r, the reply to server/discover, has a status 5xx: a server that does not know 2026-07-28 should
// refuse it otherwise, so that clients fall back to initialize.
func (p *prober) addNewestFails(r *probe.Reply) {
	if r.Err == nil && r.Status >= http.StatusInternalServerError && !r.IsHTML() {
		p.addFinding("H15", doctor.Warning, "The server fails when it is asked in the newest revision", "server/discover: "+r.Summary(),
			"Clients of "+era.NewestModern+" take this for a server that is down, and do not fall back to initialize.",
			"Have the server answer requests that it does not know 400, with a JSON-RPC error.")
	}
}

// revisions returns the revisions that the server speaks, the newest first, as the text of a fact.
func (f foundProtocols) revisions() string {
	var all []string
	if f.modern != nil {
		all = append(all, era.NewestModern)
	}
	if f.legacy != nil {
		all = append(all, f.legacy.protocolVersion)
	}
	if f.sse != nil && f.sse.protocolVersion != "" {
		all = append(all, f.sse.protocolVersion)
	}
	return strings.Join(all, ", ")
}
