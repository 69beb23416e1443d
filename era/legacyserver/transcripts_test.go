package legacyserver

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era/internal/eratest"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
)

// TestTranscripts plays the transcripts in testdata, one for each behaviour, in the
// language of eratest.Transcript. Words more are
//
//	parked 1          so many calls wait for their retry
//	failed true       whether initialize has come to nothing
//	caps JSON         what clients say they can do from here on
//	declare JSON      what initialize is to declare
//	start             the server starts
//	open JSON         the server starts, and has these capabilities
//	max 2, timeout 5m, serverrun b, principal p, unit u, clientinfo {}, nosealer    options, ahead of open
//
// and $ stands for what every message has:
//
//	$meta             protocolVersion and clientCapabilities in a request's _meta
//	$server           "_meta":{...serverInfo}
//	$own              who the bridge is
func TestTranscripts(t *testing.T) {
	eratest.PlayFiles(t, func(t *testing.T) *eratest.Transcript {
		s := &script{Transcript: eratest.NewTranscript(nil), caps: `{}`, o: Options{
			ClientInfo: []byte(`{"name":"bridge","version":"1"}`),
			Principal:  "alice", Unit: "u1", ServerRun: "a", Sealer: testSealer(t),
		}}
		s.PlayWord, s.Expand = s.word, s.expand
		return s.Transcript
	})
}

// script is a transcript with the words of this package.
type script struct {
	*eratest.Transcript
	o    Options
	f    *Filter
	caps string
}

func (s *script) word(word, rest string) error {
	var err error
	switch word {
	case "caps":
		s.caps = rest
	case "declare":
		s.o.Capabilities = []byte(rest)
	case "max":
		s.o.MaxParked, err = strconv.Atoi(rest)
	case "timeout":
		s.o.ParkTimeout, err = time.ParseDuration(rest)
	case "serverrun":
		s.o.ServerRun = rest
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
		err = s.open(rest)
	case "parked":
		if got := strconv.Itoa(s.f.Parked()); got != rest {
			err = fmt.Errorf("%s are parked", got)
		}
	case "failed":
		if got := strconv.FormatBool(s.f.HasFailed()); got != rest {
			err = fmt.Errorf("failed is %s", got)
		}
	default:
		err = fmt.Errorf("cannot read %q", word)
	}
	return err
}

func (s *script) start() {
	s.f = New(s.o)
	s.Filter = s.f
	s.Start()
}

// open starts a filter and takes it through initialize.
func (s *script) open(capabilities string) error {
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
		if err := s.Play(line); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) expand(text string) string {
	text = strings.ReplaceAll(text, "$meta", `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":`+s.caps)
	text = strings.ReplaceAll(text, "$own", string(buildinfo.Implementation()))
	return strings.ReplaceAll(text, "$server", `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"2"}}`)
}
