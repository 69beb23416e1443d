package doctor

import (
	"strings"
	"testing"
	"time"
)

// Comments are advised only where they come before the cut.
func TestQuietStreamCut(t *testing.T) {
	for after, says := range map[time.Duration]string{
		5 * time.Second:  "at nginx/1.22.1 (nginx proxy_read_timeout; the idle timeout of the load balancer), which is about 5s, to a minute or more. A comment every 15 seconds, as mcp-bridge serve sends, comes too late.",
		15 * time.Second: "comes too late.",
		time.Minute:      "which is about 1m0s, or have the server send a comment every 15 seconds, as mcp-bridge serve does.",
	} {
		if f := QuietStreamCut(after, "nginx/1.22.1"); !strings.Contains(f.Advice, says) {
			t.Errorf("after %s: %s", after, f.Advice)
		}
	}
}
