package legacyserver

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
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// TestTranscripts runs the transcripts of testdata. Each file is
// one behaviour, told line by line:
//
//	c-> MESSAGE       a client sends it
//	->s MESSAGE       the server gets it
//	s-> MESSAGE       the server sends it
//	->c MESSAGE       a client gets it
//	+30ms             time passes
//	dropped REASON    the message before went no further
//	parked 1          so many calls wait for their retry
//	failed true       whether initialize has come to nothing
//	server ended: WHY
//
// What is sent must be listed, in order, and nothing else may be sent. s(3)->
// sends in the course of request 3, as a transport can tell that has a stream for
// each, s(null)-> on a standalone stream; ->c(7) is a notification in the course of request 7 (a response always
// belongs to its request). Messages are compared byte by byte, but "jsonrpc" is
// left out, and $ stands for what every message has:
//
//	$meta             protocolVersion and clientCapabilities in a request's _meta
//	$server           "_meta":{...serverInfo}
//	$own              who the bridge is
//	"$1" ... "$9"     a text that is made at random: the first time it is taken from what comes
//	caps JSON         what clients say they can do from here on
//	declare JSON      what initialize is to declare
//	open JSON         the server starts, and has these capabilities
//	max 2, timeout 5m, instance b, principal p, clientinfo {}    options, ahead of open
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sealer, err := era.NewSealer()
			if err != nil {
				t.Fatal(err)
			}
			s := &transcript{
				caps:  `{}`,
				texts: map[string]string{},
				now:   time.Unix(1700000000, 0),
				o: Options{
					ClientInfo: []byte(`{"name":"bridge","version":"1"}`),
					Principal:  "alice", Unit: "u1", Instance: "a", Sealer: sealer,
				},
			}
			for i, line := range strings.Split(string(text), "\n") {
				line = strings.TrimSpace(line)
				if line == "" || line[0] == '#' {
					continue
				}
				if err := s.line(line); err != nil {
					t.Fatalf("%s:%d: %s\n%v", name, i+1, line, err)
				}
			}
			if err := s.silent(); err != nil {
				t.Fatalf("%s: at the end: %v", name, err)
			}
		})
	}
}

// transcript is a transcript that is being run.
type transcript struct {
	o       Options
	f       *Filter
	now     time.Time
	out     era.Out
	caps    string
	texts   map[string]string
	dropped []string
}

var (
	arrow   = regexp.MustCompile(`^(c->|->s|s->|->c|s\((?:\d+|null)\)->|->c\([^)]+\))\s+(.*)$`)
	unknown = regexp.MustCompile(`"\$(\d)"`)
)

func (s *transcript) line(line string) error {
	if m := arrow.FindStringSubmatch(line); m != nil {
		return s.message(m[1], m[2])
	}
	if err := s.silent(); err != nil {
		return err
	}
	if d, err := time.ParseDuration(line); err == nil && line[0] == '+' {
		s.pass(d)
		return nil
	}
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "caps":
		s.caps = rest
	case "declare":
		s.o.Capabilities = []byte(rest)
	case "max":
		s.o.MaxParked, _ = strconv.Atoi(rest)
	case "timeout":
		s.o.ParkTimeout, _ = time.ParseDuration(rest)
	case "instance":
		s.o.Instance = rest
	case "principal":
		s.o.Principal = rest
	case "unit":
		s.o.Unit = rest
	case "clientinfo":
		s.o.ClientInfo = []byte(rest)
	case "nosealer":
		s.o.Sealer = nil
	case "start":
		s.start()
	case "open":
		return s.open(rest)
	case "parked":
		if got := strconv.Itoa(s.f.Parked()); got != rest {
			return fmt.Errorf("%s are parked", got)
		}
	case "failed":
		if got := strconv.FormatBool(s.f.Failed()); got != rest {
			return fmt.Errorf("failed is %s", got)
		}
	case "dropped":
		if s.noteDropped(); len(s.dropped) != 1 || s.dropped[0] != rest {
			return fmt.Errorf("dropped %q", s.dropped)
		}
		s.dropped = nil
	case "server":
		s.f.ServerEnded(s.now, errors.New(strings.TrimPrefix(rest, "ended: ")), &s.out)
	default:
		return errors.New("cannot read this")
	}
	return nil
}

func (s *transcript) start() {
	o := s.o
	s.f = New(o)
	s.f.Start(s.now, &s.out)
}

// open starts a filter and takes it through initialize.
func (s *transcript) open(capabilities string) error {
	s.start()
	caps := string(s.o.Capabilities)
	if caps == "" {
		caps = "{}"
	}
	for _, line := range []string{
		`->s {"id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + caps + `,"clientInfo":{"name":"bridge","version":"1"}}}`,
		`s-> {"id":1,"result":{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"serverInfo":{"name":"old","version":"2"}}}`,
		`->s {"method":"notifications/initialized"}`,
	} {
		if err := s.line(line); err != nil {
			return err
		}
	}
	return nil
}

// pass lets time pass, timer by alarm.
func (s *transcript) pass(d time.Duration) {
	end := s.now.Add(d)
	for due := s.f.Due(); !due.IsZero() && !due.After(end); due = s.f.Due() {
		if due.After(s.now) {
			s.now = due
		}
		s.f.Tick(s.now, &s.out)
	}
	s.now = end
}

func (s *transcript) message(arrow, text string) error {
	text = strings.Replace(text, "{", `{"jsonrpc":"2.0",`, 1)
	text = strings.ReplaceAll(text, "$meta", `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+s.caps)
	text = strings.ReplaceAll(text, "$own", string(buildinfo.Implementation()))
	text = strings.ReplaceAll(text, "$server", `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"2"}}`)
	for name, value := range s.texts {
		text = strings.ReplaceAll(text, name, value)
	}
	switch arrow[:3] {
	case "->s":
		return s.expect(&s.out.ToServer, text, jsonrpc.ID{}, false)
	case "->c":
		related, named := strings.CutPrefix(arrow, "->c(")
		id, _ := jsonrpc.ParseID([]byte(strings.TrimSuffix(related, ")")))
		return s.expect(&s.out.ToClient, text, id, named)
	}
	if err := s.silent(); err != nil {
		return err
	}
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		return err
	}
	if arrow == "c->" {
		s.f.FromClient(s.now, m, &s.out)
		return nil
	}
	if related, ok := strings.CutPrefix(arrow, "s("); ok {
		id := jsonrpc.NullID
		if text := strings.TrimSuffix(related, ")->"); text != "null" {
			id, _ = jsonrpc.ParseID([]byte(text))
		}
		m = m.WithRelated(id)
	}
	s.f.FromServer(s.now, m, &s.out)
	return nil
}

// expect takes the next message of a queue, which must be text.
func (s *transcript) expect(queue *[]jsonrpc.Message, text string, related jsonrpc.ID, named bool) error {
	if len(*queue) == 0 {
		return errors.New("nothing was sent")
	}
	m := (*queue)[0]
	*queue = (*queue)[1:]
	got := m.Bytes()
	if places := unknown.FindAllStringSubmatchIndex(text, -1); places != nil {
		pattern := unknown.ReplaceAllString(regexp.QuoteMeta(unknown.ReplaceAllString(text, `"@$1@"`)), "")
		pattern = regexp.MustCompile(`"@(\d)@"`).ReplaceAllString(pattern, `"([^"]*)"`)
		found := regexp.MustCompile("^" + pattern + "$").FindSubmatch(got)
		if found == nil {
			return fmt.Errorf("sent was\n    %s", got)
		}
		for i, p := range places {
			s.texts[text[p[0]+1:p[1]-1]] = string(found[i+1])
		}
	} else if !bytes.Equal(got, []byte(text)) {
		return fmt.Errorf("sent was\n    %s", got)
	}
	switch {
	case m.Kind() == jsonrpc.Response && queue == &s.out.ToClient:
		related, named = m.ID(), true
	case queue == &s.out.ToClient && !named:
		return errors.New("say in the course of which request: ->c(ID)")
	}
	if named && m.Related() != related {
		return fmt.Errorf("sent in the course of request %v", m.Related())
	}
	return nil
}

// noteDropped keeps what was dropped.
func (s *transcript) noteDropped() {
	for _, d := range s.out.Dropped {
		s.dropped = append(s.dropped, d.Reason)
	}
	s.out.Dropped = nil
}

// silent reports what was sent, or dropped, and is not in the transcript.
func (s *transcript) silent() error {
	for _, m := range s.out.ToClient {
		return fmt.Errorf("a client was sent\n    %s", m.Bytes())
	}
	for _, m := range s.out.ToServer {
		return fmt.Errorf("the server was sent\n    %s", m.Bytes())
	}
	if s.noteDropped(); len(s.dropped) > 1 {
		return fmt.Errorf("dropped: %q", s.dropped)
	}
	s.out = era.Out{}
	return nil
}
