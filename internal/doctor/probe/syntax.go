package probe

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// An Event is one of an event stream.
type Event struct {
	Name, ID string
	HasID    bool   // it has the field id, whose value may be ""
	Data     []byte // nil: it had none
}

// What can be odd about an event stream. All but FaultLoneCR lose messages.
const (
	FaultNoFinalBlankLine = "the last event is not ended by a blank line"
	FaultUnknownField     = "a field has a name that the standard does not know"
	FaultJSONOutsideData  = "JSON stands in lines that do not begin with \"data:\""
	FaultDataNotMessage   = "the data of an event is not a message"
	FaultDataNotUTF8      = "the data of an event is not UTF-8"
	FaultEventName        = "a message has another event name than \"message\""
	FaultLoneCR           = "lines end in CR alone"
)

// A streamLexer reads an event stream as the standard says, and notes what breaks its rules.
type streamLexer struct {
	partialLine     []byte  // what is no whole line yet
	searchedBytes   int     // how much of partialLine has no line end in it
	skipsNextLF     bool    // an LF that comes next belongs to the CR before it
	currentEvent    Event   // that is not complete
	hasDataOrID     bool    // currentEvent has a field that counts
	isPastFirstLine bool    // there was a line
	completeEvents  []Event // that nextEvent has not returned yet
	totalBytes      int     // of the stream so far
	lifeSigns       int     // comments and retry fields: signs of life
	faults          []StreamFault
}

// A StreamFault is what breaks the rules of event streams.
type StreamFault struct {
	Kind string // one of the constants
	Line string // the line or data that has the fault
}

// addFault notes a fault, unless there are enough.
func (l *streamLexer) addFault(what, line string) {
	if len(l.faults) < 5 {
		l.faults = append(l.faults, StreamFault{what, line})
	}
}

// nextEvent returns the next event that is complete; false: there is none yet.
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

// finish says that the stream is over.
func (l *streamLexer) finish() {
	if len(l.partialLine) > 0 {
		l.readLine(l.partialLine)
		l.partialLine = nil
	}
	if l.currentEvent.Data != nil {
		l.addFault(FaultNoFinalBlankLine, "data: "+string(l.currentEvent.Data))
	}
}

// readLine takes a line without its end. A blank one completes an event.
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
