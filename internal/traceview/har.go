package traceview

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// The types are those of HAR 1.2 (http://www.softwareishard.com/blog/har-12-spec/). What begins
// with an underscore is ours, or Chrome's.
type (
	// harEntry is an entry of HAR: an HTTP exchange, or a message or WebSocket shown as one.
	harEntry struct {
		Started   string      `json:"startedDateTime"`              // when the exchange began, as in RFC 3339
		Time      float64     `json:"time"`                         // how long it took, in milliseconds
		Request   harRequest  `json:"request"`                      // what the client has sent; of a synthetic entry the message, whoever has sent it
		Response  harResponse `json:"response"`                     // what came back; of a synthetic entry the answer to its message
		Cache     struct{}    `json:"cache"`                        // always empty; HAR wants the member
		Timings   harTimings  `json:"timings"`                      // how Time divides
		Comment   string      `json:"comment,omitempty"`            // why it was refused or how it failed; or that it is no HTTP exchange
		Kind      string      `json:"_resourceType,omitempty"`      // "websocket"; "": another entry
		Frames    []harFrame  `json:"_webSocketMessages,omitempty"` // the messages on a WebSocket
		Synthetic string      `json:"_synthetic,omitempty"`         // of what is no HTTP exchange: the client's transport; "mcp" at the servers' end, and where none is recorded; "": it is one
		Server    string      `json:"_server,omitempty"`            // the configured name of the server; "": the record names none
		Session   string      `json:"_session,omitempty"`           // the bridge's own name of the session, such as "s1"
		Hop       string      `json:"_hop,omitempty"`               // between whom it passed: "down", client and bridge, or "up", bridge and server
		Redacted  []string    `json:"_redacted,omitempty"`          // what was taken out of it, as paths (trace.Record.Redacted)

		started time.Time // Started as a time, to sort by
	}
	// harRequest is the request of an entry.
	harRequest struct {
		Method      string    `json:"method"`             // the HTTP method, "GET" if the record has none; of a synthetic entry "POST"
		URL         string    `json:"url"`                // the absolute URL; of a synthetic entry TRANSPORT://mcp-bridge/SERVER/METHOD
		Proto       string    `json:"httpVersion"`        // version of HTTP, such as "HTTP/1.1"; "": not known; of a synthetic entry the transport
		Cookies     []harPair `json:"cookies"`            // always empty
		Headers     []harPair `json:"headers"`            // sorted by name
		Query       []harPair `json:"queryString"`        // values of the URL's query, sorted by name
		Post        *harPost  `json:"postData,omitempty"` // the body; nil: there is none, or it is not known
		HeadersSize int       `json:"headersSize"`        // always -1: not known
		BodySize    int64     `json:"bodySize"`           // length of the body in bytes; 0: it has none, or that is not known; -1: a synthetic entry has no body
	}
	// harPost is the body of a request (postData).
	harPost struct {
		Type   string    `json:"mimeType"` // media type of the body
		Params []harPair `json:"params"`   // always empty; HAR wants the member
		Text   string    `json:"text"`     // the body itself
	}
	// harResponse is the response of an entry.
	harResponse struct {
		Status      int        `json:"status"`      // HTTP status; 0: there is none
		StatusText  string     `json:"statusText"`  // name of the status: "Not Found"; "": it has none
		Proto       string     `json:"httpVersion"` // version of HTTP, such as "HTTP/1.1"; "": not known; of a synthetic entry the transport
		Cookies     []harPair  `json:"cookies"`     // always empty
		Headers     []harPair  `json:"headers"`     // sorted by name
		Content     harContent `json:"content"`     // the body
		Redirect    string     `json:"redirectURL"` // the header Location; "": there is none
		HeadersSize int        `json:"headersSize"` // always -1: not known
		BodySize    int64      `json:"bodySize"`    // length of the body in bytes; 0: it has none, or that is not known; -1: a synthetic entry has no body
	}
	// harContent is the body of a response.
	harContent struct {
		Size     int64  `json:"size"`               // length of the body in bytes
		Type     string `json:"mimeType"`           // media type of the body
		Text     string `json:"text,omitempty"`     // the body itself; "": not known
		Encoding string `json:"encoding,omitempty"` // "base64" if Text is that; "": Text is the body as it is
	}
	// harTimings says how the time of an entry divides, in milliseconds.
	harTimings struct {
		Send    float64 `json:"send"`    // always 0
		Wait    float64 `json:"wait"`    // until the reply began; of a message without an exchange, until its answer, 0 if it has none
		Receive float64 `json:"receive"` // from the beginning of the reply to its end
	}
	// harPair is a name and a value: a header, or a value of a query.
	harPair struct {
		Name  string `json:"name"`  // name of the header, or in the query
		Value string `json:"value"` // value of the header, or in the query
	}
	// harFrame is one message on a WebSocket, as Chrome writes it.
	harFrame struct {
		Type   string  `json:"type"`   // "send": to the server; "receive": to the client
		Time   float64 `json:"time"`   // when the message passed, in seconds since 1970
		Opcode int     `json:"opcode"` // always 1: text
		Data   string  `json:"data"`   // the message itself
	}
)

// exportHAR writes an entry for each HTTP exchange with its messages, and entries for messages without one.
func exportHAR(w io.Writer, records iter.Seq[*View]) error {
	h := harBuilder{unmatched: make(map[harKey][]*harMessage), sockets: make(map[string]*harEntry)}
	for v := range records {
		h.addRecord(v)
	}
	entries := h.finish()
	out := bufio.NewWriter(w) // its Flush returns the errors of others
	fmt.Fprintf(out, `{"log":{"version":"1.2","creator":{"name":"mcp-bridge","version":%s},`, jsonrpc.Quote(buildinfo.Version()))
	if h.lostRecords > 0 {
		fmt.Fprintf(out, `"comment":"%s missing in the trace",`, printable.Count(h.lostRecords, "record is", "records are"))
	}
	_, _ = out.WriteString(`"entries":[`)
	for i, e := range entries {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		entries[i] = nil // its memory may be used for the next ones
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	_, _ = out.WriteString("]}}\n")
	return out.Flush()
}

// harBuilder makes the entries of HAR from the records of a trace. The messages of an exchange are recorded before it.
type harBuilder struct {
	entries      []*harEntry              // the entries so far, but for those in refused
	refused      []*harEntry              // entries of the records of refusals; left out if the trace has exchanges: each refusal is one of these, too
	unmatched    map[harKey][]*harMessage // messages that are in no entry so far, by where they passed
	sockets      map[string]*harEntry     // entries of WebSockets, by session and hop
	hasExchanges bool                     // the trace has records of HTTP exchanges
	lostRecords  uint64                   // how many records are missing in the trace, at least
}

// harKey is where messages pass that may belong to one exchange: a map key.
type harKey struct {
	session string // pseudonym of the session
	hop     string // trace.Downstream or trace.Upstream
}

// harMessage is the record of a message. It is copied, because a View is good only until the next one.
type harMessage struct{ trace.Record }

// addRecord takes the next record: it makes an entry of an exchange or refusal, and keeps a message for a later one.
func (h *harBuilder) addRecord(v *View) {
	h.lostRecords += lostRecordsOf(v.Record)
	switch {
	case v.Kind.IsMessage():
		place := harKey{v.Session, v.Hop}
		h.unmatched[place] = append(h.unmatched[place], &harMessage{*v.Record})
	case v.HTTP != nil && v.Kind == trace.Refused:
		h.refused = append(h.refused, h.newExchangeEntry(v.Record))
	case v.HTTP != nil:
		h.hasExchanges = true
		e := h.newExchangeEntry(v.Record)
		h.entries = append(h.entries, e)
		if v.HTTP.Status == http.StatusSwitchingProtocols && v.Session != "" {
			e.Kind = "websocket"
			h.sockets[v.Session+" "+v.Hop] = e
		} else {
			h.addMessages(e, v.Record)
		}
	}
}

// finish makes entries of the messages that belong to no exchange, and returns all entries in order of time. No record may
// follow.
func (h *harBuilder) finish() []*harEntry {
	if !h.hasExchanges { // else each refusal is an exchange, too
		h.entries = append(h.entries, h.refused...)
	}
	for place, all := range h.unmatched {
		socket := h.sockets[place.session+" "+place.hop]
		if socket == nil && len(all) > 0 && all[0].Transport == "websocket" && place.hop == trace.Downstream {
			socket = syntheticEntry(&all[0].Record, "websocket")
			socket.Kind = "websocket"
			h.entries = append(h.entries, socket)
		}
		if socket != nil {
			for _, m := range all {
				socket.Frames = append(socket.Frames, frameOf(&m.Record))
				m.Body = trace.Body{} // the frame has a copy
			}
			continue
		}
		h.addUnexchanged(all)
	}
	slices.SortStableFunc(h.entries, func(a, b *harEntry) int {
		return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Hop, b.Hop))
	})
	return h.entries
}

// frameOf returns a message as a frame of a WebSocket.
func frameOf(r *trace.Record) harFrame {
	f := harFrame{Type: "receive", Time: float64(r.Time.UnixMicro()) / 1e6, Opcode: 1, Data: validText(bodyText(&r.Body))}
	if r.Dir == trace.ToServer {
		f.Type = "send"
	}
	return f
}

// addUnexchanged makes entries of messages that did not travel over HTTP, or whose exchange is not in
// the trace: a request and its answer become one entry, every other message becomes one.
func (h *harBuilder) addUnexchanged(all []*harMessage) {
	slices.SortStableFunc(all, func(a, b *harMessage) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Seq, b.Seq)) })
	asked := map[string]*harEntry{}
	for _, m := range all {
		key := m.Dir + " " + m.ID.String()
		if m.Kind == trace.Response {
			if e := asked[oppositeDir(m.Dir)+" "+m.ID.String()]; e != nil {
				delete(asked, oppositeDir(m.Dir)+" "+m.ID.String())
				e.Time = millis(m.Time.Sub(e.started))
				e.Timings.Wait = e.Time
				setContent(e, "application/json", bodyText(&m.Body), int64(m.Size))
				m.Body = trace.Body{}
				continue
			}
		}
		transport := m.Transport
		if m.Hop == trace.Upstream || transport == "" {
			transport = "mcp" // at the servers' end for all transports; at the clients' end none is recorded
		}
		e := syntheticEntry(&m.Record, transport)
		e.Request.Post = &harPost{Type: "application/json", Params: []harPair{}, Text: validText(bodyText(&m.Body))}
		e.Request.BodySize = int64(m.Size)
		m.Body = trace.Body{} // the entry has a copy
		h.entries = append(h.entries, e)
		if m.Kind == trace.Request {
			asked[key] = e
		}
	}
}

// syntheticEntry returns the entry, without a body, of a message over transport, or of a connection, that was no HTTP exchange.
func syntheticEntry(r *trace.Record, transport string) *harEntry {
	e := newEntry(r)
	where := url.URL{Scheme: transport, Host: "mcp-bridge", Path: "/" + cmp.Or(r.Server, "-") + "/" + cmp.Or(r.Method, "-")}
	e.Request.Method, e.Request.URL, e.Request.Proto = "POST", where.String(), transport
	e.Response.Proto = transport
	e.Synthetic = transport
	e.Comment = "no HTTP exchange, but a message over another transport"
	return e
}

// newEntry returns an entry that has of a record only its time, server, session, hop, and what was redacted.
func newEntry(r *trace.Record) *harEntry {
	none := []harPair{}
	return &harEntry{
		started: r.Time, Started: r.Time.UTC().Format("2006-01-02T15:04:05.000000Z"),
		Request:  harRequest{Cookies: none, Headers: none, Query: none, HeadersSize: -1, BodySize: -1},
		Response: harResponse{Cookies: none, Headers: none, HeadersSize: -1, BodySize: -1},
		Server:   r.Server, Session: r.Session, Hop: r.Hop, Redacted: r.Redacted,
	}
}

// newExchangeEntry returns the entry of an HTTP exchange or refusal, without the bodies.
func (h *harBuilder) newExchangeEntry(r *trace.Record) *harEntry {
	x, e := r.HTTP, newEntry(r)
	where := x.URL
	if u, err := url.Parse(where); err == nil {
		if !u.IsAbs() {
			u.Scheme, u.Host = "http", cmp.Or(x.RequestHeader.Get("Host"), "mcp-bridge")
			where = u.String()
		}
		for name, values := range u.Query() {
			for _, value := range values {
				e.Request.Query = append(e.Request.Query, harPair{name, value})
			}
		}
		slices.SortFunc(e.Request.Query, func(a, b harPair) int { return cmp.Compare(a.Name, b.Name) })
	}
	e.Request.Method, e.Request.URL, e.Request.Proto = cmp.Or(x.Method, "GET"), where, x.Proto
	e.Request.Headers, e.Request.BodySize = pairs(x.RequestHeader), x.RequestBytes
	e.Response.Status, e.Response.StatusText, e.Response.Proto = x.Status, http.StatusText(x.Status), x.Proto
	e.Response.Headers, e.Response.BodySize = pairs(x.ResponseHeader), x.ResponseBytes
	e.Response.Redirect = x.ResponseHeader.Get("Location")
	e.Response.Content = harContent{Size: x.ResponseBytes, Type: x.ResponseHeader.Get("Content-Type")}
	e.Time = max(millis(x.Duration), 0)
	e.Timings.Wait = min(max(millis(x.FirstByte), 0), e.Time)
	e.Timings.Receive = e.Time - e.Timings.Wait
	e.Comment = strings.Join(slices.DeleteFunc([]string{x.Rule, x.Reason, r.Reason, x.Err}, func(s string) bool { return s == "" }), ": ")
	return e
}

// maxDisorder is how much earlier than the beginning of an exchange its messages may have passed for addMessages to look at them: a
// stream that stays open may have had very many before.
const maxDisorder = time.Second

// addMessages puts the messages that passed in the place and time of the exchange r into its entry e: of a POST the client's
// message, if possible one as long as the body, and what came back. They are unmatched no more.
func (h *harBuilder) addMessages(e *harEntry, r *trace.Record) {
	place, x := harKey{r.Session, r.Hop}, r.HTTP
	const slack = 5 * time.Millisecond
	isWithin := func(m *harMessage) bool {
		return !m.Time.Before(r.Time.Add(-slack)) && !m.Time.After(r.Time.Add(x.Duration+slack))
	}
	all := h.unmatched[place]
	firstRecent := len(all)
	for firstRecent > 0 && all[firstRecent-1].Time.After(r.Time.Add(-maxDisorder)) {
		firstRecent--
	}
	recent := all[firstRecent:]
	requestIndex := -1
	for i, m := range recent {
		if m.Dir == trace.ToServer && isWithin(m) && x.Method == http.MethodPost && (requestIndex < 0 || int64(m.Size) == x.RequestBytes) {
			if requestIndex = i; int64(m.Size) == x.RequestBytes {
				break
			}
		}
	}
	var request *harMessage
	if requestIndex >= 0 {
		request = recent[requestIndex]
		text := validText(bodyText(&request.Body))
		e.Request.Post = &harPost{Type: cmp.Or(x.RequestHeader.Get("Content-Type"), "application/json"), Params: []harPair{}, Text: text}
	}
	isEventStream := strings.HasPrefix(x.ResponseHeader.Get("Content-Type"), "text/event-stream")
	var text []byte
	recent = slices.DeleteFunc(recent, func(m *harMessage) bool {
		belongs := m == request
		if m.Dir == trace.ToClient && isWithin(m) {
			own := request != nil && m.Kind == trace.Response && m.ID.Equivalent(request.ID)
			other := m.Kind != trace.Response || request == nil
			switch {
			case own && !isEventStream:
				text, belongs = bodyText(&m.Body), true
			case isEventStream && (own || other):
				text = fmt.Appendf(text, "data: %s\n\n", bodyText(&m.Body))
				belongs = true
			}
		}
		return belongs
	})
	h.unmatched[place] = all[:firstRecent+len(recent)]
	if text != nil {
		setContent(e, e.Response.Content.Type, text, x.ResponseBytes)
	}
}

// setContent makes text the body of the reply of e, in Base64 if it is no UTF-8. kind is its media type, and size its length on
// the wire.
func setContent(e *harEntry, kind string, text []byte, size int64) {
	c := harContent{Size: size, Type: kind, Text: string(text)}
	if !utf8.Valid(text) {
		c.Text, c.Encoding = base64.StdEncoding.EncodeToString(text), "base64"
	}
	e.Response.Content = c
	if e.Response.Status == 0 && e.Synthetic != "" {
		e.Response.BodySize = size
	}
}

// pairs returns headers as HAR has them, one for each value, sorted by name.
func pairs(h http.Header) []harPair {
	list := []harPair{}
	for name, values := range h {
		for _, value := range values {
			list = append(list, harPair{name, value})
		}
	}
	slices.SortStableFunc(list, func(a, b harPair) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// validText returns text in which bytes that are no UTF-8 became U+FFFD.
func validText(text []byte) string { return strings.ToValidUTF8(string(text), "\uFFFD") }

// millis returns a duration in milliseconds, down to whole microseconds.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
