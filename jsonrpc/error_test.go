package jsonrpc

import "testing"

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
