//go:build unix

package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/tests/hostile"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestHostileFile: a file of hostile records is shown, exported and replayed by the program itself: what it writes does
// nothing to a terminal or a browser, and it ends with a status of its own.
func TestHostileFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "trace")
	lines := hostile.TraceLines(7, 500)
	writeFile(t, file, string(hostile.JoinLines(lines)))
	text, page := hostile.CheckTerminalSafe, hostile.CheckHTMLExport
	for _, c := range []struct {
		args   string
		status int
		check  func([]byte) error
	}{
		{"trace FILE", 0, text}, {"trace FILE -vv --http !status:ok", 0, text}, {"trace FILE --lost", 1, text},
		{"trace FILE --export har", 0, hostile.CheckHAR}, {"trace FILE --export otlp", 0, hostile.CheckOTLP}, {"trace FILE --export html ses:s1", 0, page},
		{"replay FILE --wait 1ms -- " + childBin, 2, text}, {"replay FILE --allow-redacted --hop up --wait 1ms http://127.0.0.1:1/mcp", 2, text},
		{"replay --stdio FILE", 2, text}, {"replay --serve --listen 127.0.0.1:0 FILE", 2, text},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "FILE", file))
		status, stdout, stderr := runBridge(t, nil, args...)
		if status != c.status || strings.Contains(stderr, "goroutine ") {
			t.Errorf("%s: status %d, want %d: %.500s", c.args, status, c.status, stderr)
		}
		for _, err := range []error{c.check([]byte(stdout)), hostile.CheckTerminalSafe([]byte(stderr))} {
			if err != nil {
				t.Errorf("%s: %v", c.args, err)
			}
		}
		if !strings.Contains(stderr, "line ") && !strings.Contains(c.args, "--lost") {
			t.Errorf("%s: no line is named: %.500s", c.args, stderr)
		}
	}
}

// TestHostilePeers: what a hostile client and a hostile server say arrives as the text it is, at everybody who looks at
// the bridge, and in recordings.
func TestHostilePeers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens, recording := filepath.Join(dir, "tokens"), filepath.Join(dir, "recording")
	const token = "view-token-0123456789"
	writeFile(t, tokens, "act "+token+"\n")
	addr := bridgetest.FreeAddr(t)
	s := serve(t, []string{"--inspect=" + addr, "--inspect-token-file", tokens, "--record", recording, "--isolation", "session"})
	viewed := followPage(t, addr, token)
	live := start(t, nil, bridgeBin, "trace", fmt.Sprint(s.Cmd.Process.Pid), "-vv", "--http")
	live.waitLog(regexp.MustCompile(`looking at serve`))
	printed := make(chan []byte, 1)
	go func() {
		out, _ := io.ReadAll(live.stdout) // until the bridge has ended
		printed <- out
	}()
	root := s.site()
	messages := hostile.Messages(11, 200)
	for i, transport := range transports {
		talk, err := root.openAs(t.Context(), transport, "2025-06-18")
		bridgetest.Must(t, err)
		said := messages[i*len(messages)/len(transports) : (i+1)*len(messages)/len(transports)]
		for _, m := range said { // each is answered, or refused, or no request
			if jsonrpcKind(m) == "notification" {
				_ = talk.notify(t.Context(), string(m))
			}
		}
		var all []string
		for _, m := range said {
			all = append(all, strings.ReplaceAll(string(m), "$ID", "$"))
		}
		all = append(all, "\x1b]52;c;ZXZpbA==\x07 is no message", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}", `{"jsonrpc":"2.0","id":$ID,"result":{"text":"<script>window.pwned=1</script>"}}`)
		if _, err := talk.exchange(t.Context(), emit(`"<script>"`, all...), nil); err != nil {
			t.Errorf("%s: %v", transport, err)
		}
		talk.close()
	}
	for _, text := range hostile.Texts {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			continue // no header can have it
		}
		root.ask(t, "GET", "/nowhere", "", http.Header{"Origin": {text}, "User-Agent": {text}, "Mcp-Session-Id": {text}, "X-Text": {text}})
		root.ask(t, "POST", "/mcp", text, nil)
	}
	for _, path := range []string{"", "servers", "sessions", "processes", "notes"} {
		resp, err := newSite(t, "http://"+addr).as("Authorization", "Bearer "+token).request(t.Context(), "GET", "/api/v1/"+path, "", nil)
		bridgetest.Must(t, err)
		var body bytes.Buffer
		_, err = body.ReadFrom(resp.Body)
		bridgetest.Must(t, err)
		resp.Body.Close()
		if !json.Valid(body.Bytes()) || bytes.ContainsAny(body.Bytes(), "<>\x1b") || resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v %s", path, resp.Header, body.Bytes())
		}
	}
	s.proc.stop()
	mustRecords(t, "the stream", viewed["application/x-ndjson"]())
	var data []string
	for line := range strings.Lines(viewed["text/event-stream"]()) {
		switch kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":"); kind {
		case "data":
			data = append(data, strings.TrimPrefix(rest, " "))
		case "id", "":
		default:
			t.Errorf("the stream of events has the line %q", line)
		}
	}
	mustRecords(t, "the stream of events", strings.Join(data, "\n"))
	mustRecords(t, "the recording", harness.ReadFile(t, recording))
	if info, err := os.Stat(recording); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the recording: %v, %v", info, err)
	}
	out := <-printed
	if err := hostile.CheckTerminalSafe(out); err != nil || len(out) < 10_000 {
		t.Errorf("trace of the bridge printed %d bytes: %v", len(out), err)
	}
}

func jsonrpcKind(m []byte) string {
	var v struct {
		ID     json.RawMessage
		Method *string
	}
	switch _ = json.Unmarshal(m, &v); {
	case v.Method == nil:
		return "response"
	case v.ID == nil:
		return "notification"
	}
	return "request"
}

// mustRecords fails the test unless a text is many lines, each a record without a control character of ASCII that JSON forbids.
func mustRecords(t *testing.T, what, text string) {
	t.Helper()
	n := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		n++
		if _, err := trace.Parse([]byte(line)); err != nil || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' }) {
			t.Fatalf("%s, record %d: %v: %.500q", what, n, err, line)
		}
	}
	if n < 100 {
		t.Errorf("%s has %d records", what, n)
	}
}
