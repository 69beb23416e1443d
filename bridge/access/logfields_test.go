package access_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
)

// Who reads that a request was refused for its Host or Origin must learn which
// one that was, or cannot know what to allow.
func TestLogFields(t *testing.T) {
	p := &access.Policy{}
	r := httptest.NewRequest("POST", "http://tools.example:8080/mcp", nil)
	r.Header.Set("Origin", "https://"+strings.Repeat("a", 200))
	const want = "[remote 192.0.2.1:1234 host tools.example:8080 origin https://"
	if got := fmt.Sprint(p.LogFields(r)); !strings.HasPrefix(got, want) || len(got) != len(want)+92+1 {
		t.Errorf("%s", got)
	}
}
