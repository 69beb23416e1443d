package jsonrpc

import "testing"

// What a server prints with the id of a request, and which is no request, is
// all the answer that will come.
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
		if e.Answers() != want {
			t.Errorf("%s is an answer: %v, want %v (kind %d, code %d)", text, e.Answers(), want, e.Kind, e.Code)
		}
	}
}
