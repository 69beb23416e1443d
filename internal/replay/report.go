package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxReportedChanges is how many texts Difference.Changes has at most; "and more" stands for others.
const maxReportedChanges = 50

// Report says how the server's messages in a run of Play differ from the recording.
type Report struct {
	Sent     int // how many messages of the client were sent
	Compared int // how many messages of the server were compared with recorded ones

	// Differences are the messages of the server that differ, are missing or are new, in the order of the recording. If the server has
	// ended before all messages of the client were sent, one more says that.
	Differences []Difference

	// Unanswered are the requests of the server that the recording has no answer to.
	Unanswered []Difference
}

// A Difference says how one message of the server, such as the answer to a request of the client, differs from the recording; or that
// the server has ended too early. Its texts can be printed.
type Difference struct {
	// Line is the line in the trace of the recorded message. Of a new message it is that of the client's message after which it came;
	// of an answer to no request, and of the server's end, that of the last message that the client has sent. 0: there was none.
	Line    int
	Message string   // the method, and the name or URI, of the message or of the request that it answers; else what it is, in words
	Summary string   // what differs, such as "is not answered"; "": Changes say it
	Changes []string // a text for each place in the message that differs
}

// Ignored says which differences do not count. The zero value ignores none.
type Ignored []ignoreRule

// ignoreRule says which differences do not count: those at path or below it, in messages of a method and answers to it.
type ignoreRule struct {
	method string   // "": of any method
	path   []string // keys and indexes as of path.elements, "*" and "[*]" for any; nil: all of the message
}

// Ignore reads what --ignore takes: a PATH as it stands in the report, such as
// result.content[0].text, where * stands for any one member or element; METHOD:PATH; or a
// METHOD with a slash.
func Ignore(patterns []string) (Ignored, error) {
	var all Ignored
	for _, text := range patterns {
		var one ignoreRule
		rest := text
		if method, path, ok := strings.Cut(text, ":"); ok && strings.Contains(method, "/") || ok && method == "initialize" {
			one.method, rest = method, path
		} else if strings.Contains(text, "/") && !strings.ContainsAny(text, ".[") {
			all = append(all, ignoreRule{method: text})
			continue
		}
		var err error
		if one.path, err = parsePath(rest); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// parsePath returns the keys and indexes in text, which is as pathText writes them, or has * in place of some.
func parsePath(text string) (all []string, err error) {
	for rest := text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, `["`):
			end := strings.Index(rest, `"]`)
			key, ok := "", false
			if end > 0 {
				key, ok = jsonrpc.Text([]byte(rest[1 : end+1]))
			}
			if !ok {
				return nil, fmt.Errorf(`write ["key"] with a closing quote and bracket`)
			}
			all, rest = append(all, key), rest[end+2:]
		case rest[0] == '[':
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				return nil, fmt.Errorf("a bracket is not closed")
			}
			all, rest = append(all, rest[:end+1]), rest[end+1:]
		default:
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 {
				return nil, fmt.Errorf("a name is missing")
			}
			all, rest = append(all, rest[:end]), rest[end:]
		}
		if strings.HasPrefix(rest, ".") {
			if rest = rest[1:]; rest == "" {
				return nil, fmt.Errorf("a name is missing")
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("write a path such as result.content[0].text")
	}
	return all, nil
}

// ignores reports whether a difference at a path does not count, in a message of a method or the answer to it. path nil: the
// whole message is new or missing.
func (g Ignored) ignores(method string, path []string) bool {
	return slices.ContainsFunc(g, func(i ignoreRule) bool {
		if i.method != "" && i.method != method || len(i.path) > len(path) {
			return false
		}
		for n, want := range i.path {
			if want != path[n] && want != "*" && want != "[*]" {
				return false
			}
			if want == "[*]" && path[n][0] != '[' {
				return false
			}
		}
		return true
	})
}

// report compares what has come with the recording. It is called once Conn.Receive has returned. The error is that of
// checkUsable.
func (p *player) report() (*Report, error) {
	r := &Report{Sent: p.sentCount}
	if err := p.checkUsable(); err != nil {
		return nil, err
	}
	for _, i := range p.recording.messages {
		if i.fromClient && i.m.Kind() == jsonrpc.Request {
			p.compareAnswer(r, i)
		}
	}
	for g, a := range p.groups {
		p.compareGroup(r, g, a)
	}
	for _, q := range p.unansweredArrivals {
		r.Unanswered = append(r.Unanswered, Difference{Line: q.afterLine, Message: describeMessage(&q.m), Summary: "the recording has no answer to this request of the server: " + showValue(paramsOf(&q.m))})
	}
	for _, text := range p.strayResponses {
		r.Differences = append(r.Differences, Difference{Line: p.lastLine, Message: text, Summary: "is new"})
	}
	if p.unsentCount > 0 {
		r.Differences = append(r.Differences, Difference{Line: p.lastLine, Message: "the server", Summary: fmt.Sprintf("has ended (%s), so %s not sent", printable.Text(p.receiveErr.Error()), printable.Count(p.unsentCount, "message was", "messages were"))})
	}
	byLine := func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), strings.Compare(a.Message, b.Message))
	}
	slices.SortStableFunc(r.Differences, byLine)
	slices.SortStableFunc(r.Unanswered, byLine)
	return r, nil
}

// checkUsable returns an error that wraps ErrNoServer if the server has answered nothing but errors, where the recording has
// results.
func (p *player) checkUsable() error {
	var failed jsonrpc.Message
	for _, i := range p.recording.messages {
		c := p.callsByRequest[i]
		switch {
		case c == nil || i.answer == nil || i.answer.m.IsError():
			continue
		case c.answer.Kind() == jsonrpc.Response && !c.answer.IsError():
			return nil
		case c.answer.IsError() && !failed.IsError():
			failed = c.answer
		}
	}
	if failed.IsError() {
		text, _ := jsonrpc.Text(failed.Lookup("error", "message"))
		return fmt.Errorf("%w: %s", ErrNoServer, printable.Text(text))
	}
	return nil
}

// compareAnswer compares the answer to i, a request of the client, with the recorded answer, and adds a difference to r if they
// differ, or if there is only one of the two. An answer that only this run has does not count if i was cancelled in the recording.
func (p *player) compareAnswer(r *Report, i *recordedMessage) {
	c, name := p.callsByRequest[i], describeMessage(&i.m)
	d := Difference{Line: i.line, Message: name}
	switch {
	case c == nil: // was not sent
		return
	case i.answer == nil && c.answer.Kind() == jsonrpc.Invalid:
		return
	case i.answer == nil && i.cancelled: // the answer was faster
		return
	case i.answer == nil:
		d.Summary = "is answered now: " + showValue(answerOf(&c.answer))
	case c.answer.Kind() == jsonrpc.Invalid:
		d.Summary = "is not answered"
		if c.missed {
			d.Summary += fmt.Sprintf(", for %v longer than in the recording", p.Wait)
		}
	default:
		r.Compared++
		if bytes.Equal(i.answer.m.Result(), c.answer.Result()) && !c.answer.IsError() && !i.answer.m.IsError() {
			return
		}
		was, is := answerOf(&i.answer.m), answerOf(&c.answer)
		alignOpaque(was, is)
		d.Changes = p.changeTexts(i.m.Method(), "", was, is)
	}
	if d.Summary != "" && !p.Ignore.ignores(i.m.Method(), nil) || len(d.Changes) > 0 {
		r.Differences = append(r.Differences, d)
	}
}

// changeTexts returns descriptions of the differences between two values, without those that are ignored. top is the key in the
// message whose values they are; "": they are the message.
func (p *player) changeTexts(method, top string, want, got any) (all []string) {
	at := &path{}
	if top != "" {
		at = &path{parent: at, key: top}
	}
	findChanges(at, want, got, func(c change) bool {
		if p.Ignore.ignores(method, c.path) {
			return true
		}
		if len(all) == maxReportedChanges {
			all = append(all, "and more")
			return false
		}
		all = append(all, c.String())
		return true
	})
	return all
}

// String describes the change, such as "result.x: 1 became 2", to be printed.
func (c change) String() string {
	where := pathText(c.path)
	switch {
	case !c.hasNew:
		return where + " is gone: " + showValue(c.oldValue)
	case !c.hasOld:
		return where + " is new: " + showValue(c.newValue)
	}
	return where + ": " + showValue(c.oldValue) + " became " + showValue(c.newValue)
}

// compareGroup compares the requests or notifications of a group with the recorded ones, and adds the differences to r: first
// it pairs equal ones, then the rest in order. More progress than in the recording does not count if its request was cancelled
// there: it was faster than the cancellation.
func (p *player) compareGroup(r *Report, g messageGroup, a *arrivals) {
	method := g.method
	arrived := slices.DeleteFunc(slices.Clone(a.arrived), func(q *arrival) bool { return q.hasNoAnswer })
	var missing []*recordedMessage // those for which nothing equal has come
	for _, i := range a.recorded {
		key := matchKey(&i.m)
		own := func(q *arrival) bool { return q.key == key && (q.recorded == nil || q.recorded == i) }
		if n := slices.IndexFunc(arrived, own); n >= 0 {
			arrived = slices.Delete(arrived, n, n+1)
			r.Compared++
			continue
		}
		missing = append(missing, i)
	}
	for n, i := range missing {
		d := Difference{Line: i.line, Message: describeMessage(&i.m)}
		if n < len(arrived) {
			r.Compared++
			d.Changes = p.changeTexts(method, "params", paramsOf(&i.m), paramsOf(&arrived[n].m))
		} else if !p.Ignore.ignores(method, nil) {
			d.Summary = "has not come"
		}
		if d.Summary != "" || len(d.Changes) > 0 {
			r.Differences = append(r.Differences, d)
		}
	}
	if g.progressOf != nil && g.progressOf.cancelled {
		return
	}
	if len(arrived) > len(missing) && !p.Ignore.ignores(method, nil) {
		for _, q := range arrived[len(missing):] {
			r.Differences = append(r.Differences, Difference{Line: q.afterLine, Message: describeMessage(&q.m), Summary: "is new: " + showValue(paramsOf(&q.m))})
		}
	}
}

// describeMessage returns the method of a message and what it is about, to be printed.
func describeMessage(m *jsonrpc.Message) string {
	name := escapeAndShorten(m.Method())
	for _, key := range []string{"name", "uri"} {
		if text, ok := jsonrpc.Text(m.Lookup("params", key)); ok {
			return name + " " + escapeAndShorten(text)
		}
	}
	return name
}

// Write prints the report: a line for each difference, lines for its changes, and a line that counts.
func (r *Report) Write(w io.Writer) error {
	var b bytes.Buffer
	write := func(d *Difference) {
		fmt.Fprintf(&b, "line %d: %s", d.Line, d.Message)
		if d.Summary != "" {
			fmt.Fprintf(&b, " %s", d.Summary)
		}
		b.WriteByte('\n')
		for _, c := range d.Changes {
			fmt.Fprintf(&b, "  %s\n", c)
		}
	}
	for _, d := range r.Unanswered {
		write(&d)
	}
	for _, d := range r.Differences {
		write(&d)
	}
	result := "no difference"
	if n := len(r.Differences); n > 0 {
		result = printable.Count(n, "message differs", "messages differ")
	}
	fmt.Fprintf(&b, "%s sent, %d compared: %s\n", printable.Count(r.Sent, "message", "messages"), r.Compared, result)
	_, err := w.Write(b.Bytes())
	return err
}

// methods returns the methods of the client's requests, each once, sorted.
func (r *Recording) methods() []string {
	all := map[string]bool{}
	for _, i := range r.messages {
		if i.fromClient && i.m.Kind() == jsonrpc.Request {
			all[i.m.Method()] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
