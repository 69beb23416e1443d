package main

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// J13: that a server's progress reaches nobody is told once in the log, at the level
// that people see; anything else that is dropped is for those who look for it.
func TestDroppedProgressIsTold(t *testing.T) {
	var out strings.Builder
	log := hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info})
	progress := jsonrpc.NewNotification("notifications/progress", []byte(`{"progressToken":null,"progress":1}`))
	drop := dropped(log)
	drop(jsonrpc.NewNotification("notifications/message", nil), "no stream")
	for range 3 {
		drop(progress, "progress of no request that is in progress")
	}
	dropped(log)(progress, "another server's") // counts on its own
	if n := strings.Count(out.String(), "\n"); n != 2 || strings.Count(out.String(), "notifications/progress") != 2 {
		t.Errorf("the log has %d lines: %s", n, out.String())
	}
}
