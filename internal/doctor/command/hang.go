package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
)

// alternativeReplies are the replies of further processes of a server that is silent, which are started or asked otherwise.
// What was not tried is outcomeSilent.
type alternativeReplies struct {
	withTerminal reply // reply to initialize of a process whose stdout is a terminal
	withFullEnv  reply // reply to initialize of a process with Options.FullEnv
	toDiscover   reply // reply to server/discover
}

// investigateSilence is called when server has not answered its first request q for a while. It goes on waiting for the answer,
// and asks further processes meanwhile. If the answer comes, it returns it. Otherwise it tells why the server is silent, ends
// it, and returns outcomeSilent.
func (d *diagnosis) investigateSilence(ctx context.Context, server *serverProcess, q *pendingRequest) reply {
	if server.acceptUnterminated() {
		d.stopProcess(server)
		d.addStdoutFindings(server)
		return reply{outcome: outcomeSilent}
	}
	var found alternativeReplies
	others, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	try := func(to *reply, env []string, terminal bool, method, params string) {
		running.Go(func() { *to = d.requestOfNewProcess(others, env, terminal, method, params) })
	}
	found.withTerminal.outcome, found.withFullEnv.outcome, found.toDiscover.outcome = outcomeSilent, outcomeSilent, outcomeSilent
	if runtime.GOOS != "windows" && !d.spec.PTY {
		try(&found.withTerminal, nil, true, "initialize", initializeParams(era.NewestLegacy))
	}
	if d.fullEnvAddsVariables() {
		try(&found.withFullEnv, d.options.FullEnv, false, "initialize", initializeParams(era.NewestLegacy))
	}
	try(&found.toDiscover, nil, false, "server/discover", "{"+modernMeta()+"}")
	first := q.awaitReply(ctx, max(0, min(d.options.FirstAnswerTimeout-d.silenceWait(), d.timeLeft())))
	ports := listeningPorts(pidsOf(server))
	cancel() // of processes that had less time; an answer that was there counts
	running.Wait()
	if first.outcome != outcomeSilent || ctx.Err() != nil {
		if first.outcome == outcomeSilent {
			d.stopProcess(server)
		}
		return first
	}
	d.explainSilence(ctx, server, q, found, ports)
	return first
}

// requestOfNewProcess starts a process of the server, sends it one request, and ends it. env nil: the environment of the spec.
// terminal: stdout is a terminal. If no process can be started, the outcome is outcomeExited.
func (d *diagnosis) requestOfNewProcess(ctx context.Context, env []string, terminal bool, method, params string) reply {
	spec := d.spec
	spec.PTY = terminal || spec.PTY
	if env != nil {
		spec.Env = env
	}
	p, err := startProcess(ctx, spec, d.options.MaxMessageSize)
	if err != nil {
		return reply{outcome: outcomeExited}
	}
	defer d.stopProcess(p)
	return p.request(ctx, firstRequestID, method, params, d.firstAnswerWait())
}

// pidsOf returns the ids of the process p and of those that descend from it.
func pidsOf(p *serverProcess) []int {
	pids := []int{p.process.PID()}
	for _, member := range descendantsOf(p.process.PID()) {
		pids = append(pids, member.pid)
	}
	return pids
}

// explainSilence adds the finding that says why server does not answer q, and ends the server. found is what further processes have
// answered, and ports are those on which the server listens, as far as listeningPorts has found them.
func (d *diagnosis) explainSilence(ctx context.Context, server *serverProcess, q *pendingRequest, found alternativeReplies, ports []int) {
	waited := time.Since(q.sentAt).Round(100 * time.Millisecond)
	url := d.findHTTPServer(ctx, ports, server)
	server.closeStdin()
	atEnd := reply{outcome: outcomeSilent}
	if url == "" {
		atEnd = q.awaitReply(ctx, d.options.EndTimeout)
	}
	d.stopProcess(server)
	d.addStdoutFindings(server)
	seen := fmt.Sprintf("no answer to initialize in %v", waited)
	switch {
	case found.withTerminal.outcome == outcomeAnswered:
		d.addBuffered(fmt.Sprintf("%s; with a terminal as stdout, an answer after %v", seen, found.withTerminal.duration.Round(time.Millisecond)))
	case atEnd.outcome == outcomeAnswered:
		d.addBuffered(seen + "; the answer came when stdin was closed")
	case found.withFullEnv.outcome == outcomeAnswered:
		d.checkMissingVariable(ctx)
	case found.toDiscover.hasResult() && d.checkOnlyModern(ctx, &initializeFailure{"does not answer initialize", seen}):
	case d.addTextInFront(server, seen):
	case url != "":
		d.addFinding("C6", doctor.Error, "this is an HTTP server", seen+"; it listens on "+url,
			"It does not read its stdin: clients that talk to it over stdio wait until they give up.",
			"Connect to it as a remote server: mcp-bridge connect "+url+". Or start it with the option that makes it speak on stdin and stdout, often --stdio or --transport stdio.")
	case d.report.HasFinding("C10"): // which explains it
	default:
		d.addSilent(server, seen)
	}
}

// addTextInFront adds C10 if server has answered on a line that begins with other text, and reports whether it has. seen is the
// evidence that it is silent.
func (d *diagnosis) addTextInFront(server *serverProcess, seen string) bool {
	lines, count := server.faultLines(faultInFront)
	if count == 0 {
		return false
	}
	d.addFinding("C10", doctor.Error, "text stands before an answer, on the same line", seen+"; on stdout: "+lines[0],
		"A line is a message. Clients refuse this line, and the answer on it is lost. The bridge skips it, too.",
		"Write the text to stderr. Most often it is a prompt, or other text that was printed without a line break.")
	return true
}

// addBuffered adds C4: the server answers, but the answer stays in the buffer of its stdout.
func (d *diagnosis) addBuffered(seen string) {
	do := "Run the server with --pty, or have it flush stdout after each message."
	if isPython(d.spec.Path) {
		do = "Run it as \"python -u\", set PYTHONUNBUFFERED=1 (--env PYTHONUNBUFFERED=1), or have it flush stdout after each message. With --pty the bridge gives it a terminal, which helps as well."
	}
	d.addFinding("C4", doctor.Error, "the server keeps its answers in a buffer", seen,
		"It answers, but the text stays in the buffer of its stdout, as programs do when that is a pipe. Clients wait until they give up.", do)
}

// isPython reports whether the name of a program says that it is Python, or runs Python: uv, pipx.
func isPython(path string) bool {
	return slices.ContainsFunc([]string{"python", "uv", "pipx", ".py"}, func(s string) bool {
		return strings.Contains(strings.ToLower(path[strings.LastIndexAny(path, `/\`)+1:]), s)
	})
}

var (
	// loginPattern matches what servers write to stderr that wait for a login.
	loginPattern = lazyregexp.New(`(?i)\b(log ?in|sign ?in|authenticat\w*|authoriz\w*|device code|enter (the |your )?(code|password|pass ?phrase|token)|password:|open (this|the following) (url|link)|visit https?://|press (enter|any key))`)
	// helpPattern matches what servers write to stderr that print their help.
	helpPattern = lazyregexp.New(`(?im)^\s*(usage:|commands:|options:)`)
)

// addSilent adds C7: server is silent, and nothing tells why; its stderr decides the advice. seen is the evidence.
func (d *diagnosis) addSilent(server *serverProcess, seen string) {
	stderr := strings.Join(server.process.StderrTail(), "\n")
	do := "Check the arguments: many programs need a subcommand or an option to become an MCP server, such as \"mcp\", \"serve\" or --stdio. Run it in a terminal and see what it waits for."
	switch {
	case loginPattern.MatchString(stderr):
		do = "It seems to wait for a login: run it once in a terminal, log in, and try again. Or give it its credentials in the environment (--env)."
	case helpPattern.MatchString(stderr):
		do = "It prints its help: a subcommand or an option is missing."
	case isPackageRunner(d.spec.Path) && !d.options.AllowSlow:
		do = "It may still be loading the package. Try again with --slow, which waits for a minute. " + do
	}
	d.addFinding(doctor.ServerSilent.Code, doctor.Error, doctor.ServerSilent.Title, seen+"; the process runs and listens on no port"+stderrSuffix(server),
		doctor.ServerSilent.Consequence, do)
}

// isPackageRunner reports whether the name of a program is that of one which may load what it runs first: a package, as npx does, or
// the image of a container.
func isPackageRunner(path string) bool {
	name := strings.ToLower(path[strings.LastIndexAny(path, `/\`)+1:])
	name, _, _ = strings.Cut(name, ".")
	return slices.Contains([]string{"npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "uvx", "uv", "pipx", "docker", "podman", "nerdctl", "deno", "go"}, name)
}

// portPattern matches numbers of ports in what a server writes, as in its log.
var portPattern = lazyregexp.New(`(?i)(?:https?://[a-z0-9.\[\]:-]*?:|\bport[ :=]+)(\d{2,5})\b`)

// findHTTPServer returns the URL of an HTTP server on one of these ports of this machine; "": there is none. ports are those of
// listeningPorts. If there are none, it tries the ports that server has named in its output. On Linux it does that only for a package
// runner: listeningPorts finds the ports of all other servers there, but not those of a container.
func (d *diagnosis) findHTTPServer(ctx context.Context, ports []int, server *serverProcess) string {
	if len(ports) == 0 && (runtime.GOOS != "linux" || isPackageRunner(d.spec.Path)) {
		noise, _ := server.faultLines(faultNoise)
		for _, m := range portPattern.FindAllStringSubmatch(strings.Join(append(server.process.StderrTail(), noise...), "\n"), 4) {
			if port, err := strconv.Atoi(m[1]); err == nil {
				ports = append(ports, port)
			}
		}
	}
	for _, port := range ports {
		if url := httpURLAt(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); url != "" {
			return url
		}
		if url := httpURLAt(ctx, net.JoinHostPort("::1", strconv.Itoa(port))); url != "" {
			return url
		}
	}
	return ""
}

// httpURLAt returns the URL of the MCP endpoint at an address HOST:PORT, as far as that can be seen with GET requests alone;
// "": there is no HTTP server.
func httpURLAt(ctx context.Context, address string) string {
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	found := ""
	for _, path := range []string{"/mcp", "/sse", "/"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			return ""
		}
		request.Header.Set("Accept", "text/event-stream, application/json")
		response, err := client.Do(request)
		var netErr net.Error
		if errors.As(err, &netErr) && netErr.Timeout() && found == "" {
			found = "http://" + address + path // it holds the stream back
			continue
		}
		if err != nil {
			return found
		}
		response.Body.Close()
		if response.StatusCode != http.StatusNotFound {
			return "http://" + address + path
		}
		found = "http://" + address + "/"
	}
	return found
}
