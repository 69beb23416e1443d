package jsonrpc

import (
	"strings"
	"testing"
)

// An invalid message of a server that has the id of a request, and is not a request
// itself, counts as the answer: the server will not answer again.
func TestErrorAnswers(t *testing.T) {
	for text, want := range map[string]bool{
		`{"jsonrpc":"2.0","id":8}`:                                          true,
		`{"jsonrpc":"2.0","id":8,"params":{}}`:                              true,
		`{"jsonrpc":"2.0","id":8,"result":{},"error":{}}`:                   true,
		`{"id":8,"result":{}}`:                                              true,
		`{"jsonrpc":"2.0","id":8,"method":7}`:                               false,
		`{"jsonrpc":"2.0","id":null}`:                                       false,
		`{"jsonrpc":"2.0"}`:                                                 false,
		`{"jsonrpc":"2.0","id":8`:                                           false, // may have been a request
		`{"jsonrpc":"2.0","method":"notifications/x","params":1}`:           false,
		`{"jsonrpc":"2.0","id":8,"method":"x","params":1}`:                  false,
		`{"jsonrpc":"2.0","id":{},"result":{}}`:                             false,
		`{"jsonrpc":"2.0","id":8,"error":{"code":"x","message":"no code"}}`: true,
	} {
		_, err := Parse([]byte(text))
		e, ok := err.(*Error)
		if !ok {
			t.Errorf("%s: no error", text)
			continue
		}
		if e.IsAnswer() != want {
			t.Errorf("%s is an answer: %v, want %v (kind %d, code %d)", text, e.IsAnswer(), want, e.Kind, e.Code)
		}
	}
}

// J4: a server that waits for an answer gets one, also if its id is none, as a client does.
func TestErrorRepliesToServer(t *testing.T) {
	long := strings.Repeat("x", MaxName+1)
	for text, want := range map[string]string{ // "" is no answer
		`{"jsonrpc":"2.0","id":8,"method":7}`:                "8",
		`{"jsonrpc":"2.0","id":1.5,"method":"x"}`:            "null",
		`{"jsonrpc":"2.0","method":"x","id":-1e-1}`:          "null",
		`{"jsonrpc":"2.0","id":1.5,"id":1.5,"method":"x"}`:   "null",
		`{"jsonrpc":"2.0","id":true,"method":"x"}`:           "null",
		`{"jsonrpc":"2.0","id":{},"method":"x"}`:             "null",
		`{"jsonrpc":"2.0","id":"` + long + `","method":"x"}`: "null",
		`{"jsonrpc":"2.0","id":null,"method":"x"}`:           "", // a notification of an old library
		`{"id":1.5,"method":"GET"}`:                          "", // a log
		`{"jsonrpc":"2.0","id":1.5,"result":{}}`:             "",
		`{"jsonrpc":"2.0","id":1.5`:                          "",
	} {
		_, err := Parse([]byte(text))
		e, ok := err.(*Error)
		if !ok {
			t.Errorf("%.80s: no error", text)
			continue
		}
		got := ""
		if reply, due := e.Reply(); due && e.IsRequest() {
			got = reply.ID().String()
		}
		if got != want {
			t.Errorf("%.80s is answered with the id %q, want %q", text, got, want)
		}
	}
}
