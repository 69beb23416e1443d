package legacyclient

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/era/internal/eratest"
)

// TestTranscripts plays the transcripts in testdata, one for each behaviour, in the
// language of eratest.Transcript. One word more is
//
//	session VERSION CLIENT-CAPABILITIES SERVER-CAPABILITIES
//
// for initialize and all that belongs to it, as open.txt shows. $meta stands for
// the members of _meta that every request of the session has, and $logs for them
// with the log level; open.txt and loglevel.txt have them in full.
func TestTranscripts(t *testing.T) {
	eratest.PlayFiles(t, func(*testing.T) *eratest.Transcript { return newTranscript() })
}

// newTranscript returns a Transcript of a session.
func newTranscript() *eratest.Transcript {
	f := New(Options{}).(*filter)
	n := 0
	f.inputs.randomID = func() string { n++; return fmt.Sprintf("random-%d", n) }
	p := eratest.NewTranscript(f)
	p.Expand = func(text string) string {
		if bare := string(f.session.metaWithoutLogLevel); bare != "" {
			text = strings.ReplaceAll(text, "$meta", bare[1:len(bare)-1])
		}
		return strings.ReplaceAll(text, "$logs", f.session.callMeta.String())
	}
	p.PlayWord = func(word, rest string) error {
		args := strings.Fields(rest)
		if word != "session" || len(args) != 3 {
			return fmt.Errorf("cannot read %q", word)
		}
		for _, line := range []string{
			`c-> {"id":"init","method":"initialize","params":{"protocolVersion":"` + args[0] +
				`","capabilities":` + args[1] + `,"clientInfo":{"name":"client","version":"1"}}}`,
			`s-> {"id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + args[2] + `}}`,
			`c-> {"method":"notifications/initialized"}`,
		} {
			if err := p.Play(line); err != nil {
				return err
			}
			p.Discard()
		}
		return nil
	}
	p.Start()
	return p
}
