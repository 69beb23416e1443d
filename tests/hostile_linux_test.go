package tests

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestHostileSizes: how much memory it takes to show a trace, or to replay it, depends on its longest line and not on how
// many there are; what is too long or nested too deeply is told by its line.
func TestHostileSizes(t *testing.T) {
	if harness.RaceEnabled {
		t.Skip("the race detector needs memory and time of its own")
	}
	t.Parallel()
	const size, levels = 8 << 20, 1_000_000
	file := filepath.Join(t.TempDir(), "trace")
	longest := writeHuge(t, file, size, levels)
	for _, c := range []struct {
		args string
		most int // lines of memory
		want string
	}{
		{"trace FILE", 9, "line 14: it is too long"}, {"trace FILE -vv", 9, "line 15: it is no record of a trace: its member"}, {"trace FILE --lost", 9, ""},
		{"trace FILE --export html", 9, ""},
		{"replay FILE --wait 1ms -- " + childBin, 15, "line 5: this is no message: invalid message: more than 1000 levels"},
		{"replay --stdio FILE", 15, "line 15: it is no record of a trace: its member"},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "FILE", file))
		peak, stderr := peakOf(t, args)
		t.Logf("%s: %d MiB", c.args, peak>>20)
		if most := c.most*longest + 2*trace.MaxLine + 64<<20; peak > most {
			t.Errorf("%s: it had %d MiB and may have %d", c.args, peak>>20, most>>20)
		}
		if !strings.Contains(stderr, c.want) || strings.Contains(stderr, "goroutine ") {
			t.Errorf("%s: %.2000s", c.args, stderr)
		}
	}
}

// writeHuge writes a trace of long messages and returns how long its longest line is that is read.
func writeHuge(t *testing.T, name string, size, levels int) (longest int) {
	t.Helper()
	file, err := os.Create(name)
	bridgetest.Must(t, err)
	defer file.Close()
	out := bufio.NewWriter(file)
	n := 0
	put := func(hop, kind, body string) {
		cause := ""
		if hop == "up" {
			cause = fmt.Sprintf(`,"cause":%d`, n)
		}
		n++
		line := fmt.Sprintf(`{"v":1,"seq":%d,"ts":"2026-11-21T07:40:48Z","ses":"s1","hop":%q,"dir":"c2s","kind":%q,"id":%d%s,%s}`+"\n", n, hop, kind, n, cause, body)
		if len(line) <= trace.MaxLine {
			longest = max(longest, len(line))
		}
		_, _ = out.WriteString(line)
	}
	message := func(arguments string) string {
		return fmt.Sprintf(`"msg":{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x","arguments":%s}}`, n+1, arguments)
	}
	for _, hop := range []string{"down", "up"} {
		put(hop, "request", message(`"`+strings.Repeat(hop, size/len(hop))+`"`))
	}
	for _, hop := range []string{"down", "up"} {
		put(hop, "request", message("["+strings.Repeat("0,", size/2)+`"`+hop+`"]`))
	}
	for _, hop := range []string{"down", "up"} {
		put(hop, "request", message(strings.Repeat("[", levels)+`"`+hop+`"`+strings.Repeat("]", levels)))
	}
	for _, hop := range []string{"down", "up"} {
		put(hop, "stderr", `"b64":"`+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("\x1b\x9b"), size/8))+`"`)
		put(hop, "request", `"x":`+strings.Repeat(`{"a":`, levels)+"1"+strings.Repeat("}", levels)+`,`+message("1"))
	}
	for range 3 {
		put("down", "notification", `"msg":{"jsonrpc":"2.0","method":"x","params":"`+strings.Repeat("é", size/2)+`"}`)
	}
	put("down", "request", `"raw":"`+strings.Repeat("x", trace.MaxLine)+`"`)
	put("down", "request", `"name":"`+strings.Repeat("x", size)+`"`)
	bridgetest.Must(t, out.Flush())
	return longest
}

// peakOf runs the bridge to its end and returns the most memory that it has had, in bytes, as far as one has looked.
func peakOf(t *testing.T, args []string) (peak int, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bridgeBin, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	bridgetest.Must(t, cmd.Start())
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-done:
			return peak, errs.String()
		case <-look.C:
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			if m := highWater.FindSubmatch(status); m != nil {
				kB, _ := strconv.Atoi(string(m[1]))
				peak = max(peak, kB<<10)
			}
		}
	}
}
