package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A stdoutFault is something in the bytes of a stdout that should not be there.
type stdoutFault string

const (
	faultNoise     stdoutFault = "text that is no message"
	faultCRLF      stdoutFault = "lines end in CR LF"
	faultBOM       stdoutFault = "a byte order mark"
	faultManyLines stdoutFault = "a message of several lines"
	faultUTF8      stdoutFault = "bytes that are not UTF-8"
	faultTooLong   stdoutFault = "a line longer than the limit"
	faultHeader    stdoutFault = "Content-Length headers"
	faultNoEnd     stdoutFault = "a message without a line feed"
	faultInFront   stdoutFault = "text before an answer, on the same line" // such a line counts as faultNoise, too
)

const (
	maxShownBytes        = 100      // bytes of a line that is too long
	maxEvidenceBytes     = 400      // bytes of each line that are kept
	maxLinesPerFault     = 5        // lines that are kept of each fault
	maxSeveralLinesBytes = 1 << 20  // bytes of a message of several lines
	maxParseAttempts     = 200      // how often lines that may be one message are parsed together
	bom                  = "\ufeff" // U+FEFF, a byte order mark
	contentLengthPrefix  = "content-length:"
)

// stdoutParser takes the bytes of a server's stdout apart, into messages and faults. It is not
// safe for concurrent use.
type stdoutParser struct {
	maxLineBytes int                     // the longest line; 0 means no limit
	onMessage    func(m jsonrpc.Message) // is called for each message
	onTooLong    func(id jsonrpc.ID)     // is called when the answer to id was too long

	currentLine []byte            // the line that has begun; of one that is too long, the beginning
	lineBytes   int               // the length of that line so far
	idFinder    *jsonrpc.IDFinder // finds the id in a line that is too long; nil: the line is not

	possibleMessage []byte // lines that may together be a message, with their line feeds; nil: there are none
	parseAttempts   int    // how often possibleMessage was parsed

	faultLines  map[stdoutFault][]string // the first lines that show a fault
	faultCounts map[stdoutFault]int      // how often each fault was seen
	firstBytes  []byte                   // the first bytes of all output
	totalBytes  int                      // of all output
}

func newStdoutParser(maxLineBytes int, message func(jsonrpc.Message), tooLong func(jsonrpc.ID)) *stdoutParser {
	return &stdoutParser{maxLineBytes: maxLineBytes, onMessage: message, onTooLong: tooLong, faultLines: map[stdoutFault][]string{}, faultCounts: map[stdoutFault]int{}}
}

// write takes bytes in, as they were read.
func (o *stdoutParser) write(b []byte) {
	o.firstBytes = append(o.firstBytes, b[:min(len(b), maxEvidenceBytes-len(o.firstBytes))]...)
	o.totalBytes += len(b)
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

// appendToLine makes the current line longer.
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

// finishLine takes the current line, which is complete.
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

// acceptUnterminated takes the current line if it is a message already, so that only its line feed is missing. It reports whether
// that is so.
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

// finish says that no more bytes come.
func (o *stdoutParser) finish() {
	if len(o.currentLine) > 0 && o.idFinder == nil && !o.acceptUnterminated() {
		o.finishLine()
	}
	o.flushAsNoise()
}

// noteFault counts a fault, and keeps the evidence if it is one of the first.
func (o *stdoutParser) noteFault(f stdoutFault, evidence string) {
	o.faultCounts[f]++
	if len(o.faultLines[f]) < maxLinesPerFault {
		o.faultLines[f] = append(o.faultLines[f], strings.Clone(evidence[:min(len(evidence), maxEvidenceBytes)]))
	}
}

// noteNoise takes a line that is no message. An answer at the end of the line explains a server that seems to be silent. It does not
// count as an answer, because logs quote messages, too.
func (o *stdoutParser) noteNoise(line []byte) {
	o.noteFault(faultNoise, string(line))
	if jsonrpc.EndsInResponse(line) {
		o.noteFault(faultInFront, string(line))
	}
}

// parseLine takes a line without its line feed.
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

// parseMessages reads a message, or the messages of an array.
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

// handleNonMessage takes a line that is no message by itself.
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

// addToPossibleMessage adds a line to those that may be one message, and looks whether the message is complete. It reports whether the
// line was part of a message, or still may be.
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

// flushAsNoise notes the lines of possibleMessage as noise: they are no message.
func (o *stdoutParser) flushAsNoise() {
	for line := range bytes.Lines(o.possibleMessage) {
		o.noteNoise(bytes.TrimSuffix(line, []byte{'\n'}))
	}
	o.possibleMessage = nil
}

// aroundInvalid returns the neighbourhood of the first byte that is not UTF-8.
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

// lineTail returns the last bytes of a line.
func lineTail(text []byte) string {
	const n = 60
	if len(text) <= n {
		return string(text)
	}
	return "... " + string(text[len(text)-n:])
}
