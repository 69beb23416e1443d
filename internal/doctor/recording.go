package doctor

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// What a Recording keeps.
const (
	maxRecords          = 500      // how many records a Recording keeps: the latest
	maxTotalTextBytes   = 4 << 20  // how long the texts of messages that a Recording keeps may be together, in bytes
	maxMessageTextBytes = 64 << 10 // how long a message may be, in bytes, for its text to be kept
	maxSessions         = 100      // how many session ids get a name in a Recording
	maxOpenRequests     = 100      // how many requests without an answer are kept, to find them once the answer comes
)

// Recording is what doctor and the server have said to each other last, for a bug report: older records make room (maxRecords,
// maxTotalTextBytes). A nil Recording records nothing. Its methods may be called concurrently.
type Recording struct {
	mu             sync.Mutex                  // guards what follows
	records        []trace.Record              // the latest, with their secrets
	textBytes      int                         // how long the texts of messages in records are together, in bytes
	droppedRecords uint64                      // how many records had to make room for later ones
	lastSeq        uint64                      // trace.Record.Seq of the latest record
	hiddenHeaders  []string                    // names of headers whose values FormatTrace takes out
	sessionCount   int                         // how many sessions have got a name: the number in the latest name
	sessionNames   map[string]string           // names of sessions, by session id
	openRequests   map[requestKey]trace.Record // the requests that have no answer so far, maxOpenRequests at most: further ones are left out
}

// requestKey tells apart the requests that have no answer yet: a map key.
type requestKey struct {
	session   string     // name of the session in the Recording
	direction string     // where the request goes: trace.ToServer or trace.ToClient
	id        jsonrpc.ID // JSON-RPC id of the request
}

// NewRecording returns an empty Recording.
func NewRecording() *Recording {
	return &Recording{sessionNames: map[string]string{}, openRequests: map[requestKey]trace.Record{}}
}

// recordingKey is the key under which WithRecording puts a Recording into a context.
type recordingKey struct{}

// WithRecording returns a context that carries r: what doctor says under it to a server, and what comes back, is recorded in r.
func WithRecording(ctx context.Context, r *Recording) context.Context {
	return context.WithValue(ctx, recordingKey{}, r)
}

// RecordingOf returns the Recording that ctx carries; nil: none.
func RecordingOf(ctx context.Context) *Recording {
	r, _ := ctx.Value(recordingKey{}).(*Recording)
	return r
}

// HideHeader has Report.FormatTrace take out the values of the header name. A nil Recording works.
func (r *Recording) HideHeader(name string) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hiddenHeaders = append(r.hiddenHeaders, name)
	}
}

// NewSession returns a name, such as "s1", for a new session that has no id (see SessionName); "": the Recording is nil.
func (r *Recording) NewSession() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nextSessionName()
}

// nextSessionName returns a name that no session has: "s1", "s2" and so on. It is called with mu held.
func (r *Recording) nextSessionName() string {
	r.sessionCount++
	return "s" + strconv.Itoa(r.sessionCount)
}

// SessionName returns the name for the session with an id, which itself is never shown: a new name, or that of the call before.
// "": id is "", there are too many sessions, or the Recording is nil.
func (r *Recording) SessionName(id string) string {
	if r == nil || id == "" {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessionNames[id] == "" && len(r.sessionNames) < maxSessions {
		r.sessionNames[id] = r.nextSessionName()
	}
	return r.sessionNames[id]
}

// RecordMessage records a message of a session, which has the name session, in the direction dir (trace.ToServer or trace.ToClient);
// transport is "stdio" or "http". Of a message that is longer than maxMessageTextBytes the text is not kept. A text that is no message
// becomes a trace.Noise, of which only the length is kept.
func (r *Recording) RecordMessage(session, transport, dir string, text []byte) {
	if r == nil {
		return
	}
	rec := trace.Record{Session: session, Transport: transport, Hop: trace.Upstream, Dir: dir, Size: len(text)}
	m, err := jsonrpc.Parse(text)
	if err != nil {
		rec.Kind, rec.Dir, rec.Reason = trace.Noise, "", "it is no message"
		r.addRecord(rec)
		return
	}
	rec.Method, rec.ID = m.Method(), m.ID()
	if rec.Body.OmittedBytes = len(text); len(text) <= maxMessageTextBytes {
		rec.Body = trace.Body{Text: slices.Clone(text)}
	}
	switch m.Kind() {
	case jsonrpc.Request:
		rec.Kind = trace.Request
		rec.Name, _ = jsonrpc.Text(m.Lookup("params", "name"))
	case jsonrpc.Notification:
		rec.Kind = trace.Notification
	default:
		rec.Kind = trace.Response
		rec.Code, _ = strconv.Atoi(string(m.Lookup("error", "code")))
		rec.Failed = string(m.Lookup("result", "isError")) == "true"
	}
	r.addRecord(rec)
}

// RecordHTTPExchange records an HTTP request with the status and headers of its reply, or with why there was none.
// RecordMessage records the messages in both bodies.
func (r *Recording) RecordHTTPExchange(session string, began time.Time, x trace.Exchange) {
	if r != nil {
		r.addRecord(trace.Record{Kind: trace.HTTP, Time: began, Session: session, Transport: "http", Hop: trace.Upstream, HTTP: &x})
	}
}

// RecordProcessEvent records that a process has started or ended.
func (r *Recording) RecordProcessEvent(session string, e trace.Event) {
	if r != nil {
		r.addRecord(trace.Record{Kind: trace.Process, Session: session, Transport: "stdio", Event: &e})
	}
}

// addRecord adds a record: it sets its Seq, its Time if it has none, and of a response whose request is known the duration, and the
// session, method and name of that request. The oldest records make room.
func (r *Recording) addRecord(rec trace.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastSeq++
	rec.Seq = r.lastSeq
	if rec.Time.IsZero() {
		rec.Time = time.Now()
	}
	switch other := map[string]string{trace.ToServer: trace.ToClient, trace.ToClient: trace.ToServer}[rec.Dir]; rec.Kind {
	case trace.Request:
		if len(r.openRequests) < maxOpenRequests {
			r.openRequests[requestKey{rec.Session, rec.Dir, rec.ID}] = rec
		}
	case trace.Response:
		for _, session := range []string{rec.Session, ""} { // the reply to initialize opens a session
			key := requestKey{session, other, rec.ID}
			if asked, ok := r.openRequests[key]; ok {
				rec.Session, rec.Method, rec.Name, rec.Duration = session, asked.Method, asked.Name, rec.Time.Sub(asked.Time)
				delete(r.openRequests, key)
				break
			}
		}
	}
	r.records = append(r.records, rec)
	r.textBytes += len(rec.Body.Text)
	for len(r.records) > maxRecords || r.textBytes > maxTotalTextBytes {
		r.textBytes -= len(r.records[0].Body.Text)
		r.records = slices.Delete(r.records, 0, 1)
		r.droppedRecords++
	}
}

// FormatTrace returns what was recorded as a trace (docs/trace.md), without the secrets that the report hides, and without those
// that a trace never has. of must not be nil. server is the name of the server in the trace.
func (r *Report) FormatTrace(of *Recording, server string) ([]byte, error) {
	of.mu.Lock()
	defer of.mu.Unlock()
	r.mu.Lock()
	d, err := redact.New(redact.Options{Secrets: r.secrets, Headers: of.hiddenHeaders})
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for _, rec := range of.records { // what the names in a message tell may stand in an earlier one
		rec.Redact(d)
	}
	var text []byte
	if of.droppedRecords > 0 {
		text = trace.Append(text, &trace.Record{Kind: trace.Gap, Time: of.records[0].Time, Lost: of.droppedRecords})
	}
	for _, rec := range of.records {
		rec.Server = server
		rec.Redact(d)
		text = trace.Append(text, &rec)
	}
	return text, nil
}
