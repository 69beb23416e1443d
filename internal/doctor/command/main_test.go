package command

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// roleVar makes the test binary play a server. Its value is a list of words that say what is
// wrong with it; "healthy" is nothing.
const roleVar = "DOCTOR_TEST_SERVER"

func TestMain(m *testing.M) {
	if supervisor.WatchdogMain() {
		return
	}
	if role, ok := os.LookupEnv(roleVar); ok {
		play(role)
		return
	}
	// As in main: process 1 may take its time to reap what these servers leave behind.
	if _, err := supervisor.Subreap(); err != nil {
		panic(err)
	}
	bridgetest.CheckLeaks(m)
}

// server is a small MCP server with faults.
type server struct {
	faults map[string]bool
	out    *bufio.Writer
	slept  bool
}

func (s *server) has(fault string) bool { return s.faults[fault] }

func play(role string) {
	s := &server{faults: map[string]bool{}, out: bufio.NewWriter(os.Stdout)}
	for word := range strings.FieldsSeq(role) {
		s.faults[word] = true
	}
	s.begin()
	if s.has("echo") {
		io.Copy(os.Stdout, os.Stdin)
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				ProtocolVersion string
				Cursor          string
				Meta            map[string]any `json:"_meta"`
			}
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil || s.has("silent") {
			continue
		}
		s.answer(m.ID, m.Method, m.Params.ProtocolVersion, m.Params.Cursor)
	}
	s.finish()
}

// begin is what the server does before it reads.
func (s *server) begin() {
	if s.has("deaf") || s.has("unkillable") {
		signal.Ignore(syscall.SIGTERM)
	}
	switch {
	case s.has("exits"):
		fmt.Fprintln(os.Stderr, "Traceback (most recent call last):\n  ...\nModuleNotFoundError: No module named 'fastmcp'")
		os.Exit(3)
	case s.has("wants-variable") && os.Getenv("DOCTOR_TEST_KEY") == "":
		fmt.Fprintln(os.Stderr, "error: DOCTOR_TEST_KEY is not set")
		os.Exit(1)
	case s.has("waits-variable") && os.Getenv("DOCTOR_TEST_KEY") == "":
		s.faults["silent"] = true
	case s.has("tells"):
		fmt.Fprintf(os.Stderr, "bad key %s, bad argument %s\n", os.Getenv("DOCTOR_TEST_KEY"), os.Args[2])
		os.Exit(1)
	case s.has("alone"):
		if os.Mkdir(os.Getenv("DOCTOR_TEST_FILE"), 0o700) != nil {
			fmt.Fprintln(os.Stderr, "another one is running")
			os.Exit(1)
		}
	case s.has("slow"):
		beSlow(400 * time.Millisecond)
	case s.has("slow-once"):
		if f, err := os.OpenFile(os.Getenv("DOCTOR_TEST_FILE"), os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			f.Close()
			beSlow(600 * time.Millisecond)
		}
	case s.has("login"):
		fmt.Fprintln(os.Stderr, "Please log in at https://example.com/device with the code ABCD")
		s.faults["silent"] = true
	case s.has("http"):
		l, _ := net.Listen("tcp", "127.0.0.1:0")
		http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/mcp" {
				http.NotFound(w, r)
				return
			}
			w.WriteHeader(http.StatusMethodNotAllowed)
		}))
	case s.has("leaves"):
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVar+"=deaf sleeper")
		cmd.Start()
	case s.has("sleeper"):
		beSlow(time.Minute)
	}
	if s.has("noise") {
		fmt.Fprintln(os.Stdout, "Server \x1b[1mrunning\x1b[0m on stdio")
	}
}

// finish is what the server does at the end of its input.
func (s *server) finish() {
	s.out.Flush()
	if s.has("alone") {
		os.Remove(os.Getenv("DOCTOR_TEST_FILE"))
	}
	if s.has("deaf") || s.has("unkillable") {
		beSlow(time.Minute)
	}
}

func (s *server) answer(id json.RawMessage, method, version, cursor string) {
	text, members := s.result(method, version, cursor)
	if method == "server/discover" && s.has("exits-on-discover") || method == "initialize" && version != "2025-11-25" && s.has("exits-on-older") {
		os.Exit(4)
	}
	switch {
	case text == "":
		return
	case s.has("retypes"):
		if n, err := strconv.Atoi(strings.Trim(string(id), `"`)); err == nil {
			id = json.RawMessage(strconv.Itoa(n))
		}
	case s.has("rounds"):
		if n, err := strconv.ParseFloat(string(id), 64); err == nil {
			id = json.RawMessage(strconv.FormatFloat(n, 'f', -1, 64))
		}
	case s.has("numbers-only") && id[0] == '"':
		return
	}
	s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%q:%s}`, id, members, text))
}

// result returns the result or the error of a request; "" is no answer.
func (s *server) result(method, version, cursor string) (text, member string) {
	const unknown = `{"code":-32601,"message":"Method not found"}`
	switch method {
	case "initialize":
		if s.has("modern") {
			return `{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}`, "error"
		}
		if s.has("refuses-older") && version != "2025-11-25" {
			return `{"code":-32602,"message":"Unsupported protocol version"}`, "error"
		}
		switch version {
		case "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05":
		default:
			if !s.has("echoes") {
				version = "2025-11-25"
			}
		}
		if s.has("one-revision") {
			version = "2025-06-18"
		}
		capabilities := `{"tools":{}}`
		if s.has("prompts") {
			capabilities = `{"tools":{},"prompts":{}}`
		} else if s.has("undeclared") {
			capabilities = `{}`
		}
		info := `"serverInfo":{"name":"fake","version":"1"}`
		if s.has("no-info") {
			info = `"x":1`
		}
		if s.has("bad-utf8") {
			info = "\"serverInfo\":{\"name\":\"caf\xe9\",\"version\":\"1\"}"
		}
		return fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,%s}`, version, capabilities, info), "result"
	case "ping":
		return "{}", "result"
	case "server/discover":
		if s.has("modern") || s.has("both-eras") {
			return `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}`, "result"
		}
		if s.has("ignores-discover") {
			return "", ""
		}
	case "tools/list":
		return s.tools(cursor), "result"
	case "tools/call":
		if calls := os.Getenv("DOCTOR_TEST_CALLS"); calls != "" {
			f, err := os.OpenFile(calls, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				f.WriteString("x")
				f.Close()
			}
		}
		switch {
		case s.has("hangs"):
			return "", ""
		case s.has("refuses-calls"):
			return `{"code":-32602,"message":"no"}`, "error"
		case s.has("tool-error"):
			return `{"content":[{"type":"text","text":"no"}],"isError":true}`, "result"
		}
		return `{"content":[{"type":"text","text":"called"}]}`, "result"
	}
	return unknown, "error"
}

func (s *server) tools(cursor string) string {
	one := `{"name":"one","inputSchema":{"type":"object"}}`
	switch {
	case s.has("circle"):
		return `{"tools":[],"nextCursor":"again"}`
	case s.has("pages") && cursor == "":
		return `{"tools":[` + one + `],"nextCursor":"two"}`
	case s.has("pages"):
		return `{"tools":[{"name":"two","inputSchema":{"type":"object"}}]}`
	case s.has("null-cursor"):
		return `{"tools":[` + one + `],"nextCursor":null}`
	case s.has("twice"):
		return `{"tools":[` + one + `,` + one + `]}`
	case s.has("no-schema"):
		return `{"tools":[{"name":"one"}]}`
	case s.has("bad-schema"):
		return `{"tools":[{"name":"one","inputSchema":{"type":"string"}}]}`
	case s.has("bad-header"):
		return `{"tools":[{"name":"one","inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}}]}`
	case s.has("long"):
		return `{"tools":[{"name":"one","description":"` + strings.Repeat("x", 70000) + `","inputSchema":{"type":"object"}}]}`
	}
	return `{"tools":[` + one + `]}`
}

// write writes a message, in a way that depends on the faults.
func (s *server) write(message string) {
	end := "\n"
	switch {
	case s.has("crlf"):
		end = "\r\n"
	case s.has("bom") && !s.slept:
		message = "\ufeff" + message
	case s.has("prompt"):
		message = "ready> " + message
	case s.has("several-lines"):
		var b strings.Builder
		indented := json.NewEncoder(&b)
		indented.SetIndent("", "  ")
		indented.Encode(json.RawMessage(message))
		message, end = b.String(), ""
	case s.has("headers"):
		message, end = fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(message), message), ""
	case s.has("no-line-feed"):
		end = ""
	}
	s.slept = true
	io.WriteString(s.out, message+end)
	if info, err := os.Stdout.Stat(); s.has("buffers") && (err != nil || info.Mode()&os.ModeCharDevice == 0) {
		return
	}
	s.out.Flush()
}

// beSlow is for the servers of the tests: what is slow is their fault. No test waits with it
// for something to happen.
func beSlow(d time.Duration) { <-time.After(d) }
