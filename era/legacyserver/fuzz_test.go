package legacyserver

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/eratest"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// FuzzMessages feeds a filter lines of the language of the transcripts, of
// which only the sending ones count, and checks what must hold whatever comes:
// nothing panics, no request and no question is answered twice, and when the
// server has ended every request has its answer.
func FuzzMessages(f *testing.F) {
	for _, text := range transcripts(f) {
		f.Add(text)
	}
	sealer := testSealer(f)
	f.Fuzz(func(t *testing.T, text string) {
		s := newFuzzed(t, sealer)
		for line := range strings.Lines(text) {
			s.line(strings.TrimSpace(line))
		}
		s.end()
	})
}

// TestShuffled feeds the lines of all transcripts in any order, which comes upon
// more than changing their bytes does.
func TestShuffled(t *testing.T) {
	var lines []string
	for _, text := range transcripts(t) {
		lines = append(lines, strings.Split(text, "\n")...)
	}
	sealer := testSealer(t)
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := newFuzzed(t, sealer)
		var history []string
		for range 200 {
			line := lines[r.IntN(len(lines))]
			if len(history) == 0 {
				line = `open {"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}`
			}
			history = append(history, line)
			s.line(line)
		}
		s.end()
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(history, "\n"))
		}
	}
}

// TestSpoiled feeds the transcripts with messages that have odd values and members that stand twice, which changing bytes hardly
// comes upon.
func TestSpoiled(t *testing.T) {
	texts, sealer := transcripts(t), testSealer(t)
	for seed := range uint64(6000) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := newFuzzed(t, sealer)
		s.spoil = func(text string) string {
			if r.IntN(3) == 0 {
				return eratest.Spoil(r, text)
			}
			return text
		}
		text := texts[r.IntN(len(texts))]
		for line := range strings.Lines(strings.ReplaceAll(text, "\n  ", " ")) {
			s.line(strings.TrimSpace(line))
		}
		s.f.ServerEnded(s.now, errors.New("over"), nil, &s.out)
	}
}

func transcripts(t testing.TB) (texts []string) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

func newFuzzed(t *testing.T, sealer *era.Sealer) *fuzzed {
	s := &fuzzed{t: t, now: time.Unix(1700000000, 0), caps: `{"elicitation":{}}`,
		ids: map[jsonrpc.ID]bool{}, owed: map[jsonrpc.ID]int{}, asked: map[jsonrpc.ID]int{}}
	s.f = New(Options{
		Capabilities: []byte(`{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}}}`),
		Sealer:       sealer, MaxParked: 3,
	})
	s.f.Start(s.now, &s.out)
	s.check()
	return s
}

// end ends the server; then every request has its answer.
func (s *fuzzed) end() {
	s.f.ServerEnded(s.now, errors.New("over"), nil, &s.out)
	s.check()
	if s.f.Parked() != 0 {
		s.t.Error("calls are parked when the server has ended")
	}
	for id, n := range s.owed {
		if n > 0 && !s.excused(id) {
			s.t.Errorf("%d requests with the id %v have no answer", n, id)
		}
	}
}

type fuzzed struct {
	t     *testing.T
	f     *Filter
	now   time.Time
	out   era.Out
	caps  string
	state string
	ids   map[jsonrpc.ID]bool // that the server has seen
	owed  map[jsonrpc.ID]int  // requests less answers
	asked map[jsonrpc.ID]int  // questions less answers
	quiet []jsonrpc.ID        // cancelled, or a listen: need not be answered
	spoil func(text string) string
}

func (s *fuzzed) excused(id jsonrpc.ID) bool {
	return slices.ContainsFunc(s.quiet, id.Equivalent)
}

func (s *fuzzed) line(line string) {
	if d, err := time.ParseDuration(line); err == nil && line[0] == '+' {
		s.pass(min(d, 20*time.Second))
		return
	}
	if caps, ok := strings.CutPrefix(line, "open "); ok {
		line = `s-> {"id":1,"result":{"protocolVersion":"2025-11-25","capabilities":` + caps + `,"serverInfo":{"name":"old","version":"2"}}}`
	}
	arrow, text, ok := strings.Cut(line, "-> ")
	if !ok {
		return
	}
	text = strings.Replace(text, "{", `{"jsonrpc":"2.0",`, 1)
	text = strings.ReplaceAll(text, "$meta", `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+s.caps)
	text = strings.ReplaceAll(text, "$1", s.state)
	if s.spoil != nil {
		text = s.spoil(text)
	}
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		return
	}
	switch {
	case arrow == "c":
		switch {
		case m.Kind() == jsonrpc.Request:
			s.owed[m.ID()]++
			if m.Method() == "subscriptions/listen" {
				s.quiet = append(s.quiet, m.ID())
			}
		case m.Method() == "notifications/cancelled":
			s.quiet = append(s.quiet, m.CancelledID())
		}
		s.f.FromClient(s.now, m, &s.out)
	case strings.HasPrefix(arrow, "s"):
		if m.Kind() == jsonrpc.Request {
			s.asked[m.ID()]++
		}
		if id, ok := jsonrpc.ParseID([]byte(strings.Trim(arrow, "s()"))); ok {
			m = m.WithRelated(id)
		}
		s.f.FromServer(s.now, m, &s.out)
	}
	s.check()
}

func (s *fuzzed) pass(d time.Duration) {
	end := s.now.Add(d)
	for n := 0; ; n++ {
		due := s.f.Due()
		if due.IsZero() || due.After(end) {
			break
		}
		if due.After(s.now) {
			s.now = due
		}
		if n == 100_000 {
			s.t.Fatalf("the filter is due for ever")
		}
		s.f.Tick(s.now, &s.out)
		s.check()
	}
	s.now = end
}

// check takes what the filter sends.
func (s *fuzzed) check() {
	for _, m := range s.out.ToServer {
		s.whole(m)
		switch m.Kind() {
		case jsonrpc.Request:
			if s.ids[m.ID()] {
				s.t.Errorf("id %v twice", m.ID())
			}
			s.ids[m.ID()] = true
		case jsonrpc.Response:
			if s.asked[m.ID()]--; s.asked[m.ID()] < 0 {
				s.t.Errorf("an answer too many to question %v", m.ID())
			}
		}
	}
	for _, m := range s.out.ToClient {
		s.whole(m)
		if m.Related().IsZero() {
			s.t.Errorf("in the course of what? %s", m.Bytes())
		}
		switch m.Kind() {
		case jsonrpc.Request:
			s.t.Errorf("a modern client was asked: %s", m.Bytes()) // ST10
		case jsonrpc.Response:
			if s.owed[m.ID()]--; s.owed[m.ID()] < 0 {
				s.t.Errorf("an answer too many to request %v", m.ID())
			}
			if m.Result() != nil && m.Lookup("result", "resultType") == nil {
				s.t.Errorf("no resultType: %s", m.Bytes())
			}
			if state, ok := jsonrpc.Text(m.Lookup("result", "requestState")); ok {
				s.state = state
			}
			switch code := shape.ErrorCode(m); {
			case code == era.CodeResourceNotFound, code <= -32023 && code >= -32099:
				s.t.Errorf("a reserved code: %s", m.Bytes()) // J10
			}
		}
	}
	for _, m := range s.out.Unsent { // another server may get it
		if s.owed[m.ID()]--; s.owed[m.ID()] < 0 {
			s.t.Errorf("request %v is answered, and unsent", m.ID())
		}
	}
	if s.f.Parked() > 3 {
		s.t.Errorf("%d calls are parked", s.f.Parked())
	}
	s.out = era.Out{}
}

// whole checks that a message is one.
func (s *fuzzed) whole(m jsonrpc.Message) {
	if _, err := jsonrpc.Parse(m.Bytes()); err != nil {
		s.t.Errorf("%v: %s", err, m.Bytes())
	}
}
