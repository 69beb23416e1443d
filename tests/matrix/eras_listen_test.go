package matrix

import (
	"strings"
	"testing"
)

// A subscription is the client's end of what it wants to be told.
type subscription struct {
	k    *eraClient
	id   string // modern
	want filter
}

// listen says what a client wants to be told, and returns when the server has
// agreed to all of it. A legacy client is told of lists without asking.
func (k *eraClient) listen(t testing.TB, want filter) *subscription {
	t.Helper()
	s := &subscription{k: k, want: want}
	if !k.modern {
		for _, uri := range want.ResourceSubscriptions {
			k.settled(t, "resources/subscribe", `{"uri":`+string(uri)+`}`)
		}
		return s
	}
	s.id = `"listen-` + k.id() + `"`
	filter := want.String()
	c := &clientCall{k: k, id: s.id, method: "subscriptions/listen", params: `"notifications":` + filter, mark: `"` + k.name + ` listens"`}
	c.send(t, "")
	m := s.take(t, "notifications/subscriptions/acknowledged") // MI21: it comes first
	if got := string(members(m.Params)["notifications"]); !sameJSON(got, filter) {
		t.Errorf("of %s the server honours %s", filter, got)
	}
	return s
}

// settled has a legacy client ask something that the bridge, or the server by
// itself, answers with nothing.
func (k *eraClient) settled(t testing.TB, method, params string) {
	t.Helper()
	id := k.id()
	k.c.say(t, request(id, method, params))
	k.c.hear(t, k.on(id), response(id, `{}`))
}

// take waits for the next message of the subscription: on a channel that
// carries others it is the first with its id.
func (s *subscription) take(t testing.TB, method string) envelope {
	t.Helper()
	on := ""
	if s.k.modern {
		on = s.k.on(s.id)
	}
	if on == "" {
		on = anywhere
	}
	return s.k.c.find(t, method+" for "+s.id, on, func(m envelope) bool {
		return m.Method == method && (!s.k.modern || string(members(members(m.Params)["_meta"])[keySubscription]) == s.id)
	}).message
}

// hears wants to be told of a change: "tools", "prompts", "resources", or a
// URI as spelled.
func (s *subscription) hears(t testing.TB, what string) {
	t.Helper()
	method, uri := "notifications/"+what+"/list_changed", ""
	if strings.HasPrefix(what, `"`) {
		method, uri = "notifications/resources/updated", what
	}
	params := members(s.take(t, method).Params)
	if got := string(params["uri"]); plain(got) != plain(uri) {
		t.Errorf("%s for %s, want %s", method, got, uri)
	}
	meta := members(params["_meta"])
	if !s.k.modern && meta[keySubscription] != nil { // C.0
		t.Errorf("a legacy client hears of the subscription %s", meta[keySubscription])
	}
}

// forget takes all that has come for the subscription, of which there must be
// some: after a restart everything may have changed.
func (s *subscription) forget(t testing.TB, what ...string) {
	t.Helper()
	for _, one := range what {
		s.hears(t, one)
	}
	s.k.c.update(func() {
		var left []frame
		for _, f := range s.k.c.inbox {
			if m := f.message; !strings.HasSuffix(m.Method, "/list_changed") && m.Method != "notifications/resources/updated" {
				left = append(left, f)
			}
		}
		s.k.c.inbox = left
	})
}

// close says that the client wants to be told no more.
func (s *subscription) close(t testing.TB) {
	t.Helper()
	if !s.k.modern {
		for _, uri := range s.want.ResourceSubscriptions {
			s.k.settled(t, "resources/unsubscribe", `{"uri":`+string(uri)+`}`)
		}
		return
	}
	(&clientCall{k: s.k, id: s.id}).cancel(t)
}

// ended wants the server to have said that it will tell no more: with a
// result, after which the lines of stdio and WebSockets say so once more (ST13).
func (s *subscription) ended(t testing.TB) {
	t.Helper()
	if !s.k.modern {
		return
	}
	c := &clientCall{k: s.k, id: s.id, loose: true}
	result := members([]byte(c.raw(t)))
	if string(result["resultType"]) != `"complete"` || string(members(result["_meta"])[keySubscription]) != s.id {
		t.Errorf("the subscription %s ended with %s", s.id, result)
	}
	if s.k.ingress == "http" {
		return
	}
	c.take(t, "notifications/cancelled", func(m envelope) bool {
		return m.Method == "notifications/cancelled" && string(members(m.Params)["requestId"]) == s.id
	})
}
