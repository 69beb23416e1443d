package tests

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A world is the machine on which the lines of one page are typed, and the shell that takes them.
type world struct {
	t     *testing.T
	dir   string // where the shell is
	ca    *authority
	ids   *issuer // https://id.example.com
	shell *exec.Cmd
	in    io.WriteCloser
	done  *bufio.Reader // a line for each that is done: its status, or the id of a process
	lines int
	jobs  []*job // that still run

	client *proc // a client's bridge, which watches looks at
}

// A job runs beside the shell.
type job struct {
	text     string
	pid      int
	out, log string // files
	host     string // where it serves
}

// demoAddress is where a demo is that stands behind https://mcp.example.com.
const demoAddress = "127.0.0.1:7999"

// runPage runs the lines of a page. It is alone in its namespaces.
func runPage(t *testing.T, page string) {
	w := newWorld(t, page)
	for _, c := range commandsOf(t, page) {
		if r, _ := ruleFor(c.text); r.judge != nil {
			began := time.Now()
			r.judge(w, c)
			t.Logf("%s:%d: %v: %s", c.file, c.line, time.Since(began).Round(time.Millisecond), c.text)
		}
	}
	w.endJobs()
	if snippets := snippetsOf(t, page); len(snippets) > 0 {
		serves(w, command{page, 0, "mcp-bridge serve --demo"})
		for _, s := range snippets {
			s.judge(w)
			t.Logf("%s: %s: %s%q %s", s.file, s.name, s.Command, s.Args, s.URL)
		}
		w.endJobs()
	}
}

func newWorld(t *testing.T, page string) *world {
	w := &world{t: t, dir: t.TempDir(), ca: newCA(t, "ca")}
	authority := w.ca.write(t, t.TempDir())
	for name, value := range map[string]string{
		"HOME": w.dir, "SSL_CERT_FILE": authority, "CURL_CA_BUNDLE": authority, "AUTH": "Bearer " + annToken,
		"BROWSER": os.Args[0] + " browse " + filepath.Join(w.dir, "opened") + " %s",
		"PATH":    w.programs() + ":" + os.Getenv("PATH"),
	} {
		t.Setenv(name, value)
	}
	w.mounts()
	w.network()
	w.files()
	w.hosts(page == "README.md" || page == "docs/sign-in.md")
	w.startShell()
	return w
}

// mounts gives the machine folders of its own where the examples write or look.
func (w *world) mounts() {
	etc, none := w.t.TempDir(), w.t.TempDir()
	bridgetest.Must(w.t, os.Mkdir(etc+"/ssl", 0o755))
	for _, name := range []string{"alternatives", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "passwd", "ssl/openssl.cnf"} {
		if _, err := os.Stat("/etc/" + name); err == nil {
			out, err := exec.Command("cp", "-R", "/etc/"+name, filepath.Dir(filepath.Join(etc, name))).CombinedOutput()
			must(w.t, err, out)
		}
	}
	writeFile(w.t, etc+"/hosts", "127.0.0.1 localhost mcp.example.com example.com id.example.com\n")
	bridgetest.Must(w.t, os.Mkdir(etc+"/mcp-bridge", 0o755))
	writeFile(w.t, etc+"/mcp-bridge/servers.json", serversFile)
	err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, "")
	for _, m := range [][2]string{{etc, "/etc"}, {w.t.TempDir(), "/srv"}, {w.t.TempDir(), "/run"}, {none, "/usr/local/bin"}} {
		if err == nil {
			err = syscall.Mount(m[0], m[1], "", syscall.MS_BIND, "")
		}
	}
	if err != nil {
		skipNamespaces(w.t, "the right to mount", err)
	}
	bridgetest.Must(w.t, os.Mkdir("/srv/data", 0o755))
}

// network brings the loopback interface up, which is all the network that there is.
func (w *world) network() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	bridgetest.Must(w.t, err)
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	bridgetest.Must(w.t, err)
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	bridgetest.Must(w.t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo))
}

const serversFile = `{"mcpServers": {"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv/data"]}}}`

// programs makes what the examples start, and returns its folder. Whatever MCP server it is, the demo is what runs.
func (w *world) programs() string {
	dir := w.t.TempDir()
	bridgetest.Must(w.t, os.Symlink(bridgeBin, filepath.Join(dir, "mcp-bridge")))
	for name, script := range map[string]string{
		"uvx": "exec mcp-bridge demo", "tsx": "exec mcp-bridge demo", "python": "exec mcp-bridge demo", "sudo": `exec "$@"`,
		"npx":  `[ "$1" != mcp-bridge ] || { shift; exec mcp-bridge "$@"; }; exec mcp-bridge demo`,
		"node": `echo Server running on stdio; exec mcp-bridge demo`,
		"go": `case "$1 $2" in
"run ./cmd/mcp-bridge") shift 2; exec mcp-bridge "$@" ;;
"env GOPATH") echo "$HOME/go" ;;
*) exit 2 ;;
esac`,
		"docker": dockerScript,
	} {
		w.program(filepath.Join(dir, name), script)
	}
	return dir
}

// dockerScript knows the flags of docker run that the examples have, and runs what the image would.
const dockerScript = `[ "$1" = run ] || exit 0
shift
while :; do
	case $1 in
	-p | --env | --tmpfs | --cap-drop | --security-opt | --pids-limit | --memory | --cidfile) shift 2 ;;
	--rm | -i | --read-only | --cidfile=*) shift ;;
	-*) echo "unknown flag: $1" >&2; exit 125 ;;
	*) break ;;
	esac
done
image=$1
shift
case $image in
mcp-bridge) exec mcp-bridge "$@" ;;
my-server) exec mcp-bridge serve --demo --listen 0.0.0.0:8080 --insecure --allow-host localhost ;;
mcp/fetch) exec mcp-bridge demo ;;
*) echo "no such image: $image" >&2; exit 125 ;;
esac`

// must fails the test, and shows what a program has said.
func must(t *testing.T, err error, out []byte) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func (w *world) program(file, script string) {
	bridgetest.Must(w.t, os.MkdirAll(filepath.Dir(file), 0o755))
	bridgetest.Must(w.t, os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
}

// files writes what the examples name.
func (w *world) files() {
	in := func(name string) string { return filepath.Join(w.dir, name) }
	for _, file := range []string{in("my-server"), "/srv/data/my-server", in("go/bin/mcp-bridge")} {
		w.program(file, "exec mcp-bridge demo")
	}
	w.ca.issue(w.t, w.dir, "cert", "mcp.example.com", "localhost")
	bridgetest.Must(w.t, os.Rename(in("cert.key"), in("key.pem")))
	for name, text := range map[string]string{
		"servers.json": serversFile, "tokens": "ann " + annToken + "\n", "secret": "s3cret-of-the-client\n",
		"scopes": "tools/call delete_* -> files:write\n",
	} {
		writeFile(w.t, in(name), text)
	}
	claude := in(".config/Claude/claude_desktop_config.json")
	bridgetest.Must(w.t, os.MkdirAll(filepath.Dir(claude), 0o755))
	writeFile(w.t, claude, serversFile)
	// A release.
	w.program(in("release/mcp-bridge"), "exec mcp-bridge")
	cmd := exec.Command("bash", "-c", `tar czf mcp-bridge_VERSION_OS_ARCH.tar.gz -C release mcp-bridge && sha256sum *.tar.gz >checksums.txt &&
mcp-bridge record FILE -- mcp-bridge demo`)
	cmd.Dir, cmd.Stdin = w.dir, strings.NewReader(initialize("2025-06-18")+"\n")
	out, err := cmd.CombinedOutput()
	must(w.t, err, out)
}

// hosts serves the hosts of the examples over TLS: an identity provider, and one with an MCP server, which may want a sign-in.
func (w *world) hosts(signIn bool) {
	w.ids = &issuer{authtest.IssuerAt(w.t, "https://id.example.com")}
	env := []string{"XDG_RUNTIME_DIR=" + w.t.TempDir()} // it is elsewhere: trace does not find it
	demo := start(w.t, env, bridgeBin, "serve", "--demo", "--listen", demoAddress)
	demo.waitLog(regexp.MustCompile("listening"))
	open := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		harness.ReadBody(r)
		r.SetURL(&url.URL{Scheme: "http", Host: demoAddress})
	}}
	protected := authtest.ServerAt("https://mcp.example.com")
	dir := w.t.TempDir()
	w.ca.issue(w.t, dir, "hosts", "mcp.example.com", "example.com", "id.example.com")
	cert, err := tls.LoadX509KeyPair(dir+"/hosts.pem", dir+"/hosts.key")
	bridgetest.Must(w.t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:443", &tls.Config{Certificates: []tls.Certificate{cert}})
	bridgetest.Must(w.t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Host == "id.example.com" {
			w.ids.ServeHTTP(rw, r)
			return
		}
		if signIn && r.URL.Path != "/sse" && r.URL.Path != "/message" {
			protected.ServeHTTP(rw, r)
			return
		}
		open.ServeHTTP(rw, r)
	})}
	go s.Serve(l)
	w.t.Cleanup(func() { s.Close() })
}

// startShell starts the shell, as a session of its own, so that nothing of it stays.
func (w *world) startShell() {
	r, done, err := os.Pipe()
	bridgetest.Must(w.t, err)
	w.shell = exec.Command("bash")
	w.shell.Dir, w.shell.Stderr, w.shell.ExtraFiles = w.dir, os.Stderr, []*os.File{done}
	w.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w.in, err = w.shell.StdinPipe()
	bridgetest.Must(w.t, err)
	bridgetest.Must(w.t, w.shell.Start())
	done.Close()
	w.done = bufio.NewReader(r)
	w.t.Cleanup(func() {
		syscall.Kill(-w.shell.Process.Pid, syscall.SIGKILL)
		w.shell.Wait()
		r.Close()
	})
}

// tell has the shell do something, and returns the number that it answers.
func (w *world) tell(script string) int {
	w.t.Helper()
	_, err := io.WriteString(w.in, script)
	bridgetest.Must(w.t, err)
	timer := time.AfterFunc(harness.Patience, func() { syscall.Kill(-w.shell.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	line, err := w.done.ReadString('\n')
	bridgetest.Must(w.t, err) // the shell has ended, or takes too long
	n, err := strconv.Atoi(strings.TrimSpace(line))
	bridgetest.Must(w.t, err)
	return n
}

// redirections writes what a line gets as its stdin, and returns the files of its stdout and stderr.
func (w *world) redirections(stdin string) (out, log, text string) {
	w.lines++
	base := filepath.Join(w.dir, fmt.Sprintf(".line%d", w.lines))
	writeFile(w.t, base+".in", stdin)
	out, log = base+".out", base+".log"
	return out, log, fmt.Sprintf("<%s.in >%s 2>%s 3>&-", base, out, log)
}

// run runs a line to its end.
func (w *world) run(text, stdin string) (status int, out, log string) {
	w.t.Helper()
	out, log, to := w.redirections(stdin)
	status = w.tell("{ " + text + "\n} " + to + "\necho $? >&3\n")
	out, log = harness.ReadFile(w.t, out), harness.ReadFile(w.t, log)
	harness.Keep("log of "+text, log)
	return status, out, log
}

// start starts a line beside the shell. It is one command: nothing is between the shell and it.
func (w *world) start(text string) *job {
	w.t.Helper()
	out, log, to := w.redirections("")
	j := &job{text: text, out: out, log: log}
	j.pid = w.tell(to + " " + text + " &\necho $! >&3\n")
	w.jobs = append(w.jobs, j)
	return j
}

// end waits for the end of a job, which it asks for with SIGTERM if it does not come by itself.
func (w *world) end(j *job, ask bool) {
	w.t.Helper()
	if ask {
		syscall.Kill(j.pid, syscall.SIGTERM)
	}
	if status := w.tell(fmt.Sprintf("wait %d\necho $? >&3\n", j.pid)); status != 0 && !strings.HasPrefix(j.text, "curl ") {
		w.t.Errorf("%s: status %d\n%s", j.text, status, harness.ReadFile(w.t, j.log))
	}
	harness.Keep("log of "+j.text, harness.ReadFile(w.t, j.log))
	w.jobs = slices.DeleteFunc(w.jobs, func(other *job) bool { return other == j })
}

func (w *world) endJobs() {
	for len(w.jobs) > 0 {
		w.end(w.jobs[0], true)
	}
}

// An address is where a line serves, and what its clients need.
type address struct {
	url    string
	host   string // and port
	client *http.Client
	bearer string
}

// flagOf returns the value of a flag in a line, "" if it is not there.
func flagOf(text, name string) string {
	if m := regexp.MustCompile(name + `[ =](\S+)`).FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// addressOf reads a line of serve.
func (w *world) addressOf(text string) address {
	host, scheme, path := "127.0.0.1:8080", "http", "/mcp"
	transport := &http.Transport{TLSClientConfig: w.ca.client(), DisableKeepAlives: true}
	a := address{client: &http.Client{Transport: transport, Timeout: harness.Patience}}
	if port := flagOf(text, "--port"); port != "" {
		host = "127.0.0.1:" + port
	}
	switch listen := flagOf(text, "--listen"); {
	case strings.HasPrefix(listen, "unix:"):
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(listen, "unix:"))
		}
		host = "localhost"
	case listen != "":
		host = strings.Replace(listen, "0.0.0.0", "127.0.0.1", 1)
	}
	if strings.Contains(text, "--tls-cert") {
		scheme = "https"
		own := filepath.Join(w.dir, flagOf(text, "--tls-cert")) // a line before may have made it
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(harness.ReadFile(w.t, own)))
	}
	if strings.Contains(text, "--tls-client-ca") {
		own, err := tls.LoadX509KeyPair(filepath.Join(w.dir, "ann.pem"), filepath.Join(w.dir, "ann.key")) // lines before have made them
		bridgetest.Must(w.t, err)
		transport.TLSClientConfig.Certificates = []tls.Certificate{own}
	}
	if strings.Contains(text, "--config") {
		path = "/servers/files/mcp"
	}
	switch {
	case strings.Contains(text, "--token-file"):
		a.bearer = annToken
	case strings.Contains(text, "--oidc-issuer"):
		a.bearer = w.ids.token("ann", map[string]any{"aud": cmp.Or(flagOf(text, "--public-url"), publicURL) + "/mcp", "scope": cmp.Or(flagOf(text, "--require-scope"), "mcp")})
	}
	a.url, a.host = scheme+"://"+host+path, host
	return a
}

// post sends a message, in a session if there is an id of one.
func (a address) post(t *testing.T, message, session, bearer string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, a.url, strings.NewReader(message))
	bridgetest.Must(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := a.client.Do(r)
	bridgetest.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	bridgetest.Must(t, err)
	return resp, string(body)
}

// isInitialized says whether an answer is that of a server to initialize.
func isInitialized(text string) bool {
	for line := range strings.Lines(text) {
		var m struct {
			Result struct{ ServerInfo struct{ Name string } }
		}
		data := bytes.TrimPrefix([]byte(strings.TrimSpace(line)), []byte("data: "))
		if json.Unmarshal(data, &m) == nil && m.Result.ServerInfo.Name != "" {
			return true
		}
	}
	return false
}
