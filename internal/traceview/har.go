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
	harEntry struct {
		Started   string      `json:"startedDateTime"`
		Time      float64     `json:"time"`
		Request   harRequest  `json:"request"`
		Response  harResponse `json:"response"`
		Cache     struct{}    `json:"cache"`
		Timings   harTimings  `json:"timings"`
		Comment   string      `json:"comment,omitempty"`
		Kind      string      `json:"_resourceType,omitempty"`
		Frames    []harFrame  `json:"_webSocketMessages,omitempty"`
		Synthetic string      `json:"_synthetic,omitempty"` // the transport of what is no HTTP exchange
		Server    string      `json:"_server,omitempty"`
		Session   string      `json:"_session,omitempty"`
		Hop       string      `json:"_hop,omitempty"`
		Redacted  []string    `json:"_redacted,omitempty"`

		started time.Time
	}
	harRequest struct {
		Method      string    `json:"method"`
		URL         string    `json:"url"`
		Proto       string    `json:"httpVersion"`
		Cookies     []harPair `json:"cookies"`
		Headers     []harPair `json:"headers"`
		Query       []harPair `json:"queryString"`
		Post        *harPost  `json:"postData,omitempty"`
		HeadersSize int       `json:"headersSize"`
		BodySize    int64     `json:"bodySize"`
	}
	harPost struct {
		Type   string    `json:"mimeType"`
		Params []harPair `json:"params"`
		Text   string    `json:"text"`
	}
	harResponse struct {
		Status      int        `json:"status"`
		StatusText  string     `json:"statusText"`
		Proto       string     `json:"httpVersion"`
		Cookies     []harPair  `json:"cookies"`
		Headers     []harPair  `json:"headers"`
		Content     harContent `json:"content"`
		Redirect    string     `json:"redirectURL"`
		HeadersSize int        `json:"headersSize"`
		BodySize    int64      `json:"bodySize"`
	}
	harContent struct {
		Size     int64  `json:"size"`
		Type     string `json:"mimeType"`
		Text     string `json:"text,omitempty"`
		Encoding string `json:"encoding,omitempty"`
	}
	harTimings struct {
		Send    float64 `json:"send"`
		Wait    float64 `json:"wait"`
		Receive float64 `json:"receive"`
	}
	harPair struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	harFrame struct {
		Type   string  `json:"type"`
		Time   float64 `json:"time"` // seconds since 1970
		Opcode int     `json:"opcode"`
		Data   string  `json:"data"`
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

// harBuilder makes entries. The messages of an exchange are recorded before it.
type harBuilder struct {
	entries      []*harEntry
	refused      []*harEntry              // entries of refusals, which count only without exchanges
	unmatched    map[harKey][]*harMessage // messages that are in no entry yet
	sockets      map[string]*harEntry     // WebSockets, by session and hop
	hasExchanges bool                     // the trace has records of HTTP exchanges
	lostRecords  uint64
}

// harKey is where messages pass that may belong to one exchange.
type harKey struct{ session, hop string }

// harMessage is a message. The record is copied, because a View is good only until the next one.
type harMessage struct{ trace.Record }

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

// finish makes entries of the messages that belong to no exchange, and returns all entries in order of time.
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

// frameOf returns a message as one of a WebSocket.
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
			transport = "mcp" // which one it was is not recorded
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

// syntheticEntry returns the entry of something that was no HTTP exchange.
func syntheticEntry(r *trace.Record, transport string) *harEntry {
	e := newEntry(r)
	where := url.URL{Scheme: transport, Host: "mcp-bridge", Path: "/" + cmp.Or(r.Server, "-") + "/" + cmp.Or(r.Method, "-")}
	e.Request.Method, e.Request.URL, e.Request.Proto = "POST", where.String(), transport
	e.Response.Proto = transport
	e.Synthetic = transport
	e.Comment = "no HTTP exchange, but a message over another transport"
	return e
}

// newEntry returns an entry that has of a record only its time and what begins with an underscore.
func newEntry(r *trace.Record) *harEntry {
	none := []harPair{}
	return &harEntry{
		started: r.Time, Started: r.Time.UTC().Format("2006-01-02T15:04:05.000000Z"),
		Request:  harRequest{Cookies: none, Headers: none, Query: none, HeadersSize: -1, BodySize: -1},
		Response: harResponse{Cookies: none, Headers: none, HeadersSize: -1, BodySize: -1},
		Server:   r.Server, Session: r.Session, Hop: r.Hop, Redacted: r.Redacted,
	}
}

// newExchangeEntry returns the entry of an HTTP exchange, without the bodies.
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

// maxDisorder is how much earlier a record of a trace may be than the record before it. For an exchange, messages that came more than
// that before its begin are not looked at: a stream that stays open may have had very many.
const maxDisorder = time.Second

// addMessages gives the entry e of an exchange r the messages that passed at its place and in its time: the client's message, one of the
// right size if there is one, and what came back.
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

// setContent sets the body of the reply, in Base64 if text is no UTF-8. size is its length on the wire.
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

// validText returns text in valid UTF-8.
func validText(text []byte) string { return strings.ToValidUTF8(string(text), "\uFFFD") }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
