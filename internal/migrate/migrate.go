// Package migrate knows the command lines of other programs that carry MCP between transports, and says
// what to write for mcp-bridge instead. It only gives advice: nothing is run that it returns.
package migrate

import (
	"fmt"
	"slices"
	"strings"
)

// A peerFlag is a flag of another program that is missing in serve and connect, or does nothing there.
type peerFlag struct {
	name    string // the name of the flag, as the manual of the program spells it, without dashes
	program string // the name of the program
	advice  string // what to write instead
}

// FlagAdvice returns what to write instead of a flag that mcp-bridge does not have, in one line: "--NAME is a flag of PROGRAM: ...". name
// has no dashes in front. ok is false if the package has no advice on a flag of this name (peerFlags).
func FlagAdvice(name string) (advice string, ok bool) {
	f, ok := findFlag(name)
	if !ok {
		return "", false
	}
	return fmt.Sprintf("--%s is a flag of %s: %s", f.name, f.program, f.advice), true
}

// findFlag returns the one of peerFlags with this name, which may be spelled with or without hyphens and capitals; false: there is none.
func findFlag(name string) (f peerFlag, ok bool) {
	want := normalizedName(name)
	for _, f := range peerFlags {
		if normalizedName(f.name) == want {
			return f, true
		}
	}
	return peerFlag{}, false
}

// reason returns the flag's advice as the reason why the flag was left out of a line of mcp-bridge.
func (f peerFlag) reason() string { return strings.TrimPrefix(f.advice, "leave it out: ") }

// findProgram returns the name of another program whose lines mcp-bridge can take over, if a command line begins with it, perhaps with a
// version or behind npx or the like, or runs its image with docker. rest are the words after it. ok is false if it does not.
func findProgram(argv []string) (name string, rest []string, ok bool) {
	if d, ok := parseDocker(argv); ok {
		return d.imageProgram, d.programArgs(), true
	}
	for i := 0; i < len(argv); i++ {
		word := argv[i]
		if i > 0 && slices.Contains([]string{"-p", "--package", "--from", "--spec", "--with", "--python"}, word) { // the program comes later
			i++
			continue
		}
		name = word
		if at := strings.LastIndexByte(word, '@'); at > 0 {
			name = word[:at]
		}
		if name == inspectorPackage+"-cli" || name == "mcp-inspector" {
			name = inspectorPackage
		}
		if slices.Contains([]string{supergateway, mcpProxy, mcpRemote, websocketd, inspectorPackage}, name) {
			return name, argv[i+1:], true
		}
		launches := slices.Contains([]string{"npx", "bunx", "uvx", "pipx", "uv", "npm", "pnpm", "yarn"}, word)
		if i == 0 && !launches || i > 0 && !strings.HasPrefix(word, "-") && !slices.Contains([]string{"run", "tool", "exec", "dlx", "x"}, word) {
			return "", nil, false
		}
	}
	return "", nil, false
}

// A packageSource is the registry that a program comes from: there are two programs by the name of mcp-proxy.
type packageSource int

const (
	unknownSource packageSource = iota // it is not known where the program comes from
	fromNPM                            // the program comes from npm
	fromPyPI                           // the program comes from PyPI
)

// sourceOf returns where a program comes from that launcher, the first word of a command line, such as npx, runs.
func sourceOf(launcher string) packageSource {
	switch launcher {
	case "npx", "bunx", "npm", "pnpm", "yarn":
		return fromNPM
	case "uvx", "uv", "pipx", "docker", "podman": // the image of mcp-proxy has that of PyPI
		return fromPyPI
	}
	return unknownSource
}

// AdviceFor returns what to write for a command line that runs another program that carries MCP, directly, with npx or the like, or in a
// container. ok is false if it runs none. a.Line is empty if the arguments of the program are not understood.
func AdviceFor(argv []string) (program string, a Advice, ok bool) {
	program, rest, ok := findProgram(argv)
	if !ok {
		return "", Advice{}, false
	}
	if a, ok = peerAdvice(program, rest, sourceOf(argv[0])); !ok {
		return program, Advice{}, true
	}
	if d, ok := parseDocker(argv); ok {
		d.addDockerSettings(&a)
	}
	return program, a, true
}

// FlagNames returns the names of all flags that FlagAdvice knows, without dashes in front, for tests.
func FlagNames() []string {
	names := make([]string, len(peerFlags))
	for i, f := range peerFlags {
		names[i] = f.name
	}
	return names
}

// normalizedName returns the name of a flag without what programs spell in different ways: without hyphens and underscores, and in lower case.
func normalizedName(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
}

// The names of the other programs that the package knows.
const (
	supergateway = "supergateway"      // the program supergateway
	mcpProxy     = "mcp-proxy"         // the programs mcp-proxy; see packageSource
	mcpRemote    = "mcp-remote"        // the program mcp-remote
	websocketd   = "websocketd"        // the program websocketd
	mcpInspector = "the MCP inspector" // what advice calls the program MCP inspector

	inspectorPackage = "@modelcontextprotocol/inspector" // what the MCP inspector is called in a command line
)

// peerFlags are the flags of other programs that serve and connect do not have, or that do nothing there, from the manuals of supergateway 3.4,
// mcp-proxy of npm 6.7 and of PyPI 0.10, mcp-remote 0.15, websocketd 0.4 and the MCP inspector 0.17. See SupergatewayAdvice for those that say
// what is bridged.
var peerFlags = []peerFlag{
	{"stdio", supergateway, `write the command after "--": mcp-bridge serve -- COMMAND ARGS`},
	{"sse", supergateway, "write the URL alone: mcp-bridge connect URL"},
	{"streamableHttp", supergateway, "write the URL alone: mcp-bridge connect URL"},
	{"outputTransport", supergateway, "leave it out: serve has every transport at one port (/mcp, /sse, /ws), connect has stdio"},
	{"baseUrl", supergateway, "leave it out: clients are told a path, or use --path-prefix behind a proxy that adds one"},
	{"ssePath", supergateway, "leave it out: HTTP+SSE is at /sse; --path-prefix puts something in front"},
	{"messagePath", supergateway, "leave it out: HTTP+SSE tells its clients where to send, and WebSocket is at /ws"},
	{"streamableHttpPath", supergateway, "leave it out: Streamable HTTP is at /mcp; --path-prefix puts something in front"},
	{"stateful", supergateway, "leave it out: each session has a process of its own; --isolation changes that"},
	{"oauth2Bearer", supergateway, `write --header 'Authorization: Bearer ${TOKEN}', and put the token into the environment`},
	{"cors", supergateway, "supergateway lets every web page in; here only pages of this machine are let in: for each other site, write --allow-origin ORIGIN"},
	{"healthEndpoint", supergateway, "leave it out: /healthz and /readyz are always there"},
	{"protocolVersion", supergateway, "leave it out: every revision is spoken; --protocol legacy or modern chooses"},

	{"server", mcpProxy, "leave it out: every transport is at one port (/mcp, /sse, /ws)"},
	{"endpoint", mcpProxy, "leave it out: the paths are /mcp and /sse; --path-prefix puts something in front"},
	{"sseEndpoint", mcpProxy, "leave it out: HTTP+SSE is at /sse; --path-prefix puts something in front"},
	{"streamEndpoint", mcpProxy, "leave it out: Streamable HTTP is at /mcp; --path-prefix puts something in front"},
	{"stateless", mcpProxy, "write --isolation request: a process for each request, without sessions"},
	{"no-stateless", mcpProxy, "leave it out: there are sessions unless --isolation request is given"},
	{"apiKey", mcpProxy, `write --token-file FILE with "NAME TOKEN" lines, or put such a line into MCP_BRIDGE_TOKENS; X-API-Key is read, too`},
	{"sslCert", mcpProxy, "write --tls-cert FILE"},
	{"sslKey", mcpProxy, "write --tls-key FILE"},
	{"sslCa", mcpProxy, "leave it out: mcp-proxy asks no client for a certificate; --tls-client-ca FILE does"},
	{"shell", mcpProxy, `nothing is run by a shell; to have one, write it yourself: mcp-bridge serve -- sh -c "COMMAND"`},
	{"tunnel", mcpProxy, "there is no tunnel; start one beside mcp-bridge, and name its host with --allow-host"},
	{"tunnelSubdomain", mcpProxy, "there is no tunnel; start one beside mcp-bridge, and name its host with --allow-host"},
	{"upstreamProtocol", mcpProxy, "write --protocol auto, legacy or modern"},
	{"no-modern", mcpProxy, "write --client-protocol legacy"},
	{"maxBodySize", mcpProxy, "write --max-message-size 10MiB, or as a number of bytes"},
	{"eventStoreMaxEvents", mcpProxy, "leave it out: lost streams are resumed within fixed bounds"},
	{"eventStore", mcpProxy, "leave it out: lost streams are resumed"},
	{"modern", mcpProxy, "leave it out: 2026-07-28 is spoken, too; --client-protocol modern speaks nothing else"},
	{"no-eventStore", mcpProxy, "leave it out: lost streams are resumed within fixed bounds"},
	{"keepAliveTimeout", mcpProxy, "leave it out: streams are kept alive"},
	{"sessionIdleTimeout", mcpProxy, "write --session-timeout 30m, with a unit"},
	{"gracefulShutdownTimeout", mcpProxy, "write --grace 5s, with a unit"},
	{"connectionTimeout", mcpProxy, "write --connect-timeout 10s, with a unit"},
	{"corsAddAllowedHeader", mcpProxy, "leave it out: every header of the protocol is allowed"},
	{"headers", mcpProxy, `write --header "NAME: VALUE", or -H`},
	{"pass-environment", mcpProxy, "leave it out: a command gets the whole environment in any case; with --config, write --pass-env all"},
	{"no-pass-environment", mcpProxy, "write --pass-env safe"},
	{"named-server", mcpProxy, "write the servers into a file: mcp-bridge serve --config servers.json"},
	{"named-server-config", mcpProxy, "write --config FILE: mcp-bridge serve --config servers.json"},
	{"sse-port", mcpProxy, "write --port N"},
	{"sse-host", mcpProxy, "write --host HOST"},
	{"expose-header", mcpProxy, "leave it out: the headers that pages need are exposed"},
	{"client-secret", mcpProxy, "write --auth client-credentials and --client-secret-file FILE"},
	{"token-url", mcpProxy, "leave it out: the server's metadata names it"},
	{"verify-ssl", mcpProxy, "leave it out; --ca-file FILE trusts further authorities"},
	{"no-verify-ssl", mcpProxy, "certificates are always verified: write --ca-file FILE with the server's authority"},
	{"no-debug", mcpProxy, "leave it out"},

	{"static-oauth-client-info", mcpRemote, "write --client-id ID, and --client-secret-file FILE if there is a secret"},
	{"static-oauth-client-metadata", mcpRemote, "write --scope SCOPE; the rest of the metadata is mcp-bridge's own"},
	{"disable-resource-parameter", mcpRemote, "write --resource off"},
	{"auth-timeout", mcpRemote, "write --auth-wait 45s, with a unit"},
	{"callback-path", mcpRemote, "the path is always /callback: register http://127.0.0.1:PORT/callback, and write --redirect-port PORT"},
	{"client-credentials", mcpRemote, "write --auth client-credentials"},
	{"device-code", mcpRemote, "write mcp-bridge login --device-code URL once; connect then uses what is stored"},
	{"keep-alive", mcpRemote, "leave it out: streams are kept alive"},
	{"allow-http", mcpRemote, "leave it out: http:// is allowed without it"},
	{"enable-proxy", mcpRemote, "leave it out: HTTP_PROXY, HTTPS_PROXY and NO_PROXY count without it"},
	{"ping-interval", mcpRemote, "leave it out: streams are kept alive"},

	{"address", websocketd, "write --host HOST, or --listen HOST:PORT"},
	{"ssl", websocketd, "write --tls-cert FILE --tls-key FILE"},
	{"passenv", websocketd, "write --pass-env NAME,NAME"},
	{"sameorigin", websocketd, "leave it out: pages of other machines are refused unless --allow-origin admits them"},
	{"origin", websocketd, "write --allow-origin ORIGIN"},
	{"maxforks", websocketd, "write --max-children N"},
	{"closems", websocketd, "write --term-wait 5s and --kill-wait 5s, with units"},
	{"dir", websocketd, "there are no CGI scripts; several servers stand in a file: mcp-bridge serve --config servers.json"},
	{"staticdir", websocketd, "files are not served: put a web server in front"},
	{"cgidir", websocketd, "files are not served: put a web server in front"},
	{"devconsole", websocketd, "write --inspect: a page that shows what passes"},

	{"cli", mcpInspector, "write mcp-bridge doctor URL, or mcp-bridge doctor -- COMMAND"},
	{"method", mcpInspector, "write mcp-bridge doctor URL: it shows the tools, and --call NAME calls one"},
	{"tool-name", mcpInspector, "write mcp-bridge doctor --call NAME URL"},
	{"tool-arg", mcpInspector, `write mcp-bridge doctor --call NAME URL '{"ARGUMENT": "VALUE"}'`},
	{"server-url", mcpInspector, "write the URL alone: mcp-bridge connect URL"},
}
