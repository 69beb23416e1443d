package trace

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// holding is a Sink that keeps what it is given.
type holding struct {
	bridge.Sink
	last jsonrpc.Message
}

func (h *holding) TrySend(m jsonrpc.Message) bool { h.last = m; return true }

// What was received is not looked through again when it is sent, unless there is something new to look for: a secret
// that was learned meanwhile, another Redactor, another text, an id that is a secret.
func TestSentIsCleanAsWell(t *testing.T) {
	const secret = `geheim-123`
	from := func(t *testing.T, r *Recorder, send func(jsonrpc.Message) jsonrpc.Message, between func(say func(string))) string {
		ring := NewRing(RingOptions{})
		defer r.AddSink(ring)()
		client, held := &passing{}, &holding{}
		s := r.observer.OpenUnannounced("files", "http")
		if err := s.Conn(client, observe.Downstream).Receive(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		say := func(text string) { client.sink.TrySend(bridgetest.Parse(text)) }
		say(`{"jsonrpc":"2.0","id":5,"method":"m","params":{"x":"` + secret + `"}}`)
		m := held.last
		between(say)
		s.Conn(taker{}, observe.Upstream).TrySend(send(m))
		r.Wait()
		all := ring.Follow(0).Ready(100)
		return string(all[len(all)-1])
	}
	same := func(m jsonrpc.Message) jsonrpc.Message { return m }
	nothing := func(func(string)) {}
	for name, c := range map[string]struct {
		send    func(jsonrpc.Message) jsonrpc.Message
		between func(r *Recorder) func(say func(string))
		secrets string
		wants   string
	}{
		"the same":  {same, nil, "", `"id":5,"method":"m","params":{"x":"geheim-123"}`},
		"other id":  {func(m jsonrpc.Message) jsonrpc.Message { return m.WithID(jsonrpc.IntID(6)) }, nil, "", `"id":6,"method":"m","params":{"x":"geheim-123"}`},
		"secret id": {func(m jsonrpc.Message) jsonrpc.Message { return m.WithID(jsonrpc.IntID(987654321)) }, nil, "987654321", `"id":"[redacted]","method":"m","params":{"x":"geheim-123"}`},
		"learned": {same, func(*Recorder) func(func(string)) {
			return func(say func(string)) { say(`{"jsonrpc":"2.0","method":"n","params":{"token":"` + secret + `"}}`) }
		}, "", `"x":"[redacted]"`},
		"other Redactor": {same, func(r *Recorder) func(func(string)) {
			return func(func(string)) { r.SetRedactor(redactor(t, redact.Options{Secrets: []string{secret}})) }
		}, "", `"x":"[redacted]"`},
		"other text": {func(m jsonrpc.Message) jsonrpc.Message { return m.WithParams([]byte(`{"token":"abc"}`)) }, nil, "", `"token":"[redacted]"`},
	} {
		t.Run(name, func(t *testing.T) {
			var o observe.Observer
			r := NewRecorder(&o, redactor(t, redact.Options{Secrets: []string{c.secrets}}))
			between := nothing
			if c.between != nil {
				between = c.between(r)
			}
			if line := from(t, r, c.send, between); !strings.Contains(line, c.wants) {
				t.Errorf("%s\nhas no %s", line, c.wants)
			}
		})
	}
}
