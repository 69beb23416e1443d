package streamhttp

import (
	"net/http/httptest"
	"testing"
)

// The trace that an HTTP request belongs to is that of each request in its batch.
func TestBatchTrace(t *testing.T) {
	h := NewHandler(nil, HandlerOptions{})
	defer h.Close()
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.Header.Set("Traceparent", "00-1-2-01")
	messages, _, ok := h.parseBatch(httptest.NewRecorder(), r, []byte(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`))
	if !ok || len(messages) != 2 {
		t.Fatalf("%d messages", len(messages))
	}
	for _, m := range messages {
		if mark := m.Mark(); mark == nil || mark.Traceparent != "00-1-2-01" {
			t.Errorf("%s belongs to the trace %+v", m.Bytes(), mark)
		}
	}
}
