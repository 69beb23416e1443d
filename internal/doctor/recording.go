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
	maxRecords          = 500      // how many records, the latest
	maxTotalTextBytes   = 4 << 20  // bytes of all messages in them
	maxMessageTextBytes = 64 << 10 // bytes of a message; nothing is kept of the text of a longer one
	maxSessions         = 100      // how many session ids get a name
	maxOpenRequests     = 100      // of how many requests without an answer it knows what their answers belong to
)

// Recording is what doctor and the server have said to each other, for a bug report. A nil Recording records
// nothing. Its methods may be called concurrently.
type Recording struct {
	mu             sync.Mutex
	records        []trace.Record // the latest, with their secrets
	textBytes      int            // bytes of the messages in records
	droppedRecords uint64         // how many records had to make room
	lastSeq        uint64
	hiddenHeaders  []string                    // names of headers whose values FormatTrace takes out
	sessionCount   int                         // how many sessions have a name
	sessionNames   map[string]string           // names by session id
	openRequests   map[requestKey]trace.Record // without an answer so far
}

// requestKey is a request that has no answer yet.
type requestKey struct {
	session, direction string // name of the session; trace.ToServer or trace.ToClient
	id                 jsonrpc.ID
}

// NewRecording returns an empty Recording.
func NewRecording() *Recording {
	return &Recording{sessionNames: map[string]string{}, openRequests: map[requestKey]trace.Record{}}
}

type recordingKey struct{}

// WithRecording returns a ctx with which r records.
func WithRecording(ctx context.Context, r *Recording) context.Context {
	return context.WithValue(ctx, recordingKey{}, r)
}

// RecordingOf returns the Recording of a ctx; nil: there is none.
func RecordingOf(ctx context.Context) *Recording {
	r, _ := ctx.Value(recordingKey{}).(*Recording)
	return r
}

// HideHeader has FormatTrace take out the values of a header.
func (r *Recording) HideHeader(name string) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hiddenHeaders = append(r.hiddenHeaders, name)
	}
}

// NewSession returns the name of a new session, which has no id; "" of a nil Recording.
func (r *Recording) NewSession() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nextSessionName()
}

func (r *Recording) nextSessionName() string {
	r.sessionCount++
	return "s" + strconv.Itoa(r.sessionCount)
}

// SessionName returns the name of the session with an id, which is never shown. "": id is "", there are too many sessions, or the
// Recording is nil.
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

// RecordMessage records a message, or what should be one, to the server (trace.ToServer) or from it.
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

// RecordHTTPExchange records an HTTP request with the status and headers of its reply, or with why there was none. The messages
// in both bodies are recorded by RecordMessage.
func (r *Recording) RecordHTTPExchange(session string, began time.Time, x trace.Exchange) {
	if r != nil {
		r.addRecord(trace.Record{Kind: trace.HTTP, Time: began, Session: session, Transport: "http", Hop: trace.Upstream, HTTP: &x})
	}
}

// RecordProcessEvent records what a process has done.
func (r *Recording) RecordProcessEvent(session string, e trace.Event) {
	if r != nil {
		r.addRecord(trace.Record{Kind: trace.Process, Session: session, Transport: "stdio", Event: &e})
	}
}

// addRecord adds a record with its Seq, and gives a response what is known of its request. The oldest records make room.
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
// that a trace never has. server is the name of the server in the trace.
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
