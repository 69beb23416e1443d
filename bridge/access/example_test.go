package access_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
)

// Enter comes first in a handler. It returns the request with the name of its sender.
func ExamplePolicy_Enter() {
	tokens, err := access.ParseTokens("alice 0123456789abcdef")
	if err != nil {
		log.Fatal(err)
	}
	policy := access.Policy{AllowOrigins: []string{"https://app.example"}, Tokens: tokens}
	if err := policy.Validate(); err != nil {
		log.Fatal(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, refusal := policy.Enter(w, r)
		switch {
		case refusal != nil:
			http.Error(w, refusal.Reason, refusal.Status)
		case r != nil: // nil: it was a preflight, which is answered
			fmt.Fprintln(w, "hello", access.Principal(r))
		}
	})

	for _, header := range []http.Header{
		{"Authorization": {"Bearer 0123456789abcdef"}},
		{"Authorization": {"Bearer 0123456789abcdef"}, "Origin": {"https://evil.example"}},
		{},
	} {
		request := httptest.NewRequest("GET", "/", nil)
		request.Header = header
		reply := httptest.NewRecorder()
		handler.ServeHTTP(reply, request)
		fmt.Print(reply.Code, " ", reply.Body)
	}
	// Output:
	// 200 hello alice
	// 403 origin https://evil.example is not allowed (--allow-origin)
	// 401 authentication is needed: send Authorization: Bearer TOKEN, or X-API-Key: TOKEN
}
