package eratest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Transcript plays a filter's part in a conversation that is told line by line.
// A line is one of
//
//	c-> MESSAGE       the client sends
//	s-> MESSAGE       the server sends
//	+30ms             time passes
//	ended WHY         the server ends
//	unwritten ID      the next line is "ended", and this request has not reached the server
//
// followed by what must come of it, all of it, and in order for each receiver:
//
//	->s MESSAGE       the server gets
//	->c MESSAGE       the client gets
//	dropped REASON    a message goes nowhere
//	unsent MESSAGE    the server has not got this request of the client when it ends
//
// s(3)-> sends in the course of request 3, as a transport can tell that has a
// stream for each, and s(null)-> on a standalone stream. ->c(7) is a message in the
// course of request 7, or of none, ->c(null); a response always belongs to its
// request. Messages are compared byte by byte, but without "jsonrpc":"2.0". "$1"
// to "$9" are texts made at random: the first time they are taken from what comes.
//
// An indented line goes on with the one before. A line that begins with # is a
// comment. Package tests add words of their own.
type Transcript struct {
	Filter era.Filter // the filter that is tested

	// PlayWord does what a line with a word of the test's own says. Nil: there are none.
	PlayWord func(word, rest string) error

	// Expand replaces a test's own abbreviations in a message. Nil: there are none.
	Expand func(text string) string

	// Spoil changes a message before it is sent. Nil: nothing is changed.
	Spoil func(text string) string

	now       time.Time         // the time that the Filter is told
	out       era.Out           // what the Filter has sent and dropped, but for what a line has told
	unwritten []jsonrpc.ID      // the ids that lines with "unwritten" have told
	variables map[string]string // the texts that "$1" to "$9" stand for, by "$1" and so on
}

// NewTranscript returns a Transcript; f may be set later.
func NewTranscript(f era.Filter) *Transcript {
	return &Transcript{Filter: f, now: time.Unix(1_800_000_000, 0), variables: map[string]string{}}
}

// PlayFiles plays all transcripts of testdata, each with a Transcript that begin
// returns.
func PlayFiles(t *testing.T, begin func(t *testing.T) *Transcript) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			begin(t).play(t, file, string(text))
		})
	}
}

// play plays all lines of text, the content of file, and fails the test at the first that is not met.
func (p *Transcript) play(t *testing.T, file, text string) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		at, line := i+1, strings.TrimRight(lines[i], " ")
		for i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  ") {
			i++
			line += strings.TrimSpace(lines[i])
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if err := p.Play(line); err != nil {
			t.Fatalf("%s:%d: %s\n%v", file, at, line, err)
		}
	}
	if err := p.CheckSilent(); err != nil {
		t.Fatalf("%s: at the end: %v", file, err)
	}
}

// MustPlay plays one line, and ends the test if that gives an error (Play).
func (p *Transcript) MustPlay(t testing.TB, line string) {
	t.Helper()
	if err := p.Play(line); err != nil {
		t.Fatalf("%.1000s\n%v", line, err)
	}
}

// Start calls Start of the Filter.
func (p *Transcript) Start() { p.Filter.Start(p.now, &p.out) }

// Discard forgets what the Filter has sent and dropped, so that no line need tell it.
func (p *Transcript) Discard() { p.out = era.Out{} }

var (
	// arrow matches what stands before the message in a line, such as "c-> " and "->s(3) ".
	arrow = regexp.MustCompile(`^(?:(c|s)(?:\(([^)]+)\))?->|->(c|s)(?:\(([^)]+)\))?)\s+`)

	// unknown matches "$1" to "$9" in a message: a text that is not known before it was sent.
	unknown = regexp.MustCompile(`"\$(\d)"`)
)

// Play plays one line. The error says that the Filter has not done what the line tells, or that
// it has done what no line before has told.
func (p *Transcript) Play(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	m := arrow.FindStringSubmatch(line)
	message := ""
	if m != nil {
		message = line[len(m[0]):]
	}
	switch {
	case m != nil && m[3] == "c":
		return p.expect(&p.out.ToClient, m[4], message)
	case m != nil && m[3] == "s":
		return p.expect(&p.out.ToServer, m[4], message)
	case word == "dropped":
		if len(p.out.Dropped) == 0 || p.out.Dropped[0].Reason != rest {
			return fmt.Errorf("dropped: %v", p.out.Dropped)
		}
		p.out.Dropped = p.out.Dropped[1:]
		return nil
	case word == "unsent":
		return p.expect(&p.out.Unsent, "", rest)
	}
	if err := p.CheckSilent(); err != nil {
		return err
	}
	switch {
	case m != nil:
		return p.send(m[1], m[2], message)
	case line[0] == '+':
		d, err := time.ParseDuration(line)
		if err != nil {
			return err
		}
		return p.passTime(d)
	case word == "ended":
		p.Filter.ServerEnded(p.now, errors.New(rest), p.unwritten, &p.out)
		p.unwritten = nil
		return nil
	case word == "unwritten":
		n, err := strconv.ParseInt(rest, 10, 64)
		p.unwritten = append(p.unwritten, jsonrpc.IntID(n))
		return err
	case p.PlayWord != nil:
		return p.PlayWord(word, rest)
	}
	return errors.New("cannot read this")
}

// send hands the Filter the message text: from the client if from is "c", otherwise from the
// server. related is the id in brackets behind it; "": there is none.
func (p *Transcript) send(from, related, text string) error {
	text = p.expandText(text)
	if p.Spoil != nil {
		text = p.Spoil(text)
	}
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		return err
	}
	m = m.WithRelated(relatedID(related))
	if from == "c" {
		p.Filter.FromClient(p.now, m, &p.out)
	} else {
		p.Filter.FromServer(p.now, m, &p.out)
	}
	return p.passTime(0)
}

// relatedID returns the id that stands in the brackets of a line, as text says; the zero ID if text is "".
func relatedID(text string) jsonrpc.ID {
	if text == "null" {
		return jsonrpc.NullID
	}
	id, _ := jsonrpc.ParseID([]byte(text))
	return id
}

// expandText returns the message of a line with "jsonrpc" added and abbreviations replaced.
func (p *Transcript) expandText(text string) string {
	text = strings.Replace(text, "{", `{"jsonrpc":"2.0",`, 1)
	if p.Expand != nil {
		text = p.Expand(text)
	}
	for name, value := range p.variables {
		text = strings.ReplaceAll(text, name, value)
	}
	return text
}

// passTime lets d pass on the Filter's clock, and calls Tick whenever something is due. The error says that something
// stays due however often Tick is called.
func (p *Transcript) passTime(d time.Duration) error {
	end := p.now.Add(d)
	for range 1000 {
		due := p.Filter.Due()
		if due.IsZero() || due.After(end) {
			p.now = end
			return nil
		}
		if due.After(p.now) {
			p.now = due
		}
		p.Filter.Tick(p.now, &p.out)
	}
	return errors.New("what is due is not done by Tick")
}

// expect takes the next message of a queue. The error says that there is none, that it is not
// text, or that it is for the client and does not belong to the request whose id related is.
func (p *Transcript) expect(queue *[]jsonrpc.Message, related, text string) error {
	if len(*queue) == 0 {
		return errors.New("nothing was sent")
	}
	text = p.expandText(text)
	m := (*queue)[0]
	*queue = (*queue)[1:]
	if err := p.compare(m.Bytes(), text); err != nil {
		return err
	}
	if queue == &p.out.ToServer {
		return nil
	}
	want := relatedID(related)
	if m.Kind() == jsonrpc.Response {
		want = m.ID()
	}
	if m.Related() != want {
		return fmt.Errorf("sent in the course of request %v", m.Related())
	}
	return nil
}

// compare returns an error if the message got is not what a line says, and learns what "$1" stands for.
func (p *Transcript) compare(got []byte, text string) error {
	places := unknown.FindAllStringSubmatchIndex(text, -1)
	if places == nil {
		if !bytes.Equal(got, []byte(text)) {
			return fmt.Errorf("sent was\n    %s", got)
		}
		return nil
	}
	pattern := regexp.QuoteMeta(unknown.ReplaceAllString(text, `"@$1@"`))
	pattern = regexp.MustCompile(`"@\d@"`).ReplaceAllString(pattern, `"([^"]*)"`)
	found := regexp.MustCompile("^" + pattern + "$").FindSubmatch(got)
	if found == nil {
		return fmt.Errorf("sent was\n    %s", got)
	}
	for i, at := range places {
		p.variables[text[at[0]+1:at[1]-1]] = string(found[i+1])
	}
	return nil
}

// CheckSilent returns an error if the Filter has sent or dropped a message that no line has told.
func (p *Transcript) CheckSilent() error {
	for _, m := range p.out.ToClient {
		return fmt.Errorf("the client got, in the course of %v\n    %s", m.Related(), m.Bytes())
	}
	for _, m := range p.out.ToServer {
		return fmt.Errorf("the server got\n    %s", m.Bytes())
	}
	for _, m := range p.out.Unsent {
		return fmt.Errorf("unsent:\n    %s", m.Bytes())
	}
	for _, d := range p.out.Dropped {
		return fmt.Errorf("dropped: %q", d.Reason)
	}
	p.out = era.Out{}
	return nil
}
