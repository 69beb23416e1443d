package main

import (
	"maps"
	"slices"

	"github.com/mcp-bridge/mcp-bridge/internal/manual"
)

// signInCommands are the commands that are about credentials alone.
var signInCommands = []string{"login", "logout", "status"}

// flagsOfUnattended are the flags that say how a bridge signs in without a person, and whether it waits for one.
var flagsOfUnattended = []string{"auth", "assertion-file", "idp-issuer", "idp-token-url", "idp-client-id", "idp-client-secret-file", "id-token-file",
	"auth-wait", "auth-prompt"}

// flagsWithoutEffect are, by command, the flags that do nothing there, or are refused with every value but the default. The command takes
// them all the same: those of a sign-in so that the flags of connect can be given again as they are, others for lines that were written for
// mcp-remote. Help does not list them.
var flagsWithoutEffect = map[string][]string{
	"login":   flagsOfUnattended, // a person signs in
	"logout":  slices.Concat(flagsOfUnattended, []string{"no-browser", "scope", "client-issuer", "issuer-alias", "dpop"}),
	"status":  {"auth-wait", "auth-prompt", "no-browser", "scope", "client-issuer", "resource", "authorize-param", "redirect-host", "redirect-port"},
	"record":  {"record", "allow-http", "enable-proxy"}, // its first argument is the file of --record
	"connect": {"allow-http", "enable-proxy"},
	"serve":   {"allow-http", "enable-proxy"},
	"replay":  {"allow-http", "enable-proxy"},
}

// hiddenGroups returns a group for each command of flagsWithoutEffect, whose flags are not shown.
func hiddenGroups() (all []manual.Group) {
	for _, command := range slices.Sorted(maps.Keys(flagsWithoutEffect)) {
		g := manual.Group{Title: "without effect: " + command, Commands: []string{command}}
		for _, name := range flagsWithoutEffect[command] {
			g.Flags = append(g.Flags, flag(name, "", ""))
		}
		all = append(all, g)
	}
	return all
}

// flagGroups are all flags of all commands. Help, man page and completion are made of it; which command has which
// of them, their short forms and their defaults come from its FlagSet.
var flagGroups = slices.Concat(hiddenGroups(), []manual.Group{
	{Title: "login", Commands: []string{"login"}, Flags: []manual.Flag{
		flag("device-code", "", "sign in with a code, on another device"),
		flag("fresh", "", "register the client anew first"),
		flag("cancel", "", "end a sign-in that waits"),
		flag("callback", "ADDRESS", `the address of the page where the browser has stopped, for a login that waits; "-" reads it from stdin, which nobody else sees`),
		flag("detached", "", ""),
	}},
	{Title: "logout", Commands: []string{"logout"}, Flags: []manual.Flag{
		flag("all", "", "sign out everywhere"),
		flag("forget-client", "", "register the client anew next time"),
	}},
	{Title: "status", Commands: []string{"status"}, Flags: []manual.Flag{
		flag("json", "", "for programs"),
		flag("check", "", "also renew tokens that are about to expire, and report if that fails"),
	}},
	{Title: "doctor", Commands: []string{"doctor"}, Flags: []manual.Flag{
		flag("json", "", "the report as JSON"),
		flag("slow", "", "take minutes: more time for the first answer, and the checks whether quiet streams are cut"),
		flag("call", "NAME", `call this tool once; a JSON object behind it has the arguments. Without it no tool is called`),
		flag("bundle", "FILE", "write what belongs into a bug report, without secrets: FILE.zip or FILE.tar.gz"),
	}},
	{Title: "trace", Commands: []string{"trace"}, Flags: []manual.Flag{
		flag("verbose", "", "messages below their lines; -vv: both ends of the bridge side by side, with what differs marked"),
		flag("http", "", "HTTP exchanges and streams, too"),
		flag("json", "", "records as they stand in a trace"),
		flag("lost", "", "only what got lost, and where: requests without an answer, messages that were not passed on, what was dropped and why; exit status 1 if there is anything but what its sender has cancelled"),
		flag("export", "har|otlp|html", "write the trace in this format to stdout"),
	}},
	{Title: "Reading a recording (docs/recordings.md)", Commands: []string{"replay"}, Flags: []manual.Flag{
		flag("session", "NAME", "which session of the recording (default: the first one)"),
		flag("hop", "down|up", "play the messages between clients and the bridge (down), or between the bridge and servers (up)"),
		flag("allow-redacted", "", "use a recording although secrets were taken out of it"),
	}},
	{Title: "In the client's place", Commands: []string{"replay"}, Flags: []manual.Flag{
		flag("ignore", "PATH", "what may differ: a path as it is printed, such as result.content[*].text, METHOD:PATH, or a METHOD with a slash; may be repeated"),
		flag("wait", "D", "how much longer than in the recording to wait for the server"),
		flag("timing", "", "keep the pauses of the recording"),
	}},
	{Title: "In the server's place", Commands: []string{"replay"}, Flags: []manual.Flag{
		flag("serve", "", "answer as the recording does, over every transport; the flags of serve count"),
		flag("stdio", "", "the same for the client at stdin and stdout"),
		flag("strict", "", "exit status 1 if the client did not send all that was recorded, or sent something else"),
	}},
	{Title: "wrap, unwrap", Commands: []string{"wrap", "unwrap"}, Flags: []manual.Flag{
		flag("client", "WHICH", "claude, cursor, vscode, or a client's configuration file (default: the one that has the server)"),
	}},
	{Title: "What is served", Commands: []string{"serve"}, Flags: []manual.Flag{
		flag("config", "FILE", `serve every server of this file, each at /servers/NAME/mcp and so on ("mcp-bridge help config")`),
		flag("demo", "", "serve the built-in demo server"),
		flag("name", "NAME", nameText),
	}},
	{Title: "Which server", Flags: []manual.Flag{
		flag("config", "FILE", "the server is one of this configuration file: its name stands in the place of the URL"),
		flag("name", "NAME", nameText),
	}},
	{Title: "Where serve listens", Flags: []manual.Flag{
		flag("listen", "ADDR", "HOST:PORT, or unix:PATH for HTTP and for messages in lines; may be repeated (default 127.0.0.1:8080; port 0 picks one)"),
		flag("host", "HOST", "the host of one address, beside --port or alone"),
		flag("port", "N", "the port of one address, beside --host or alone"),
		flag("unix-mode", "MODE", "who may use the Unix socket, as an octal file mode"),
		flag("tls-cert", "FILE", "certificate chain, PEM: TLS and HTTP/2 on every HOST:PORT"),
		flag("tls-key", "FILE", "the certificate's private key, PEM; both files are loaded again when they change"),
		flag("tls-client-ca", "FILE", "admit only clients with a certificate of these authorities"),
		flag("path-prefix", "PATH", "the path at which a reverse proxy serves the bridge, such as /tools"),
		flag("trusted-proxy", "CIDR", `believe the X-Forwarded headers of this address or network, of "loopback" or "unix"; may be repeated`),
	}, Notes: []string{"Sockets that systemd has opened are used too; without --listen, they alone."}},
	{Title: "Who may come in (docs/access.md, docs/protect.md)", Flags: []manual.Flag{
		flag("token-file", "FILE", `clients need a token; one "NAME TOKEN" a line, loaded again when it changes (or the same lines in the environment variable MCP_BRIDGE_TOKENS)`),
		flag("insecure", "", "allow an address that other machines can reach without tokens or certificates"),
		flag("allow-origin", "ORIGIN", `admit web pages of this origin, such as https://app.example, besides those of this machine; "*" is all; may be repeated`),
		flag("allow-host", "HOST", "admit this name, or all of *.example.com, in the Host header; may be repeated. Loopback names and the address that was connected to are always admitted. Others are refused on loopback, elsewhere only if this flag is given"),
		flag("public-url", "URL", "the address that clients use, without /mcp, such as https://mcp.example.com: access tokens must be for it. Its path is --path-prefix"),
		flag("oidc-issuer", "URL", "accept access tokens of this identity provider, beside those of --token-file; may be repeated"),
		flag("jwks-url", "URL", "where the keys of --oidc-issuer are (default: where its metadata says)"),
		flag("audience", "TEXT", "what access tokens must have in aud (default: the address of the endpoint, made of --public-url); may be repeated"),
		flag("introspect", "URL", "ask here about access tokens that no --oidc-issuer has signed"),
		flag("introspect-client-id", "ID", "the bridge's client id at --introspect"),
		flag("introspect-secret-file", "FILE", "the bridge's secret at --introspect"),
		flag("require-scope", "SCOPE", "every access token must have it; may be repeated"),
		flag("scope-map", "FILE", `which scopes messages need; lines such as "tools/call delete_* -> admin"`),
		flag("client-dpop", "auto|require|off", "tokens that are bound to a key (DPoP): auto demands the proof, require accepts no others, off refuses them"),
	}},
	{Title: "How much serve runs", Flags: []manual.Flag{
		flag("isolation", "auto|session|principal|shared|request", `which clients share a server process; "mcp-bridge help isolation"`),
		flag("max-sessions", "N", "sessions of each transport. Further clients are answered 503, unless another client has more of them and one is idle: that one is ended"),
		flag("session-timeout", "D", "end a Streamable HTTP session that is idle for so long; 0 is never. Those of HTTP+SSE and WebSocket last as long as their connection"),
		flag("max-children", "N", "processes of one server; 0 is one for each session and 100 that clients share, or 32 with --isolation request (default 0)"),
		flag("max-children-total", "N", "processes of all servers; 0 is no limit (default 0)"),
		flag("queue", "N", "clients that may wait for a process to end"),
		flag("queue-timeout", "D", "how long these clients wait before they are answered 503; 0 is not at all"),
	}},
	{Title: "A server that is run (docs/processes.md)", Flags: []manual.Flag{
		flag("env", "NAME=VALUE", "set a variable in its environment, or pass ours on with NAME alone; may be repeated"),
		flag("env-file", "FILE", "variables, one NAME=VALUE a line, as in .env files"),
		flag("pass-env", "all|safe|none|NAMES", "what it inherits: all but MCP_BRIDGE_*, what is safe, nothing, or NAME,NAME (default all; for the servers of a file of --config, safe)"),
		flag("cwd", "DIR", "its working directory"),
		flag("pty", "", "give it a terminal as stdout, for programs that otherwise buffer"),
		flag("stdin-wait", "D", "to stop it, stdin is closed; how long to wait then"),
		flag("term-wait", "D", "then its process group gets SIGTERM; how long to wait"),
		flag("kill-wait", "D", "then the group gets SIGKILL; how long to wait for its end"),
	}},
	{Title: "A remote server (docs/connect.md)", Flags: []manual.Flag{
		flag("header", `"NAME: VALUE"`, "send a header with every request; ${VAR} is expanded; may be repeated"),
		flag("header-env", "NAME=VAR", "send a header with the value of an environment variable; may be repeated"),
		flag("header-file", "FILE", `headers, one "NAME: VALUE" a line`),
		flag("connect-timeout", "D", "time to connect in"),
		flag("resume-timeout", "D", "how long to reconnect to the stream of a call that has broken before the answer; then the call fails (Streamable HTTP)"),
		flag("ca-file", "FILE", "trust the certificates of these authorities too, PEM; serve: also for --oidc-issuer"),
		flag("client-cert", "FILE", "show this certificate to a server that asks for one, PEM"),
		flag("client-key", "FILE", "the private key of --client-cert, PEM"),
		flag("transport", "http-first|sse-first|http-only|sse-only", "for http and https: which of Streamable HTTP and HTTP+SSE is tried"),
	}, Notes: []string{"HTTP_PROXY, HTTPS_PROXY and NO_PROXY count; addresses of this machine never go through a proxy."}},
	{Title: "Signing in (docs/sign-in.md)", Commands: signInCommands, Flags: signInFlags},
	{Title: "Signing in to a remote server (docs/sign-in.md)", Flags: signInFlags,
		Notes: []string{"There is no sign-in to a server that gets an Authorization --header."}},
	{Title: "Revisions of the protocol (docs/eras.md)", Flags: []manual.Flag{
		flag("protocol", "auto|legacy|modern", "what to speak with the server: auto finds out; legacy is 2024-11-05 to 2025-11-25, modern is 2026-07-28"),
		flag("client-protocol", "auto|legacy|modern", "what clients may speak: auto is all of these; modern does not serve HTTP+SSE"),
		flag("park-timeout", "D", "how long a call waits until its 2026-07-28 client has answered the input requests"),
	}},
	{Title: "Tools", Flags: []manual.Flag{
		flag("allow-tool", "GLOB", "show only these tools; may be repeated"),
		flag("ignore-tool", "GLOB", "hide these tools; may be repeated"),
	}},
	{Title: "Limits (docs/limits.md)", Flags: []manual.Flag{
		flag("max-message-size", "N", "largest message, in bytes or with KiB, MiB, GiB"),
		flag("max-depth", "N", "levels of objects and arrays in a message"),
		flag("request-timeout", "D", "cancel a request on which the server stays silent for so long; 0 is never (default 0)"),
		flag("drain-timeout", "D", "how long to wait for calls in progress at the end of input, and at a server that a new configuration changes or removes"),
		flag("grace", "D", "how long to wait for calls in progress after SIGTERM or SIGINT; --drain-timeout ends then, too"),
	}},
	{Title: "Looking at a run (docs/inspect.md)", Flags: []manual.Flag{
		flag("inspect", "[=ADDR]", "a page for browsers, whose URL is written to stderr; ADDR is HOST:PORT or unix:PATH (default 127.0.0.1:0, any free port)"),
		flag("inspect-token-file", "FILE", `who may look and who may act: "view TOKEN" or "act TOKEN" a line, instead of the one token in that URL. An address that other machines can reach needs it, and --tls-cert`),
	}},
	{Title: "Trace (docs/trace.md)", Flags: []manual.Flag{
		flag("trace", "FILE", "write all messages, at both ends of the bridge, and what else happens, as JSON Lines; a full FILE (64 MiB) and that of an earlier run become FILE.1, and so on to FILE.3"),
		flag("record", "FILE", "the same for replay: every message in full, and all in one file"),
		flag("trace-max-message", "N", "how much of a message is kept, in bytes or with a unit; 0 is nothing"),
		flag("trace-redact", "WHAT", "take out more than passwords, tokens and credentials: the member at a path of a message, such as params.arguments.pin, or what matches re:REGEX; may be repeated"),
		flag("trace-unredacted", "", "take nothing out but session ids and requestState"),
	}},
	{Title: "Metrics (docs/metrics.md)", Flags: []manual.Flag{
		flag("metrics", "ADDRESS", "answer Prometheus at http://ADDRESS/metrics; a port alone means 127.0.0.1"),
		flag("metrics-tools", "", "the name of a tool is a label of its calls (the first 200 names)"),
	}},
	{Title: "Log (docs/log.md)", Flags: []manual.Flag{
		flag("log-level", "trace|debug|info|warn|error|off", "what the log has; SIGUSR1 changes a running bridge to debug and back (not on Windows)"),
		flag("debug", "", "short for --log-level debug"),
		flag("silent", "", "short for --log-level error"),
		flag("log-file", "FILE", "write the log to this file, not to stderr; one of more than 10 MiB becomes FILE.1 at the next start"),
		flag("log-format", "text|json", "the form of the log; both escape control and bidirectional characters"),
	}},
})

// nameText explains --name, which names the server in log, traces and metrics. Two groups of flagGroups have it, with the same text.
const nameText = "what log, traces and metrics call the server, a command or a URL (default: the package, script or image that the command runs, or the command's name; for a URL, remote)"

// flag returns a row of flagGroups: text explains the flag in the help, value is how help shows the flag's value; "": it has none.
func flag(name, value, text string) manual.Flag {
	return manual.Flag{Name: name, Value: value, Text: text}
}

// signInFlags are the rows of flagGroups for the flags of authFlags.
var signInFlags = []manual.Flag{
	flag("auth", "auto|none|client-credentials|jwt-bearer|enterprise", "auto: a person signs in, if the server asks for it; the last three need no person"),
	flag("profile", "NAME", "one of several accounts at a server"),
	flag("no-browser", "", "open no browser: show a code or an address to open elsewhere"),
	flag("scope", "SCOPE", "ask for this scope, not for all that the server lists; scopes that its refusals name are asked for too; may be repeated"),
	flag("client-id", "ID", "the client id that you have registered, for servers that do not register clients themselves"),
	flag("client-secret-file", "FILE", "the secret of --client-id (or in the environment variable MCP_BRIDGE_CLIENT_SECRET)"),
	flag("client-issuer", "ISSUER", "the authorization server where --client-id is registered; no other gets it"),
	flag("client-metadata-url", "URL", "the address of your client's metadata document, which is its id"),
	flag("auth-key", "FILE", "the client's private key, PEM"),
	flag("auth-key-id", "NAME", "the key's name in the client's key set"),
	flag("auth-key-alg", "NAME", "the key's algorithm, such as ES256"),
	flag("resource", "URI|off", "the parameter resource to send, instead of the one that the server publishes; off sends none"),
	flag("authorize-param", "K=V", "add it to the authorization request; may be repeated"),
	flag("issuer-alias", "A=B", "the server announces the issuer A, whose metadata names B; may be repeated"),
	flag("redirect-host", "127.0.0.1|localhost", "the host that the browser comes back to"),
	flag("redirect-port", "PORT", "the port that the browser comes back to (default: made of the URL)"),
	flag("dpop", "auto|require|off", "tokens that are bound to a key"),
	flag("assertion-file", "FILE", "the assertion for --auth jwt-bearer, read at each use"),
	flag("idp-issuer", "ISSUER", "the company's identity provider, for --auth enterprise"),
	flag("idp-token-url", "URL", "the token endpoint of that provider"),
	flag("idp-client-id", "ID", "the bridge's client id at that provider"),
	flag("idp-client-secret-file", "FILE", "the bridge's secret at that provider"),
	flag("id-token-file", "FILE", "the person's id token, read at each use"),
	flag("auth-dir", "DIR", "where credentials are kept (or the environment variable MCP_BRIDGE_AUTH_DIR)"),
	flag("token-store", "file|keyring", "keyring: the files are encrypted with a key in the system's keyring"),
	flag("allow-private-auth", "", "the server may name authorization servers at private addresses"),
	flag("auth-wait", "D", "how long a request waits for you to sign in"),
	flag("auth-prompt", "browser|error", "error: open no browser, and let the request fail"),
}
