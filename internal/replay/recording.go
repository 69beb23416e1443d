package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// DefaultMaxBytes is how large a conversation may be at most for Load to take it, in bytes: the default of
// LoadOptions.MaxBytes.
const DefaultMaxBytes = 512 << 20

// messageOverhead is about how many bytes of memory a recordedMessage needs besides the text of the message.
const messageOverhead = 1 << 10

// maxReportedFaults is how many faults Recording.Faults lists; "and more" stands for others.
const maxReportedFaults = 10

// ErrRedacted says that secrets were taken out of messages of a recording, so that they cannot be replayed as they were.
var ErrRedacted = errors.New("the recording is redacted")

// LoadOptions say what Load takes of a trace. The zero value works.
type LoadOptions struct {
	Session       string // pseudonym in the trace of the session to load; "": that of the first message at the hop, or all requests without a session if that message is of one
	Hop           string // where the messages passed: trace.Downstream or trace.Upstream; "": Downstream
	AllowRedacted bool   // messages from which something was taken out are loaded, too; otherwise Load returns ErrRedacted for one
	MaxBytes      int    // how large the conversation may be, in bytes; 0: DefaultMaxBytes
}

// Recording is a conversation of one client with one server, as it has passed one hop. It
// does not change any more and may be used concurrently. The requests of a client of
// 2026-07-28 over HTTP, which have no session, are one conversation.
type Recording struct {
	Server  string // the configured name of the server
	Session string // pseudonym of the session; "": it is all requests without a session
	Era     string // "legacy", "modern"; "": the trace does not say it

	// Faults say what could not be read of the trace, and what is missing in it. They can be printed.
	Faults []string

	messages []*recordedMessage // the messages of both sides, in causal order
}

// recordedMessage is one message of a Recording.
type recordedMessage struct {
	line       int             // number of its line in the trace; of a cancellation that withCancellations has added, the line of the message before
	time       time.Time       // when it passed
	seq        uint64          // number of its record in the trace, as trace.Record.Seq
	session    string          // the bridge's name of its session, as trace.Record.Session
	fromClient bool            // the client has sent it; otherwise the server
	m          jsonrpc.Message // the message itself

	// request is the request that a response answers, or that a notification of progress or a cancellation is about. nil: it is not
	// known, or this is another message.
	request *recordedMessage

	answer    *recordedMessage // of a request: its response; nil: there is none
	cancelled bool             // of a request: its sender has cancelled it
}

// method returns the method of the message; of a response, that of its request; "": not known.
func (i *recordedMessage) method() string {
	if i.m.Kind() == jsonrpc.Response && i.request != nil {
		return i.request.m.Method()
	}
	return i.m.Method()
}

// Load reads a trace from r and returns the one conversation in it that o chooses.
func Load(r io.Reader, o LoadOptions) (*Recording, error) {
	l := &loader{LoadOptions: o, recording: &Recording{Session: o.Session}}
	l.Hop = cmp.Or(l.Hop, trace.Downstream)
	l.MaxBytes = cmp.Or(l.MaxBytes, DefaultMaxBytes)
	in := trace.NewReader(r)
	for record, err := range in.Records() {
		if err == nil {
			l.records++
			err = l.addRecord(&record, in.Line())
		} else {
			err = l.addFault(err)
		}
		if err != nil {
			return nil, err
		}
	}
	return l.finish()
}

// loader collects the messages of the conversation that Load returns.
type loader struct {
	LoadOptions
	recording       *Recording // what Load returns: the messages so far, in the order of the trace
	records         int        // how many lines so far are records
	foreignLines    int        // how many lines so far are no records (trace.ErrNotRecord)
	bytes           int        // size of the conversation so far, as MaxBytes bounds it
	isSessionChosen bool       // the first message of the conversation has come, so its session and server are known
	isSessionless   bool       // the conversation is all requests without a session
	sessions        []string   // pseudonyms of other sessions with messages at the hop, the first few
}

// addFault notes the error with which the trace.Reader has read a line. It returns an error if Load cannot go on.
func (l *loader) addFault(err error) error {
	line, ok := errors.AsType[*trace.LineError](err)
	switch {
	case !ok, errors.Is(err, trace.ErrVersion):
		return err
	case errors.Is(err, trace.ErrNotRecord):
		if l.foreignLines++; l.foreignLines > 100 && l.records == 0 {
			return fmt.Errorf("this is no recording: %w", err)
		}
	}
	l.noteFault(line.Error())
	return nil
}

// noteFault adds a text to Recording.Faults, unless there are maxReportedFaults.
func (l *loader) noteFault(text string) {
	switch n := len(l.recording.Faults); {
	case n < maxReportedFaults:
		l.recording.Faults = append(l.recording.Faults, printable.Text(text))
	case n == maxReportedFaults:
		l.recording.Faults = append(l.recording.Faults, "and more")
	}
}

// addRecord takes the next record, and keeps it if it is a message of the conversation. If records are missing, or the message is a
// request from before the recording or cannot be parsed, it notes that as a fault and keeps nothing. line is the line of the file that
// has the record. The error says why the conversation cannot be replayed: Load returns it.
func (l *loader) addRecord(r *trace.Record, line int) error {
	if r.Kind == trace.Gap {
		l.noteFault(fmt.Sprintf("line %d: %s missing here", line, printable.Count(r.Lost, "record is", "records are")))
		return nil
	}
	if !r.Kind.IsMessage() || r.Hop != l.Hop || r.Dir != trace.ToServer && r.Dir != trace.ToClient || !l.belongs(r) {
		return nil
	}
	switch {
	case r.Earlier:
		l.noteFault(fmt.Sprintf("line %d: a request that came before the recording began", line))
		return nil
	case r.Body.OmittedBytes > 0 || r.Body.Text == nil:
		return fmt.Errorf("line %d: not all of this message is in the file; mcp-bridge record keeps whole messages", line)
	case !l.AllowRedacted && isRedacted(r.Redacted):
		return fmt.Errorf("line %d: %w: %s was taken out", line, ErrRedacted, escapeAndShorten(strings.Join(r.Redacted, ", ")))
	}
	if l.bytes += len(r.Body.Text) + messageOverhead; l.bytes > l.MaxBytes {
		return fmt.Errorf("line %d: the conversation has more than %d bytes", line, l.MaxBytes)
	}
	m, err := jsonrpc.ParseDepth(r.Body.Text, jsonrpc.DefaultMaxDepth)
	if err != nil {
		l.noteFault(fmt.Sprintf("line %d: this is no message: %v", line, err))
		return nil
	}
	l.recording.messages = append(l.recording.messages, &recordedMessage{
		line: line, time: r.Time, seq: r.Seq, session: r.Session, fromClient: r.Dir == trace.ToServer, m: m,
	})
	l.recording.Era = cmp.Or(l.recording.Era, r.Era)
	return nil
}

// belongs reports whether a message is one of the conversation. The conversation is of the session and server of the first
// message that comes: of the wanted session, or of any if none is wanted.
func (l *loader) belongs(r *trace.Record) bool {
	if !l.isSessionChosen && (l.Session == "" || l.Session == r.Session) {
		l.isSessionChosen = true
		l.recording.Session, l.recording.Server = r.Session, r.Server
		if l.Session == "" && isWithoutSession(r) {
			l.recording.Session, l.isSessionless = "", true
		}
	}
	ours := l.isSessionChosen && r.Server == l.recording.Server && r.Session == l.recording.Session
	if l.isSessionless {
		ours = r.Server == l.recording.Server && isWithoutSession(r)
	}
	if !ours && len(l.sessions) < 20 && !slices.Contains(l.sessions, r.Session) {
		l.sessions = append(l.sessions, r.Session)
	}
	return ours
}

// isWithoutSession reports whether a message belongs to a request of 2026-07-28 over HTTP, which has no session.
func isWithoutSession(r *trace.Record) bool {
	return r.Era == "modern" && r.Transport != "" && strings.HasPrefix(r.Session, "q")
}

// isRedacted reports whether one of paths (trace.Record.Redacted) tells of something taken out that a replay needs. It needs no
// HTTP headers, and no requestState, which is never written into a trace.
func isRedacted(paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return !strings.HasPrefix(p, "http.") && p != "params.requestState" && p != "result.requestState"
	})
}

// finish returns the Recording once all records were added, or why there is none.
func (l *loader) finish() (*Recording, error) {
	others := ""
	if len(l.sessions) > 0 {
		others = "; others have: " + escapeAndShorten(strings.Join(l.sessions, ", "))
	}
	switch {
	case l.records == 0 && l.foreignLines > 0:
		return nil, errors.New("this is no recording of mcp-bridge")
	case l.records == 0:
		return nil, errors.New("the recording is empty")
	case len(l.recording.messages) == 0 && l.Session != "":
		return nil, fmt.Errorf("the session %q has no messages at the hop %q%s", l.Session, l.Hop, others)
	case len(l.recording.messages) == 0:
		return nil, fmt.Errorf("the recording has no messages at the hop %q", l.Hop)
	}
	slices.SortStableFunc(l.recording.messages, func(a, b *recordedMessage) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), a.time.Compare(b.time))
	})
	l.link()
	if len(l.recording.messages) == 0 {
		return nil, errors.New("the recording has nothing but pings")
	}
	if l.recording.Era == "" && slices.ContainsFunc(l.recording.messages, func(i *recordedMessage) bool { return i.fromClient && era.IsModernMessage(i.m) }) {
		l.recording.Era = "modern" // at the other hop the trace does not say it
	}
	return l.recording, nil
}

// side is one of the two peers, client or server, of a session: a map key.
type side struct {
	session    string // trace.Record.Session
	fromClient bool   // it is the client; otherwise the server
}

// side returns the side that has sent the message.
func (i *recordedMessage) side() side { return side{i.session, i.fromClient} }

// other returns the side to which the message was sent.
func (i *recordedMessage) other() side { return side{i.session, !i.fromClient} }

// openRequests are the requests that one side has sent.
type openRequests struct {
	byID    map[jsonrpc.ID]*recordedMessage // the requests that have no answer so far, by id
	byToken map[jsonrpc.ID]*recordedMessage // the requests with a progress token, answered or not, by token
}

// linker goes through the messages of a recording, and finds out which request each is about.
type linker struct {
	sides        map[side]*openRequests                   // the requests that each side has sent so far
	earlyAnswers map[side]map[jsonrpc.ID]*recordedMessage // by the side to which they were sent, and by id: responses whose requests have not come so far
	messages     []*recordedMessage                       // the messages so far, in causal order, without earlyAnswers
}

// maxEarlyAnswer is how much earlier than its request a response may have passed for linker to join the two: both were recorded
// at the same time.
const maxEarlyAnswer = time.Millisecond

// link puts the messages into causal order, and sets request, answer and cancelled of all. It takes out pings and their answers,
// because when those are sent depends on the time alone, answers to no request, and what linker.add leaves out. Without a session
// it adds cancellations.
func (l *loader) link() {
	k := &linker{sides: map[side]*openRequests{}, earlyAnswers: map[side]map[jsonrpc.ID]*recordedMessage{}}
	for _, i := range l.recording.messages {
		k.add(i)
	}
	for _, orphans := range k.earlyAnswers {
		for _, i := range orphans {
			l.noteFault(fmt.Sprintf("line %d: this answers no request of the recording", i.line))
		}
	}
	l.recording.messages = slices.DeleteFunc(k.messages, func(i *recordedMessage) bool { return i.method() == "ping" })
	if l.isSessionless {
		l.recording.messages = withCancellations(l.recording.messages)
	}
}

// withCancellations returns items, the messages of requests without a session, and adds a cancellation for each request without
// an answer, behind the last message about that request: over HTTP such a client cancels by hanging up.
func withCancellations(items []*recordedMessage) (all []*recordedMessage) {
	last := map[string]*recordedMessage{} // by session, of which each has one request
	for _, i := range items {
		last[i.session] = i
	}
	left := map[string]*recordedMessage{}
	for _, i := range items {
		all = append(all, i)
		if i.fromClient && i.m.Kind() == jsonrpc.Request && i.answer == nil && !i.cancelled && i.m.Method() != "subscriptions/listen" {
			left[i.session] = i
		}
		if request := left[i.session]; request != nil && last[i.session] == i {
			request.cancelled = true
			m := jsonrpc.NewNotification("notifications/cancelled", fmt.Appendf(nil, `{"requestId":%s}`, request.m.ID()))
			all = append(all, &recordedMessage{line: i.line, time: i.time, seq: i.seq, session: i.session, fromClient: true, m: m, request: request})
		}
	}
	return all
}

// sideOf returns the requests that s has sent so far.
func (k *linker) sideOf(s side) *openRequests {
	if k.sides[s] == nil {
		k.sides[s] = &openRequests{map[jsonrpc.ID]*recordedMessage{}, map[jsonrpc.ID]*recordedMessage{}}
	}
	return k.sides[s]
}

// add adds the next message to messages, and links it to the request that it is about. A response without a request waits in
// earlyAnswers. What the server says about a request after the client has cancelled it is left out: it was on its way when the
// server learnt of that, so another run may have more of it, or less.
func (k *linker) add(i *recordedMessage) {
	switch own, other := k.sideOf(i.side()), k.sideOf(i.other()); i.m.Kind() {
	case jsonrpc.Request:
		k.messages = append(k.messages, i)
		own.byID[i.m.ID()] = i
		if token := i.m.ProgressToken(); !token.IsZero() {
			own.byToken[token] = i
		}
		if answer := k.earlyAnswers[i.side()][i.m.ID()]; answer != nil && i.time.Sub(answer.time) <= maxEarlyAnswer {
			delete(k.earlyAnswers[i.side()], i.m.ID())
			k.add(answer)
		}
		return
	case jsonrpc.Response:
		if i.request = other.takeAnswered(i.m.ID()); i.request == nil {
			if k.earlyAnswers[i.other()] == nil {
				k.earlyAnswers[i.other()] = map[jsonrpc.ID]*recordedMessage{}
			}
			k.earlyAnswers[i.other()][i.m.ID()] = i
			return
		}
		if isLate(i) {
			return
		}
		i.request.answer = i
	case jsonrpc.Notification:
		switch i.m.Method() {
		case "notifications/progress":
			if i.request = other.byToken[i.m.ProgressToken()]; isLate(i) {
				return
			}
		case "notifications/cancelled":
			if i.request = own.byID[i.m.CancelledID()]; i.request != nil {
				i.request.cancelled = true
			}
		}
	}
	k.messages = append(k.messages, i)
}

// isLate reports whether i, a response or progress whose request is set, is the server's and about a request that was cancelled
// before.
func isLate(i *recordedMessage) bool {
	return !i.fromClient && i.request != nil && i.request.cancelled
}

// takeAnswered takes the request with an id, which was answered, out of byID and returns it; nil: there is none.
func (o *openRequests) takeAnswered(id jsonrpc.ID) *recordedMessage {
	request := o.byID[id]
	if request == nil && len(o.byID) < 1000 { // a peer may spell an id otherwise
		id, request, _ = jsonrpc.Find(o.byID, id)
	}
	delete(o.byID, id)
	return request
}
