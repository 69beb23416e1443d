//go:build unix

package tests

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// canaries are the secrets of a test: one for each place where one occurs. Servers of the test use
// them in goroutines of their own.
type canaries struct {
	mu  sync.Mutex
	all map[string]string
}

// at returns the secret of a place.
func (c *canaries) at(place string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]string{}
	}
	if c.all[place] == "" {
		c.all[place] = "Cn4ry/" + place + "+7f"
	}
	return c.all[place]
}

// check fails the test if an output has a secret, however it is spelled.
func (c *canaries) check(t *testing.T, output, text string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if text == "" {
		t.Errorf("%s is empty", output)
	}
	for place, secret := range c.all {
		for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), strings.ReplaceAll(secret, "/", `\/`),
			strings.ReplaceAll(secret, "+", `\u002b`), strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "="), place + "+7f"} {
			if i := strings.Index(text, form); i >= 0 {
				t.Errorf("%s has the secret of %s: %q", output, place, text[max(0, i-300):min(len(text), i+40)])
				break
			}
		}
	}
}

// indiscreet is a remote server that says what it should keep to itself.
func indiscreet(t *testing.T, c *canaries) *httptest.Server {
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Mcp-Session-Id", c.at("session"))
		w.Header().Set("Set-Cookie", "a="+c.at("setcookie"))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasPrefix(r.URL.Path, "/gone"):
			w.Header().Set("Location", "http://me:"+c.at("locationuser")[6:]+"@other.example/x?token="+url.QueryEscape(c.at("location")))
			w.WriteHeader(http.StatusFound)
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case bytes.Contains(body, []byte(`"initialize"`)):
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"far","version":"1"}}}`, idIn(body))
		case bytes.Contains(body, []byte(`"id"`)):
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":%q,"data":{"requestState":%q,"got":%q}}}`, idIn(body),
				"who is "+r.Header.Get("Authorization")+" of "+r.URL.RawQuery, c.at("state"), string(body))
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(far.Close)
	return far
}

var idOf = regexp.MustCompile(`"id":("[^"]*"|[0-9]+)`)

func idIn(body []byte) string {
	if m := idOf.FindSubmatch(body); m != nil {
		return string(m[1])
	}
	return "null"
}

// With everything on that tells what passes, nothing that it tells has a secret.
func TestNoSecretAnywhere(t *testing.T) {
	t.Parallel()
	var c canaries
	far := indiscreet(t, &c)
	host := strings.TrimPrefix(far.URL, "http://")
	var mu sync.Mutex
	var sent bytes.Buffer // spans
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		sent.Write(body)
		mu.Unlock()
	}))
	defer collector.Close()
	dir := t.TempDir()
	config, tokens, views, file := filepath.Join(dir, "servers.json"), filepath.Join(dir, "tokens"), filepath.Join(dir, "views"), filepath.Join(dir, "trace")
	writeFile(t, config, fmt.Sprintf(`{"mcpServers":{
		"near": {"command":"sh","args":["-c","echo \"db $DB up, password=%s\" >&2; exec \"$CHILD\"",%q],"env":{"DB":%q,"NESTED":"x-${INNER}","CHILD":%q}},
		"far": {"url":%q,"headers":{"Authorization":"Bearer ${FAR}","X-Api-Key":%q}},
		"gone": {"url":%q}}}`, c.at("stderr"), c.at("argument"), c.at("configenv"), childBin,
		"http://me:"+url.QueryEscape(c.at("userinfo"))+"@"+host+"/mcp?key="+url.QueryEscape(c.at("query")), c.at("apikey"), far.URL+"/gone?sig="+url.QueryEscape(c.at("sig"))))
	writeFile(t, tokens, "me "+c.at("clienttoken")+"-0123456789abcdef\n")
	writeFile(t, views, "act "+c.at("viewtoken")+"-0123456789abcdef me\n")
	metrics, page := bridgetest.FreeAddr(t), bridgetest.FreeAddr(t)
	s := serveArgv(t, []string{"FAR=" + c.at("variable"), "INNER=" + c.at("inner"), "OTEL_BSP_SCHEDULE_DELAY=20",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + collector.URL + "/v1/traces", "OTEL_EXPORTER_OTLP_HEADERS=k=" + c.at("otlpheader"), "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"},
		bridgeBin, "serve", "--listen", "127.0.0.1:0", "--log-level", "trace", "--config", config, "--token-file", tokens, "--trace", file,
		"--metrics", metrics, "--metrics-tools", "--inspect="+page, "--inspect-token-file", views)
	pid := strconv.Itoa(s.Cmd.Process.Pid)
	harness.WaitUntil(t, "the control socket", func() bool {
		_, err := os.Stat(filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "mcp-bridge", pid+".sock"))
		return err == nil
	})
	var live []*proc
	for _, flags := range [][]string{{"--json"}, {"-vv", "--http"}, {"-v", "--http"}} {
		p := start(t, nil, append([]string{bridgeBin, "trace", pid}, flags...)...)
		p.waitLog(regexp.MustCompile(`looking at serve`))
		live = append(live, p)
	}
	viewed := followPage(t, page, c.at("viewtoken")+"-0123456789abcdef")
	root := s.site().as("Authorization", "Bearer "+c.at("clienttoken")+"-0123456789abcdef")
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"deep":[{"api_key":%q}],"text":%q,"plain":"a"}}}`,
		c.at("member"), `{"password":"`+c.at("nested")+`"}`)
	for _, name := range []string{"near", "far", "gone"} {
		at := root.at("/servers/"+name).as("Cookie", "a="+c.at("cookie"), "Mcp-Param-Pin", c.at("param"))
		for _, transport := range transports {
			talk := firstTalker(t, at, transport)
			_, _ = talk.exchange(t.Context(), initialize("2025-06-18"), nil)
			_, _ = talk.exchange(t.Context(), call, nil)
			_, _ = talk.exchange(t.Context(), `{"jsonrpc":"2.0","id":3,"method":"echo","params":{"requestState":"`+c.at("clientstate")+`"}}`, nil)
			_, _ = talk.exchange(t.Context(), `{"jsonrpc":"2.0","id":4,"method":"env","params":{"text":"DB"}}`, nil)
			talk.close()
		}
		at.ask(t, "GET", "/ws?token="+url.QueryEscape(c.at("clientquery")), "", nil)
		at.ask(t, "GET", "/mcp", "", http.Header{"X-Api-Key": {c.at("clientkey")}})
		at.ask(t, "GET", "/mcp", "", http.Header{"Mcp-Session-Id": {c.at("clientsession")}, "Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+c.at("basic")))}})
	}
	get := func(addr, path string) string {
		resp, err := newSite(t, "http://"+addr).as("Authorization", "Bearer "+c.at("viewtoken")+"-0123456789abcdef").request(t.Context(), "GET", path, "", nil)
		bridgetest.Must(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		bridgetest.Must(t, err)
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", path, resp.StatusCode)
		}
		return string(body)
	}
	for _, path := range []string{"", "servers", "sessions", "processes", "notes", "records"} {
		c.check(t, "the API's "+path, get(page, "/api/v1/"+path))
	}
	c.check(t, "/metrics", get(metrics, "/metrics"))
	harness.WaitUntil(t, "spans", func() bool { mu.Lock(); defer mu.Unlock(); return sent.Len() > 0 })
	s.proc.stop()
	for _, p := range live {
		all, err := io.ReadAll(p.stdout)
		bridgetest.Must(t, err)
		c.check(t, fmt.Sprintf("%q", p.Cmd.Args[1:]), string(all))
	}
	for kind, stream := range viewed {
		c.check(t, "the page's stream, "+kind, stream())
	}
	c.check(t, "the log", s.Log())
	c.check(t, "the trace", harness.ReadFile(t, file))
	mu.Lock()
	defer mu.Unlock()
	c.check(t, "the spans", sent.String())
	for _, format := range []string{"har", "otlp", "html"} {
		_, out, _ := runBridge(t, nil, "trace", file, "--export", format)
		c.check(t, format, out)
	}
}

// followPage reads the stream of records as the page of --inspect does, and as a program. What came is returned
// once the bridge has ended.
func followPage(t *testing.T, addr, token string) map[string]func() string {
	t.Helper()
	viewed := map[string]func() string{}
	for _, kind := range []string{"text/event-stream", "application/x-ndjson"} {
		resp, err := newSite(t, "http://"+addr).as("Authorization", "Bearer "+token).request(t.Context(), "GET", "/api/v1/stream", "", http.Header{"Accept": {kind}})
		bridgetest.Must(t, err)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != kind {
			t.Fatalf("%s: status %d, %s", kind, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
		all := make(chan string, 1)
		go func() {
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body) // until it is cut off
			all <- string(text)
		}()
		viewed[kind] = sync.OnceValue(func() string { return <-all })
	}
	return viewed
}

// A recording has no secret, wherever it came from: a command, a remote server, a server with several transports.
func TestNoSecretInRecording(t *testing.T) {
	t.Parallel()
	var c canaries
	far := indiscreet(t, &c)
	host := strings.TrimPrefix(far.URL, "http://")
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"deep":[{"api_key":%q}],"text":%q,"plain":"a"}}}`,
		c.at("member"), `{"password":"`+c.at("nested")+`"}`)
	says := []string{initialize("2025-06-18"), call, `{"jsonrpc":"2.0","id":3,"method":"echo","params":{"requestState":"` + c.at("clientstate") + `"}}`,
		`{"jsonrpc":"2.0","id":4,"method":"env","params":{"text":"KEY"}}`}
	dir := t.TempDir()
	for name, target := range map[string][]string{
		"a command": {"--env", "KEY=" + c.at("env"), "--env", "NAMED", "--", "sh", "-c", `echo "token=$KEY other=$NAMED" >&2; exec "$CHILD" # "$0"`, "--token=" + c.at("argument")},
		"a URL": {"--header", "Authorization: Bearer " + c.at("bearer"), "--header", "X-Api-Key: " + c.at("key"),
			"http://me:" + url.QueryEscape(c.at("userinfo")) + "@" + host + "/mcp?key=" + url.QueryEscape(c.at("query"))},
	} {
		file := filepath.Join(dir, name)
		p := start(t, []string{"CHILD=" + childBin, "NAMED=" + c.at("named")}, append([]string{bridgeBin, "record", file, "--log-level", "trace"}, target...)...)
		for _, line := range says {
			p.send(line)
			p.line()
		}
		p.stop()
		text := harness.ReadFile(t, file)
		c.check(t, "the recording of "+name, text)
		c.check(t, "the log with "+name, p.Log())
		if !strings.Contains(text, "[redacted]") || !strings.Contains(text, `"plain":"a"`) || strings.Contains(text, `"cut"`) {
			t.Errorf("the recording of %s is\n%s", name, text)
		}
	}
	file, tokens := filepath.Join(dir, "served"), filepath.Join(dir, "tokens")
	writeFile(t, tokens, "me "+c.at("clienttoken")+"-0123456789abcdef\n")
	s := serveArgv(t, []string{"CHILD=" + childBin}, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--record", file, "--token-file", tokens, "--", "sh", "-c", `exec "$CHILD" # "$0"`, c.at("servedargument"))
	root := s.site().as("Authorization", "Bearer "+c.at("clienttoken")+"-0123456789abcdef", "Cookie", "a="+c.at("cookie"), "Mcp-Param-Pin", c.at("param"))
	for _, transport := range transports {
		talk := firstTalker(t, root, transport)
		for _, line := range says[:3] {
			_, _ = talk.exchange(t.Context(), line, nil)
		}
		talk.close()
	}
	root.ask(t, "GET", "/ws?token="+url.QueryEscape(c.at("clientquery")), "", nil)
	s.proc.stop()
	c.check(t, "the recording of serve", harness.ReadFile(t, file))
}

// What doctor prints and packs has no secret.
func TestNoSecretFromDoctor(t *testing.T) {
	t.Parallel()
	var c canaries
	far := indiscreet(t, &c)
	host := strings.TrimPrefix(far.URL, "http://")
	script := `echo "token=$KEY other=$NAMED" >&2; exec "$CHILD"`
	config := configFile(t, `{"mcpServers":{
		"local":{"command":"sh","args":["-c",`+quote(script)+`,"${NAMED}"],"env":{"KEY":`+quote(c.at("fileenv"))+`,"CHILD":`+quote(childBin)+`}},
		"far":{"url":`+quote(far.URL+"/mcp?key="+url.QueryEscape(c.at("filequery")))+`,"headers":{"Authorization":"Bearer ${NAMED}","X-Api-Key":`+quote(c.at("filekey"))+`}}}}`)
	for i, target := range [][]string{
		{"--env", "KEY=" + c.at("env"), "--env", "NAMED", "--", "sh", "-c", script, "--token=" + c.at("argument")},
		{"--env", "KEY=" + c.at("env"), "--env", "NAMED", "--", "sh", "-c", `echo "token=$KEY other=$NAMED" >&2; exit 3`, "--token=" + c.at("argument")},
		{"--header", "Authorization: Bearer " + c.at("bearer"), "--header", "X-Api-Key: " + c.at("key"), "http://me:" + url.QueryEscape(c.at("userinfo")) + "@" + host + "/mcp?key=" + url.QueryEscape(c.at("query"))},
		{far.URL + "/gone?sig=" + url.QueryEscape(c.at("sig"))},
		{"--config", config, "--pass-env", "all", "local"},
		{"--config", config, "far"},
	} {
		pack := filepath.Join(t.TempDir(), "report.zip")
		for _, flags := range [][]string{{"--json"}, {"--bundle", pack}} {
			_, stdout, stderr := runBridge(t, []string{"CHILD=" + childBin, "NAMED=" + c.at("named")}, append(append([]string{"doctor"}, flags...), target...)...)
			c.check(t, fmt.Sprintf("doctor %q, target %d", flags[0], i), stdout+stderr)
		}
		z, err := zip.OpenReader(pack)
		bridgetest.Must(t, err)
		said := false
		for _, f := range z.File {
			r, err := f.Open()
			bridgetest.Must(t, err)
			text, err := io.ReadAll(r)
			bridgetest.Must(t, err)
			c.check(t, fmt.Sprintf("%s, target %d", f.Name, i), string(text))
			if f.Name == "trace.jsonl" {
				for r, err := range trace.NewReader(bytes.NewReader(text)).Records() {
					bridgetest.Must(t, err)
					said = said || r.Kind == trace.Request && r.Body.Text != nil
				}
			}
		}
		if !said && i != 1 { // which may end before it can be told anything
			t.Errorf("target %d: no message is in the bundle", i)
		}
		z.Close()
	}
}

// What the environment says of the collector is not in the log, whatever is wrong with it.
func TestNoSecretOfCollector(t *testing.T) {
	t.Parallel()
	var c canaries
	rude := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "refused: "+r.Header.Get("Authorization")+" at "+r.URL.String(), http.StatusForbidden)
	}))
	defer rude.Close()
	for _, endpoint := range []string{"http://me:" + url.QueryEscape(c.at("user")) + "@127.0.0.1:1/v1/traces?token=" + url.QueryEscape(c.at("query")),
		"http://[bad/%zz?token=" + c.at("bad"), "127.0.0.1:1?token=" + c.at("noscheme"), rude.URL + "/" + c.at("path")} {
		p := start(t, []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + endpoint, "OTEL_BSP_SCHEDULE_DELAY=20",
			"OTEL_EXPORTER_OTLP_HEADERS=authorization=" + url.PathEscape("Bearer "+c.at("header")) + "," + c.at("half")},
			bridgeBin, "connect", "--log-level", "trace", "--", childBin)
		p.send(initialize("2025-06-18"))
		p.line()
		p.waitLog(regexp.MustCompile(`spans could not be sent`))
		p.waitLog(regexp.MustCompile(`settings of spans are not right`))
		p.stop()
		c.check(t, "the log with "+endpoint, p.Log())
	}
}
