package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// nginxBin finds nginx. TEST_NGINX, which CI sets, names it; then it must be there.
func nginxBin(t testing.TB) string {
	t.Helper()
	if named := os.Getenv("TEST_NGINX"); named != "" {
		return named
	}
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no nginx here, and TEST_NGINX does not say that there should be")
	return ""
}

// An nginx is a proxy with a configuration of its own, in the foreground.
type nginx struct {
	*proc
	addr string
}

// startNginx runs nginx with what a configuration has in its http block, where
// ADDR is the address to listen on. nginx cannot pick a free port by itself.
func startNginx(t testing.TB, site string) *nginx {
	t.Helper()
	bin := nginxBin(t)
	for range 5 {
		addr := bridgetest.FreeAddr(t)
		dir := t.TempDir()
		conf := filepath.Join(dir, "nginx.conf")
		writeFile(t, conf, nginxConf(dir, strings.ReplaceAll(site, "ADDR", addr)))
		args := []string{"-p", dir, "-e", "stderr", "-c", conf}
		if out, err := exec.CommandContext(t.Context(), bin, append(args, "-t")...).CombinedOutput(); err != nil {
			t.Fatalf("nginx -t: %v\n%s", err, out)
		}
		p := start(t, nil, append([]string{bin}, args...)...)
		if m := p.waitLog(regexp.MustCompile(`start worker process|still could not bind|\[emerg\].*`)); m[0] == "start worker process" {
			return &nginx{p, addr}
		}
		p.stop()
	}
	t.Fatal("nginx found no free port")
	return nil
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	bridgetest.Must(t, os.WriteFile(path, []byte(text), 0o600))
}

// nginxConf is all that nginx needs around a site to run without privileges,
// and leaves alone what the site is about.
func nginxConf(dir, site string) string {
	user := ""
	if os.Geteuid() == 0 {
		user = "user root root;" // the folder is ours alone
	}
	return fmt.Sprintf(`daemon off;
%s
pid %[2]s/nginx.pid;
error_log stderr notice;
worker_processes 1;
events { worker_connections 256; }
http {
	access_log off;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	%s
}
`, user, dir, site)
}

// host returns where serve listens, without scheme and path.
func (s *server) host() string {
	u, err := url.Parse(s.url)
	bridgetest.Must(s.t, err)
	return u.Host
}

// webSocket is what nginx has to be told about WebSockets. Of other streams
// the plain configurations below say nothing: nginx has its own time-outs,
// its buffers, and, without these lines, HTTP/1.0 towards the bridge.
const webSocket = `proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;`

// webSocketMap belongs to it.
const webSocketMap = `map $http_upgrade $connection_upgrade { default upgrade; "" ""; }
`

// TestNginx: LI26. Whatever stands in front of the paths, and whoever takes it
// off, every transport works through nginx, and nothing stays in its buffers.
func TestNginx(t *testing.T) {
	t.Parallel()
	nginxBin(t)
	many := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, many, `{"mcpServers":{"a b":{"command":`+quote(childBin)+`}}}`)
	socket := filepath.Join(socketDir(t), "s")
	startServe(t, nil, 1, "--listen", "unix:"+socket, "--trusted-proxy", "unix", "--", childBin)
	n := startNginx(t, webSocketMap+fmt.Sprintf(`server {
	listen ADDR;
	location / { proxy_pass http://%[1]s; }
	location = /ws { proxy_pass http://%[1]s; %[6]s }
	location /kept/ { proxy_pass http://%[2]s; %[6]s }
	location /stripped/ { proxy_pass http://%[3]s/; %[6]s }
	location /told/ { proxy_pass http://%[4]s/; proxy_set_header X-Forwarded-Prefix /told; %[6]s }
	location /many/ { proxy_pass http://%[5]s; %[6]s }
	location /socket/ { proxy_pass http://unix:%[7]s:/; proxy_set_header X-Forwarded-Prefix /socket; %[6]s }
}`,
		serve(t, nil).host(),
		serve(t, []string{"--path-prefix", "/kept"}).host(),
		serve(t, []string{"--path-prefix", "/stripped"}).host(),
		serve(t, []string{"--trusted-proxy", "127.0.0.1"}).host(),
		serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--path-prefix", "/many", "--config", many).host(),
		webSocket, socket))
	for _, prefix := range []string{"", "/kept", "/stripped", "/told", "/socket", "/many/servers/a%20b"} {
		for _, transport := range transports {
			t.Run(prefix+"/"+transport, func(t *testing.T) {
				t.Parallel()
				checkUnbuffered(t, newSite(t, "http://"+n.addr+prefix), transport)
			})
		}
	}
	index := newSite(t, "http://"+n.addr).ask(t, http.MethodGet, "/many/servers", "", nil)
	if want := `"/many/servers/a%20b/sse"`; index.status != http.StatusOK || !strings.Contains(index.body, want) {
		t.Errorf("/servers behind a prefix: %v, want it to name %s", index, want)
	}
}

// checkUnbuffered has a call in progress of which the fixture says something
// only when what it said before has reached the client: anything that is held
// back on the way holds up everything.
func checkUnbuffered(t *testing.T, s *site, transport string) {
	t.Helper()
	const steps = 5
	c := s.mustOpen(t, transport)
	says := func(i int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t7","progress":%d}}`, i)
	}
	heard := make(chan string, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		call := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"emit","params":{"lines":[%s],"_meta":{"progressToken":"t7"}}}`, quote(says(0)))
		answer, err := c.exchange(ctx, call, func(message string) { heard <- message })
		if err != nil {
			answer = err.Error()
		}
		heard <- answer
	}()
	if got := recv(t, heard); got != says(0) {
		t.Fatalf("the client heard %s, want %s", got, says(0))
	}
	for i := 1; i <= steps; i++ {
		line := says(i)
		if i == steps {
			line = `{"jsonrpc":"2.0","id":7,"result":{"done":true}}`
		}
		bridgetest.Must(t, c.notify(t.Context(), `{"jsonrpc":"2.0","method":"notifications/emit","params":{"lines":[`+quote(line)+`]}}`))
		if got := recv(t, heard); got != line {
			t.Fatalf("the client heard %s, want %s", got, line)
		}
	}
}

// TestNginxExample: contrib/nginx is a configuration that nginx takes and that
// does what it says: TLS and HTTP/2 towards clients, a prefix, tokens, large
// messages. Only addresses and certificates are others here.
func TestNginxExample(t *testing.T) {
	t.Parallel()
	nginxBin(t)
	dir := t.TempDir()
	ca := newCA(t, "ca")
	ca.issue(t, dir, "server", "example.org")
	tokens := filepath.Join(dir, "tokens")
	writeFile(t, tokens, "ann "+annToken+"\n")
	// As the comment at its top says.
	s := serve(t, []string{"--path-prefix", "/tools", "--trusted-proxy", "loopback", "--allow-host", "example.org", "--token-file", tokens})
	example := harness.ReadFile(t, filepath.FromSlash("../contrib/nginx/mcp-bridge.conf"))
	for old, new := range map[string]string{
		"listen 443 ":                      "listen ADDR ",
		"http://127.0.0.1:8080;":           "http://" + s.host() + ";",
		"/etc/ssl/certs/example.org.pem":   filepath.Join(dir, "server.pem"),
		"/etc/ssl/private/example.org.key": filepath.Join(dir, "server.key"),
	} {
		if strings.Count(example, old) != 1 {
			t.Fatalf("contrib/nginx/mcp-bridge.conf does not have %q once", old)
		}
		example = strings.Replace(example, old, new, 1)
	}
	n := startNginx(t, example)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, n.addr)
	}
	base := &site{base: "https://example.org/tools"}
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := base.as("Authorization", "Bearer "+annToken)
			s.client = newClient(t, &http.Transport{DialContext: dial, TLSClientConfig: ca.client(), ForceAttemptHTTP2: transport != "ws"})
			checkUnbuffered(t, s, transport)
			params := big(2 << 20)
			got := mustAnswer(t, s.mustOpen(t, transport), `{"jsonrpc":"2.0","id":1,"method":"echo","params":`+params+`}`)
			if want := `{"jsonrpc":"2.0","id":1,"result":` + params + `}`; got != want {
				t.Errorf("a message of %d bytes came back as another one of %d", len(want), len(got))
			}
			s.header = nil
			_, err := s.open(t.Context(), transport)
			if r, ok := errors.AsType[*refusal](err); !ok || r.status != http.StatusUnauthorized || r.header.Get("WWW-Authenticate") == "" {
				t.Errorf("without a token: %v, want 401 with WWW-Authenticate", err)
			}
		})
	}
	client := newClient(t, &http.Transport{DialContext: dial, TLSClientConfig: ca.client(), ForceAttemptHTTP2: true})
	resp, err := client.Get("https://example.org/tools/healthz")
	bridgetest.Must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Errorf("/tools/healthz: status %d over %s, want 200 over HTTP/2", resp.StatusCode, resp.Proto)
	}
}

// TestNginxLongCall: LI26, WS5. nginx cuts off what is silent for 60 seconds,
// unless it is told otherwise. Calls of 70 seconds survive that, with progress
// and without a word. It waits that long only once in CI: where the race
// detector is.
func TestNginxLongCall(t *testing.T) {
	if !harness.RaceEnabled {
		t.Skip("takes 70 seconds; with -race it does")
	}
	t.Parallel()
	nginxBin(t)
	const seconds = 70
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	demo := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--demo")
	n := startNginx(t, webSocketMap+fmt.Sprintf(`server {
	listen ADDR;
	location / { proxy_pass http://%[1]s; }
	location = /ws { proxy_pass http://%[1]s; %[3]s }
	location /silent { proxy_pass http://%[2]s; }
}`, demo.host(), silent.Listener.Addr(), webSocket))
	ctx, cancel := context.WithTimeout(t.Context(), 4*harness.Patience)
	defer cancel()
	began := time.Now()
	// Goroutines, not subtests, which would wait for one another.
	var all sync.WaitGroup
	for _, transport := range transports {
		for _, steps := range []int{0, 14} {
			all.Go(func() {
				s := newSite(t, "http://"+n.addr)
				if err := longCall(ctx, s, transport, seconds, steps); err != nil {
					t.Errorf("%s, %d steps: after %v: %v", transport, steps, time.Since(began), err)
				}
				// Every 15 seconds; of a WebSocket one sees no pings from here.
				if got := s.comments.Load(); steps == 0 && transport != "ws" && got < 4 {
					t.Errorf("%s: %d comments came in %d seconds of silence, want at least 4", transport, got, seconds)
				}
			})
		}
	}
	all.Go(func() { // the proof that there is something to survive
		resp, err := newSite(t, "http://"+n.addr).request(ctx, http.MethodGet, "/silent", "", nil)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if took := time.Since(began); err == nil || ctx.Err() != nil || took > (seconds-1)*time.Second {
			t.Errorf("a server that says nothing was cut off after %v (%v), want it to be after a minute", took, err)
		}
	})
	all.Wait()
}

// longCall calls the demo's slow tool, with progress after every step; 0 steps
// are one of which nobody hears.
func longCall(ctx context.Context, s *site, transport string, seconds, steps int) error {
	c, err := s.open(ctx, transport)
	if err != nil {
		return err
	}
	defer c.close()
	meta := `,"_meta":{"progressToken":"slow"}`
	if steps == 0 {
		meta = ""
	}
	heard := 0
	answer, err := c.exchange(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":%d,"steps":%d}%s}}`,
		seconds, max(steps, 1), meta), func(string) { heard++ })
	if err != nil {
		return err
	}
	if !strings.Contains(answer, "done") || heard != steps {
		return fmt.Errorf("progress came %d times, want %d, and the answer is %.300s", heard, steps, answer)
	}
	return nil
}
