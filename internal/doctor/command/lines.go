package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A fault is something in the bytes of a stdout that should not be there.
type fault string

const (
	faultNoise     fault = "text that is no message"
	faultCRLF      fault = "lines end in CR LF"
	faultBOM       fault = "a byte order mark"
	faultManyLines fault = "a message of several lines"
	faultUTF8      fault = "bytes that are not UTF-8"
	faultLength    fault = "a line longer than the limit"
	faultHeader    fault = "Content-Length headers"
	faultNoEnd     fault = "a message without a line feed"
	faultInFront   fault = "text before an answer, on the same line" // counted with faultNoise
)

const (
	maxShown    = 100      // bytes of a line that is too long
	maxEvidence = 400      // bytes of each line that are kept
	maxLines    = 5        // lines that are kept of each fault
	maxAssembly = 1 << 20  // bytes of a message of several lines
	maxAttempts = 200      // how often its lines are tried together
	bom         = "\ufeff" // U+FEFF, a byte order mark
	header      = "content-length:"
)

// output takes the bytes of a server's stdout apart, into messages and faults. It is not
// safe for concurrent use.
type output struct {
	max     int                     // the longest line; 0 means no limit
	message func(m jsonrpc.Message) // is called for each message
	tooLong func(id jsonrpc.ID)     // is called when the answer to id was too long

	line   []byte            // the current one, at most max bytes
	length int               // its length so far
	finder *jsonrpc.IDFinder // reads on in a line that is too long

	severalLines []byte // lines that may together be a message, with their line feeds
	attempts     int

	faults     map[fault][]string // the first lines that show it
	counts     map[fault]int
	firstBytes []byte // the first bytes of all output
	total      int
}

func newOutput(max int, message func(jsonrpc.Message), tooLong func(jsonrpc.ID)) *output {
	return &output{max: max, message: message, tooLong: tooLong, faults: map[fault][]string{}, counts: map[fault]int{}}
}

// write takes bytes in, as they were read.
func (o *output) write(b []byte) {
	o.firstBytes = append(o.firstBytes, b[:min(len(b), maxEvidence-len(o.firstBytes))]...)
	o.total += len(b)
	for {
		before, after, found := bytes.Cut(b, []byte{'\n'})
		o.add(before)
		if !found {
			return
		}
		o.lineEnd()
		b = after
	}
}

// add makes the current line longer.
func (o *output) add(b []byte) {
	o.length += len(b)
	if o.max > 0 && o.length > o.max {
		if o.finder == nil {
			o.finder = new(jsonrpc.IDFinder)
			o.finder.Write(o.line)
		}
		o.finder.Write(b)
		o.line = append(o.line, b[:min(len(b), max(0, maxShown-len(o.line)))]...)
		return
	}
	o.line = append(o.line, b...)
}

func (o *output) lineEnd() {
	line, length, finder := o.line, o.length, o.finder
	o.line, o.length, o.finder = nil, 0, nil
	if finder == nil {
		o.whole(line)
		return
	}
	o.note(faultLength, fmt.Sprintf("%d bytes, beginning %s", length, line[:min(len(line), maxShown)]))
	if id, kind := finder.Result(); kind == jsonrpc.Response {
		o.tooLong(id)
	}
}

// takeUnterminated takes what has come of a line, if it is a message already, so that nothing but
// its line feed is missing.
func (o *output) takeUnterminated() (taken bool) {
	m, err := jsonrpc.Parse(bytes.TrimSpace(o.line))
	if err != nil || o.finder != nil {
		return false
	}
	o.note(faultNoEnd, string(o.line))
	o.line, o.length = nil, 0
	o.message(m)
	return true
}

// end says that no more bytes come.
func (o *output) end() {
	if len(o.line) > 0 && o.finder == nil && !o.takeUnterminated() {
		o.lineEnd()
	}
	o.giveUpSeveral()
}

// note counts a fault.
func (o *output) note(f fault, evidence string) {
	o.counts[f]++
	if len(o.faults[f]) < maxLines {
		o.faults[f] = append(o.faults[f], strings.Clone(evidence[:min(len(evidence), maxEvidence)]))
	}
}

// noise takes a line that is no message. An answer at its end explains a server that seems to be silent. It is not taken
// as an answer, because logs quote messages too.
func (o *output) noise(line []byte) {
	o.note(faultNoise, string(line))
	if jsonrpc.EndsInResponse(line) {
		o.note(faultInFront, string(line))
	}
}

// whole takes a line without its line feed.
func (o *output) whole(line []byte) {
	if text, found := bytes.CutPrefix(line, []byte(bom)); found {
		o.note(faultBOM, fmt.Sprintf("EF BB BF %s", text))
		line = text
	}
	text := bytes.TrimSuffix(line, []byte{'\r'})
	messages, ok := parse(text)
	if !ok && !utf8.Valid(text) {
		if messages, ok = parse(bytes.ToValidUTF8(text, []byte("?"))); ok {
			o.note(faultUTF8, aroundInvalid(text))
		}
	}
	if !ok {
		o.takeNonMessage(line, text)
		return
	}
	o.giveUpSeveral()
	if len(text) < len(line) {
		o.note(faultCRLF, fmt.Sprintf("%s 0D 0A", tail(text)))
	}
	for _, m := range messages {
		o.message(m)
	}
}

// parse reads a message, or the messages of an array.
func parse(text []byte) (messages []jsonrpc.Message, ok bool) {
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

// takeNonMessage takes a line that is no message by itself.
func (o *output) takeNonMessage(line, text []byte) {
	trimmed := bytes.TrimSpace(text)
	switch {
	case len(trimmed) >= len(header) && strings.EqualFold(string(trimmed[:len(header)]), header):
		o.giveUpSeveral()
		o.note(faultHeader, string(line))
	case len(trimmed) == 0 && o.counts[faultHeader] > 0: // the end of such headers
	case o.severalLines != nil:
		o.together(line)
	case len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') && !json.Valid(trimmed):
		o.severalLines, o.attempts = append(bytes.Clone(line), '\n'), 0
	default:
		o.noise(line)
	}
}

// together adds a line to those that may be one message, and looks whether it is complete.
func (o *output) together(line []byte) bool {
	o.severalLines = append(append(o.severalLines, line...), '\n')
	trimmed := bytes.TrimSpace(line)
	if len(trimmed) > 0 && (trimmed[len(trimmed)-1] == '}' || trimmed[len(trimmed)-1] == ']') {
		o.attempts++
		if messages, ok := parse(bytes.TrimSpace(o.severalLines)); ok {
			o.note(faultManyLines, string(o.severalLines))
			o.severalLines = nil
			for _, m := range messages {
				o.message(m)
			}
			return true
		}
	}
	if len(o.severalLines) > maxAssembly || o.attempts > maxAttempts || json.Valid(o.severalLines) {
		o.giveUpSeveral()
	}
	return o.severalLines != nil
}

// giveUpSeveral makes text of lines that looked like the beginning of a message.
func (o *output) giveUpSeveral() {
	for line := range bytes.Lines(o.severalLines) {
		o.noise(bytes.TrimSuffix(line, []byte{'\n'}))
	}
	o.severalLines = nil
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

// tail returns the last bytes of a line.
func tail(text []byte) string {
	const n = 60
	if len(text) <= n {
		return string(text)
	}
	return "... " + string(text[len(text)-n:])
}
