package legacyclient

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// TestTranscripts plays the transcripts in testdata, one for each
// behaviour. A line of a transcript is one of
//
//	session VERSION CLIENT-CAPABILITIES SERVER-CAPABILITIES
//	                   initialize and all that belongs to it, as open.txt shows
//	c-> MESSAGE        the client sends
//	s-> MESSAGE        the server sends
//	+20ms              time goes by
//	end TEXT           the server ends with this error
//
// followed by what must come of it, all of it:
//
//	->s MESSAGE        the server gets
//	->c MESSAGE        the client gets
//	drop TEXT          a message goes nowhere, for this reason
//
// Messages are without "jsonrpc":"2.0". @ID ahead of one is its Related, @- is
// NullID; a response to the client has its own id there and needs no mark.
// $meta stands for the members of _meta that every request of the session has,
// and $logs for them with the log level; open.txt and loglevel.txt have them in full. An
// indented line goes on with the one before.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := newTranscript(t)
			p.play(string(text))
		})
	}
}

// transcript plays one transcript.
type transcript struct {
	t    *testing.T
	f    *filter
	now  time.Time
	got  era.Out // what has become of the last line and is not asked for yet
	line int
}

func newTranscript(t *testing.T) *transcript {
	p := &transcript{t: t, now: time.Unix(1_800_000_000, 0)}
	p.f = New(Options{}).(*filter)
	n := 0
	p.f.inputs.randomID = func() string { n++; return fmt.Sprintf("random-%d", n) }
	p.f.Start(p.now, &p.got)
	return p
}

func (p *transcript) play(text string) {
	p.t.Helper()
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], " ")
		p.line = i + 1
		for i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  ") {
			i++
			line += strings.TrimSpace(lines[i])
		}
		if line == "" || line[0] == '#' {
			continue
		}
		p.step(line)
	}
	p.settled()
}

func (p *transcript) step(line string) {
	p.t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "->s":
		p.expect("the server", &p.got.ToServer, rest)
		return
	case "->c":
		p.expect("the client", &p.got.ToClient, rest)
		return
	case "drop":
		if len(p.got.Dropped) == 0 || p.got.Dropped[0].Reason != rest {
			p.fatalf("dropped %v, want %q", p.got.Dropped, rest)
		}
		p.got.Dropped = p.got.Dropped[1:]
		return
	}
	p.settled()
	switch {
	case verb == "session":
		p.session(strings.Fields(rest))
	case verb == "c->":
		p.f.FromClient(p.now, p.message(rest), &p.got)
	case verb == "s->":
		p.f.FromServer(p.now, p.message(rest), &p.got)
	case verb == "end":
		p.f.ServerEnded(p.now, errors.New(rest), &p.got)
	case verb[0] == '+':
		d, err := time.ParseDuration(verb[1:])
		if err != nil {
			p.fatalf("%v", err)
		}
		p.pass(p.now.Add(d))
	default:
		p.fatalf("unknown verb %q", verb)
	}
	p.pass(p.now)
}

// pass lets time go by up to then, as whoever runs a Filter does.
func (p *transcript) pass(then time.Time) {
	p.t.Helper()
	for range 1000 {
		due := p.f.Due()
		if due.IsZero() || due.After(then) {
			p.now = then
			return
		}
		if due.After(p.now) {
			p.now = due
		}
		p.f.Tick(p.now, &p.got)
	}
	p.fatalf("Tick does not do what is due")
}

func (p *transcript) session(args []string) {
	p.t.Helper()
	p.step(`c-> {"id":"init","method":"initialize","params":{"protocolVersion":"` + args[0] +
		`","capabilities":` + args[1] + `,"clientInfo":{"name":"client","version":"1"}}}`)
	p.got = era.Out{}
	p.step(`s-> {"id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + args[2] + `}}`)
	p.got = era.Out{}
	p.step(`c-> {"method":"notifications/initialized"}`)
	p.got = era.Out{}
}

// message reads a message of a transcript.
func (p *transcript) message(text string) jsonrpc.Message {
	p.t.Helper()
	var related jsonrpc.ID
	if strings.HasPrefix(text, "@") {
		var mark string
		mark, text, _ = strings.Cut(text[1:], " ")
		if mark == "-" {
			mark = "null"
		}
		related, _ = jsonrpc.ParseID([]byte(mark))
		if mark == "null" {
			related = jsonrpc.NullID
		}
	}
	if bare := string(p.f.session.bareMeta); bare != "" {
		text = strings.ReplaceAll(text, "$meta", bare[1:len(bare)-1])
	}
	text = strings.ReplaceAll(text, "$logs", p.f.session.meta.String())
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0",` + text[1:]))
	if err != nil {
		p.fatalf("%v", err)
	}
	return m.WithRelated(related)
}

func (p *transcript) expect(who string, got *[]jsonrpc.Message, text string) {
	p.t.Helper()
	want := p.message(text)
	if len(*got) == 0 {
		p.fatalf("%s gets nothing, want %s", who, want.Bytes())
	}
	m := (*got)[0]
	*got = (*got)[1:]
	if string(m.Bytes()) != string(want.Bytes()) {
		p.fatalf("%s gets\n\t%s\nwant\n\t%s", who, m.Bytes(), want.Bytes())
	}
	related := want.Related()
	if want.Kind() == jsonrpc.Response {
		related = want.ID()
	}
	if who == "the client" && m.Related() != related {
		p.fatalf("%s gets %s\nin the course of %q, want %q", who, m.Bytes(), m.Related(), related)
	}
}

// settled fails if more has become of the last line than was asked for.
func (p *transcript) settled() {
	p.t.Helper()
	for _, m := range p.got.ToServer {
		p.t.Errorf("line %d: before it, the server gets also\n\t%s", p.line, m.Bytes())
	}
	for _, m := range p.got.ToClient {
		p.t.Errorf("line %d: before it, the client gets also (of %q)\n\t%s", p.line, m.Related(), m.Bytes())
	}
	for _, d := range p.got.Dropped {
		p.t.Errorf("line %d: before it, dropped also: %q", p.line, d.Reason)
	}
	if p.t.Failed() {
		p.t.FailNow()
	}
	p.got = era.Out{}
}

func (p *transcript) fatalf(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("line %d: "+format, append([]any{p.line}, args...)...)
}
