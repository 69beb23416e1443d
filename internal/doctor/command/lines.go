package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A stdoutFault is something in the output of a server on stdout that should not be there.
type stdoutFault string

const (
	faultNoise     stdoutFault = "text that is no message"                 // a line that is no message
	faultCRLF      stdoutFault = "lines end in CR LF"                      // lines end in CR LF, and not in LF alone
	faultBOM       stdoutFault = "a byte order mark"                       // a byte order mark stands before a message
	faultManyLines stdoutFault = "a message of several lines"              // a message has line breaks in it
	faultUTF8      stdoutFault = "bytes that are not UTF-8"                // a message has bytes that are not UTF-8
	faultTooLong   stdoutFault = "a line longer than the limit"            // a line is longer than stdoutParser.maxLineBytes
	faultHeader    stdoutFault = "Content-Length headers"                  // a line that begins with "Content-Length:", as before messages of language servers
	faultNoEnd     stdoutFault = "a message without a line feed"           // a message at the end of the output has no line feed
	faultInFront   stdoutFault = "text before an answer, on the same line" // an answer stands at the end of a line of other text; such a line counts as faultNoise, too
)

const (
	maxShownBytes        = 100               // how many bytes of a line that is too long stand in the evidence
	maxEvidenceBytes     = 400               // how many bytes of a line that shows a fault are kept; of stderr (stderrSuffix), three quarters as many
	maxLinesPerFault     = 5                 // how many lines are kept that show the same fault
	maxSeveralLinesBytes = 1 << 20           // how long lines that may be one message may be together, in bytes
	maxParseAttempts     = 200               // how often lines that may be one message are parsed together, before they are given up
	bom                  = "\ufeff"          // U+FEFF, a byte order mark
	contentLengthPrefix  = "content-length:" // how a line begins that is a header of a language server's message, in any case
)

// stdoutParser splits what a server writes to stdout into messages and faults. It is not safe for concurrent use.
type stdoutParser struct {
	maxLineBytes int                     // how long a line may be, in bytes; 0 means no limit
	onMessage    func(m jsonrpc.Message) // is called with each message
	onTooLong    func(id jsonrpc.ID)     // is called with the id of each response whose line was too long, once its line feed has come

	currentLine []byte            // what has come of the line that has no end yet; of one that is too long, only the beginning
	lineBytes   int               // how much has come of the line that has no end yet
	idFinder    *jsonrpc.IDFinder // finds the id in the current line if that is too long; nil: it is not

	possibleMessage []byte // lines that may together be one message, with their line feeds; nil: there are none
	parseAttempts   int    // how often possibleMessage was parsed so far

	faultLines  map[stdoutFault][]string // by fault: the first lines that show it
	faultCounts map[stdoutFault]int      // by fault: how often it was seen
}

// newStdoutParser returns a stdoutParser. Its arguments are maxLineBytes, onMessage and onTooLong.
func newStdoutParser(maxLineBytes int, message func(jsonrpc.Message), tooLong func(jsonrpc.ID)) *stdoutParser {
	return &stdoutParser{maxLineBytes: maxLineBytes, onMessage: message, onTooLong: tooLong, faultLines: map[stdoutFault][]string{}, faultCounts: map[stdoutFault]int{}}
}

// write takes the next bytes of stdout, as they were read.
func (o *stdoutParser) write(b []byte) {
	for {
		before, after, found := bytes.Cut(b, []byte{'\n'})
		o.appendToLine(before)
		if !found {
			return
		}
		o.finishLine()
		b = after
	}
}

// appendToLine adds bytes, which have no line feed, to the current line.
func (o *stdoutParser) appendToLine(b []byte) {
	o.lineBytes += len(b)
	if o.maxLineBytes > 0 && o.lineBytes > o.maxLineBytes {
		if o.idFinder == nil {
			o.idFinder = new(jsonrpc.IDFinder)
			o.idFinder.Write(o.currentLine)
		}
		o.idFinder.Write(b)
		o.currentLine = append(o.currentLine, b[:min(len(b), max(0, maxShownBytes-len(o.currentLine)))]...)
		return
	}
	o.currentLine = append(o.currentLine, b...)
}

// finishLine takes the current line, which is complete, as a message, as a fault, or as part of one of several lines.
func (o *stdoutParser) finishLine() {
	line, length, finder := o.currentLine, o.lineBytes, o.idFinder
	o.currentLine, o.lineBytes, o.idFinder = nil, 0, nil
	if finder == nil {
		o.parseLine(line)
		return
	}
	o.noteFault(faultTooLong, fmt.Sprintf("%d bytes, beginning %s", length, line[:min(len(line), maxShownBytes)]))
	if id, kind := finder.Result(); kind == jsonrpc.Response {
		o.onTooLong(id)
	}
}

// acceptUnterminated takes the current line, whose line feed has not come, if it is a message. It reports whether it is.
func (o *stdoutParser) acceptUnterminated() (taken bool) {
	m, err := jsonrpc.Parse(bytes.TrimSpace(o.currentLine))
	if err != nil || o.idFinder != nil {
		return false
	}
	o.noteFault(faultNoEnd, string(o.currentLine))
	o.currentLine, o.lineBytes = nil, 0
	o.onMessage(m)
	return true
}

// finish takes the end of stdout: no more bytes come. A last line without a line feed is taken as any other, unless it is too long: then it is
// left out.
func (o *stdoutParser) finish() {
	if len(o.currentLine) > 0 && o.idFinder == nil && !o.acceptUnterminated() {
		o.finishLine()
	}
	o.flushAsNoise()
}

// noteFault counts a fault, and keeps the evidence if it is among the first few.
func (o *stdoutParser) noteFault(f stdoutFault, evidence string) {
	o.faultCounts[f]++
	if len(o.faultLines[f]) < maxLinesPerFault {
		o.faultLines[f] = append(o.faultLines[f], strings.Clone(evidence[:min(len(evidence), maxEvidenceBytes)]))
	}
}

// noteNoise notes a line that is no message as faultNoise. If a response stands at its end, it is faultInFront, too, which
// explains a server that seems to be silent; but that response does not count as an answer, because logs quote messages, too.
func (o *stdoutParser) noteNoise(line []byte) {
	o.noteFault(faultNoise, string(line))
	if jsonrpc.EndsInResponse(line) {
		o.noteFault(faultInFront, string(line))
	}
}

// parseLine takes a line, without its line feed, that is not too long: a message or not.
func (o *stdoutParser) parseLine(line []byte) {
	if text, found := bytes.CutPrefix(line, []byte(bom)); found {
		o.noteFault(faultBOM, fmt.Sprintf("EF BB BF %s", text))
		line = text
	}
	text := bytes.TrimSuffix(line, []byte{'\r'})
	messages, ok := parseMessages(text)
	if !ok && !utf8.Valid(text) {
		if messages, ok = parseMessages(bytes.ToValidUTF8(text, []byte("?"))); ok {
			o.noteFault(faultUTF8, aroundInvalid(text))
		}
	}
	if !ok {
		o.handleNonMessage(line, text)
		return
	}
	o.flushAsNoise()
	if len(text) < len(line) {
		o.noteFault(faultCRLF, fmt.Sprintf("%s 0D 0A", lineTail(text)))
	}
	for _, m := range messages {
		o.onMessage(m)
	}
}

// parseMessages parses text as a message, or as an array of messages; false: it is neither.
func parseMessages(text []byte) (messages []jsonrpc.Message, ok bool) {
	if jsonrpc.IsBatch(text) {
		elements, err := jsonrpc.SplitBatch(text, 1000)
		if err != nil || len(elements) == 0 {
			return nil, false
		}
		for _, e := range elements {
			m, err := jsonrpc.Parse(e)
			if err != nil {
				return nil, false
			}
			messages = append(messages, m)
		}
		return messages, true
	}
	m, err := jsonrpc.Parse(text)
	return []jsonrpc.Message{m}, err == nil
}

// handleNonMessage takes a line that is no message by itself: a header, part of a message of several lines, or noise. text is
// line without its CR and byte order mark.
func (o *stdoutParser) handleNonMessage(line, text []byte) {
	trimmed := bytes.TrimSpace(text)
	switch {
	case len(trimmed) >= len(contentLengthPrefix) && strings.EqualFold(string(trimmed[:len(contentLengthPrefix)]), contentLengthPrefix):
		o.flushAsNoise()
		o.noteFault(faultHeader, string(line))
	case len(trimmed) == 0 && o.faultCounts[faultHeader] > 0: // the end of such headers
	case o.possibleMessage != nil:
		o.addToPossibleMessage(line)
	case len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') && !json.Valid(trimmed):
		o.possibleMessage, o.parseAttempts = append(bytes.Clone(line), '\n'), 0
	default:
		o.noteNoise(line)
	}
}

// addToPossibleMessage adds a line to possibleMessage, and takes that as a message if it is complete, or as noise if it cannot
// become one. It reports whether the line was part of a message, or still may be; otherwise it was taken as noise already.
func (o *stdoutParser) addToPossibleMessage(line []byte) bool {
	o.possibleMessage = append(append(o.possibleMessage, line...), '\n')
	trimmed := bytes.TrimSpace(line)
	if len(trimmed) > 0 && (trimmed[len(trimmed)-1] == '}' || trimmed[len(trimmed)-1] == ']') {
		o.parseAttempts++
		if messages, ok := parseMessages(bytes.TrimSpace(o.possibleMessage)); ok {
			o.noteFault(faultManyLines, string(o.possibleMessage))
			o.possibleMessage = nil
			for _, m := range messages {
				o.onMessage(m)
			}
			return true
		}
	}
	if len(o.possibleMessage) > maxSeveralLinesBytes || o.parseAttempts > maxParseAttempts || json.Valid(o.possibleMessage) {
		o.flushAsNoise()
	}
	return o.possibleMessage != nil
}

// flushAsNoise notes each line of possibleMessage as noise, and empties it: they are no message.
func (o *stdoutParser) flushAsNoise() {
	for line := range bytes.Lines(o.possibleMessage) {
		o.noteNoise(bytes.TrimSuffix(line, []byte{'\n'}))
	}
	o.possibleMessage = nil
}

// aroundInvalid returns the text around the first byte that is not UTF-8, and the place of that byte.
func aroundInvalid(text []byte) string {
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	from := max(0, at-60)
	return fmt.Sprintf("byte %d: %s", at+1, text[from:min(len(text), at+60)])
}

// lineTail returns the end of a line, of 60 bytes at most.
func lineTail(text []byte) string {
	const n = 60
	if len(text) <= n {
		return string(text)
	}
	return "... " + string(text[len(text)-n:])
}
