package observe

import (
	"bytes"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Source is what is known of a received message, for the messages that are made of it.
type Source struct {
	mark   jsonrpc.Mark   // the Mark that the message gets, and what is made of it has, too; its Of is this Source
	at     moment         // when the message came
	call   *Call          // the message, if it is a request; nil: it is none, or nobody was told of it
	textID jsonrpc.TextID // identifies the bytes of the message, without its id

	failedVerdict atomic.Int32 // what Passed.Failed returns; 0: nobody has asked; -1: false; 1: true
	told          bool         // Watchers were told of it
	unsampled     bool         // the Sampler does not want the request. If nobody else does, told is false, and call is nil

	// Memo is for the one Watcher that shows messages: what it finds out of the received message need not be found
	// out again of the message that is sent. The Watcher sets Memo when it is told of the received message. If nobody was told of
	// that (see unsampled), it sets Memo for the message that is sent. Otherwise it only reads Memo then.
	Memo any

	// Sample is what the Sampler has returned of a request when it came; nil: there was no Sampler.
	Sample any
}

// newSource returns the Source of a received message. It points to the Call of a request and does not contain it: an open Call is
// kept for long, and textID would keep the bytes of the message with it.
func newSource(m *jsonrpc.Message) *Source {
	s := &Source{textID: m.TextID()}
	s.mark.Of = s
	return s
}

// askSampler asks the Sampler, if there is one, whether it wants the request m. The Source keeps the answer in Sample and
// unsampled.
func (s *Source) askSampler(o *Observer, m *jsonrpc.Message) {
	if sampler := o.sampler.Load(); sampler != nil {
		var wanted bool
		s.Sample, wanted = (*sampler).Sample(*m)
		s.unsampled = !wanted
	}
}

// Failed reports whether the message is a response whose result says that a tool has failed (isError). It is found out
// once for a message, by the first who asks, and not again where the message is sent on as it was.
func (p *Passed) Failed() bool {
	m := &p.Message
	if m.Kind() != jsonrpc.Response || m.IsError() {
		return false
	}
	known := p.Source != nil && (!p.HasCause || p.Source.IsWhole(m))
	if known {
		if f := p.Source.failedVerdict.Load(); f != 0 {
			return f > 0
		}
	}
	verdict := int32(-1)
	if hasIsError(m) {
		verdict = 1
	}
	if known {
		p.Source.failedVerdict.Store(verdict)
	}
	return verdict > 0
}

// hasIsError reports whether the result of a response has the member isError, and that is true.
func hasIsError(m *jsonrpc.Message) bool {
	const short = 1 << 10 // to look through it costs less than to look for a member
	if result := m.Lookup("result"); len(result) <= short && bytes.IndexByte(result, '\\') < 0 && !bytes.Contains(result, []byte("isError")) {
		return false
	}
	return string(m.Lookup("result", "isError")) == "true"
}

// IsWhole reports whether m, which was made of the received message, has the same bytes but for the id. It is false for a nil Source.
func (s *Source) IsWhole(m *jsonrpc.Message) bool { return s != nil && m.TextID() == s.textID }

// sourceOf returns the received message that m was made of; nil: the bridge has made m, or nobody watched.
func sourceOf(m *jsonrpc.Message) *Source {
	mark := m.Mark()
	if mark == nil {
		return nil
	}
	source, _ := mark.Of.(*Source)
	return source
}
