package probe

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// An Event of an event stream.
type Event struct {
	Name, ID string
	HasID    bool
	Data     []byte // nil: it had none
}

// What can be odd about an event stream. All but OddCR lose messages.
const (
	OddBlank = "the last event is not ended by a blank line"
	OddField = "a field has a name that the standard does not know"
	OddLine  = "JSON stands in lines that do not begin with \"data:\""
	OddJSON  = "the data of an event is not a message"
	OddUTF8  = "the data of an event is not UTF-8"
	OddName  = "a message has another event name than \"message\""
	OddCR    = "lines end in CR alone"
)

// A lexer reads an event stream as the standard says, and notes what breaks its rules.
type lexer struct {
	rest      []byte // what is no whole line yet
	searched  int    // how much of rest has no line end in it
	lf        bool   // an LF that comes next belongs to the CR before it
	cur       Event
	begun     bool // cur has a field that counts
	pastFirst bool // there was a line
	ready     []Event
	size      int
	others    int // comments and retry fields: signs of life
	faults    []Fault
}

// A Fault is what breaks the rules of event streams.
type Fault struct {
	Kind string // one of the constants
	Line string // where
}

func (l *lexer) addFault(what, line string) {
	if len(l.faults) < 5 {
		l.faults = append(l.faults, Fault{what, line})
	}
}

// event returns the next event that is complete.
func (l *lexer) event() (Event, bool) {
	if len(l.ready) == 0 {
		return Event{}, false
	}
	e := l.ready[0]
	l.ready = l.ready[1:]
	return e, true
}

// feed takes the next bytes of the stream.
func (l *lexer) feed(b []byte) {
	l.size += len(b)
	l.rest = append(l.rest, b...)
	for {
		if l.lf && len(l.rest) > 0 {
			if l.lf = false; l.rest[0] == '\n' {
				l.rest = l.rest[1:]
			} else {
				l.addFault(OddCR, string(l.rest[:min(len(l.rest), 1000)]))
			}
		}
		i := bytes.IndexAny(l.rest[l.searched:], "\r\n")
		if i < 0 {
			l.searched = len(l.rest)
			return
		}
		i += l.searched
		l.searched, l.lf = 0, l.rest[i] == '\r'
		line := l.rest[:i]
		l.rest = l.rest[i+1:]
		l.line(line)
	}
}

// end says that the stream is over.
func (l *lexer) end() {
	if len(l.rest) > 0 {
		l.line(l.rest)
		l.rest = nil
	}
	if l.cur.Data != nil {
		l.addFault(OddBlank, "data: "+string(l.cur.Data))
	}
}

func (l *lexer) line(line []byte) {
	if !l.pastFirst {
		l.pastFirst, line = true, bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		if l.begun {
			if !utf8.Valid(l.cur.Data) {
				l.addFault(OddUTF8, string(l.cur.Data))
			}
			l.ready = append(l.ready, l.cur)
		}
		l.cur, l.begun = Event{}, false
		return
	}
	name, value, colon := strings.Cut(string(line), ":")
	value = strings.TrimPrefix(value, " ")
	switch {
	case name == "data":
		if l.cur.Data != nil {
			l.cur.Data = append(l.cur.Data, '\n')
		} else {
			l.cur.Data = []byte{}
		}
		l.cur.Data, l.begun = append(l.cur.Data, value...), true
	case name == "event":
		l.cur.Name = value
	case name == "id" && strings.ContainsRune(value, 0):
	case name == "id":
		l.cur.ID, l.cur.HasID, l.begun = value, true, true
	case name == "retry", name == "" && colon:
		l.others++
	case strings.ContainsAny(name[:1], `{}[]"`):
		l.addFault(OddLine, string(line))
	default:
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "data", "event", "id":
			l.addFault(OddField, string(line))
		}
	}
}
