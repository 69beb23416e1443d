package probe

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// An Event is one event of an event stream (text/event-stream).
type Event struct {
	Name  string // the field event; "": it has none
	ID    string // the field id
	HasID bool   // it has the field id, whose value may be ""
	Data  []byte // the fields data, joined by line feeds; nil: it has none
}

// The values of StreamFault.Kind. All but FaultLoneCR lose messages.
const (
	// FaultNoFinalBlankLine says that the stream ends inside of an event, which is lost.
	FaultNoFinalBlankLine = "the last event is not ended by a blank line"
	// FaultUnknownField says that the name of a field is "data", "event" or "id" in capitals or with spaces: the line is lost.
	FaultUnknownField = "a field has a name that the standard does not know"
	// FaultJSONOutsideData says that a line begins with JSON, and not with "data:": the line is lost.
	FaultJSONOutsideData = "JSON stands in lines that do not begin with \"data:\""
	// FaultDataNotMessage says that the data of an event, which has the name for messages, is no JSON, or JSON that is no message, such as an array.
	FaultDataNotMessage = "the data of an event is not a message"
	// FaultDataNotUTF8 says that the data of an event has bytes that are not UTF-8.
	FaultDataNotUTF8 = "the data of an event is not UTF-8"
	// FaultEventName says that an event with a message has another name than "message".
	FaultEventName = "a message has another event name than \"message\""
	// FaultLoneCR says that a line ends in CR without LF, which the standard allows and some clients do not know.
	FaultLoneCR = "lines end in CR alone"
)

// A streamLexer splits an event stream into events, as the standard says, and notes what breaks its rules.
type streamLexer struct {
	partialLine     []byte        // what has come of a line whose end has not
	searchedBytes   int           // how many bytes of partialLine are known to have no line end
	skipsNextLF     bool          // the last line ended in CR: an LF that comes next belongs to that
	currentEvent    Event         // the event that is not complete
	hasDataOrID     bool          // currentEvent has the field data or id, so it counts as an event
	isPastFirstLine bool          // the first line, which may begin with a byte order mark, was read
	completeEvents  []Event       // the complete events that nextEvent has not returned yet
	totalBytes      int           // how many bytes of the stream have come so far
	lifeSigns       int           // how many comments and retry fields have come: they show that the stream is alive
	faults          []StreamFault // the first five faults
}

// A StreamFault is something in an event stream that breaks its rules.
type StreamFault struct {
	Kind string // what is wrong: one of the constants Fault...
	Line string // the line or data that has the fault; with FaultLoneCR, the beginning of what comes after the CR
}

// addFault notes a fault of the kind what, seen in line, unless there are five already.
func (l *streamLexer) addFault(what, line string) {
	if len(l.faults) < 5 {
		l.faults = append(l.faults, StreamFault{what, line})
	}
}

// nextEvent returns the next complete event that it has not returned; false: there is none yet.
func (l *streamLexer) nextEvent() (Event, bool) {
	if len(l.completeEvents) == 0 {
		return Event{}, false
	}
	e := l.completeEvents[0]
	l.completeEvents = l.completeEvents[1:]
	return e, true
}

// feed takes the next bytes of the stream.
func (l *streamLexer) feed(b []byte) {
	l.totalBytes += len(b)
	l.partialLine = append(l.partialLine, b...)
	for {
		if l.skipsNextLF && len(l.partialLine) > 0 {
			if l.skipsNextLF = false; l.partialLine[0] == '\n' {
				l.partialLine = l.partialLine[1:]
			} else {
				l.addFault(FaultLoneCR, string(l.partialLine[:min(len(l.partialLine), 1000)]))
			}
		}
		i := bytes.IndexAny(l.partialLine[l.searchedBytes:], "\r\n")
		if i < 0 {
			l.searchedBytes = len(l.partialLine)
			return
		}
		i += l.searchedBytes
		l.searchedBytes, l.skipsNextLF = 0, l.partialLine[i] == '\r'
		line := l.partialLine[:i]
		l.partialLine = l.partialLine[i+1:]
		l.readLine(line)
	}
}

// finish takes the end of the stream: what is left is a line, and an event that has data and is not complete is a fault.
func (l *streamLexer) finish() {
	if len(l.partialLine) > 0 {
		l.readLine(l.partialLine)
		l.partialLine = nil
	}
	if l.currentEvent.Data != nil {
		l.addFault(FaultNoFinalBlankLine, "data: "+string(l.currentEvent.Data))
	}
}

// readLine takes a line without its end: a field of the current event, a comment, or, if it is blank, the end of the event.
func (l *streamLexer) readLine(line []byte) {
	if !l.isPastFirstLine {
		l.isPastFirstLine, line = true, bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		if l.hasDataOrID {
			if !utf8.Valid(l.currentEvent.Data) {
				l.addFault(FaultDataNotUTF8, string(l.currentEvent.Data))
			}
			l.completeEvents = append(l.completeEvents, l.currentEvent)
		}
		l.currentEvent, l.hasDataOrID = Event{}, false
		return
	}
	name, value, colon := strings.Cut(string(line), ":")
	value = strings.TrimPrefix(value, " ")
	switch {
	case name == "data":
		if l.currentEvent.Data != nil {
			l.currentEvent.Data = append(l.currentEvent.Data, '\n')
		} else {
			l.currentEvent.Data = []byte{}
		}
		l.currentEvent.Data, l.hasDataOrID = append(l.currentEvent.Data, value...), true
	case name == "event":
		l.currentEvent.Name = value
	case name == "id" && strings.ContainsRune(value, 0):
	case name == "id":
		l.currentEvent.ID, l.currentEvent.HasID, l.hasDataOrID = value, true, true
	case name == "retry", name == "" && colon:
		l.lifeSigns++
	case strings.ContainsAny(name[:1], `{}[]"`):
		l.addFault(FaultJSONOutsideData, string(line))
	default:
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "data", "event", "id":
			l.addFault(FaultUnknownField, string(line))
		}
	}
}
