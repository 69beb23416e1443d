package main

// usage is the manual, as "mcp-bridge help" prints it.
const usage = `mcp-bridge - converts between the transports of the Model Context Protocol

  mcp-bridge serve [flags] -- COMMAND [ARG...]    expose a stdio server over every transport
  mcp-bridge serve [flags] URL                    expose a remote server over every transport
  mcp-bridge serve [flags] --config FILE          expose many servers
  mcp-bridge serve [flags] --demo                 expose the built-in demo server
  mcp-bridge connect [flags] URL                  present a remote server as a stdio process
  mcp-bridge connect [flags] -- COMMAND [ARG...]  run a stdio server under supervision, for a stdio client
  mcp-bridge connect [flags] --config FILE NAME   the same for one server of a file
  mcp-bridge doctor [flags] URL | -- COMMAND...   say what is wrong with a server, and what to do about it
  mcp-bridge trace [flags] [PID|NAME|FILE] [WORD...]  show what passes through a running bridge, or what a trace holds
  mcp-bridge record FILE [flags] URL | -- COMMAND...  connect, and keep all that is said in a file
  mcp-bridge replay [flags] FILE URL | -- COMMAND...  say a recording to a server, and compare the answers
  mcp-bridge replay --serve [flags] FILE          serve a recording in its server's place
  mcp-bridge wrap NAME, mcp-bridge unwrap NAME    put the bridge between a desktop client and its server, take it out again
  mcp-bridge login [flags] URL                    sign in to a remote server, in a browser or with a code
  mcp-bridge logout [flags] URL | --all           sign out, and have the tokens revoked
  mcp-bridge status [flags] [URL]                 say who is signed in where
  mcp-bridge check-config FILE                    say what is wrong with a configuration file
  mcp-bridge demo                                 the demo server itself, on stdin and stdout
  mcp-bridge version                              print the version
  mcp-bridge help                                 print this page

  mcp-bridge [flags] -- COMMAND [ARG...]          short for serve
  mcp-bridge [flags] URL                          short for connect

"--" ends the flags of mcp-bridge; what follows is run as it is, without a shell.
Messages travel on stdin and stdout; the log goes to stderr.

A URL is http://... or https://... (Streamable HTTP, or HTTP+SSE where the server has only that),
ws://... or wss://... (WebSocket), unix:PATH or tcp:HOST:PORT (messages in lines over a socket).

Where serve answers
  /mcp                     Streamable HTTP
  /sse, /message           HTTP+SSE, the transport of 2024-11-05
  /ws                      WebSocket
  /healthz, /readyz        the process lives; a server runs or can be started
  With --config: /servers/NAME/mcp and so on, and /servers, the list.

Where serve listens
  --listen HOST:PORT       address to bind; may be repeated (default 127.0.0.1:8080; port 0 picks one)
  --listen unix:PATH       a Unix socket, for HTTP and for messages in lines; may be repeated
  --unix-mode MODE         who may use it, as an octal file mode (default 0600)
  --host HOST, --port N    host and port of one --listen in two parts
  --tls-cert FILE          certificate chain, PEM: TLS and HTTP/2 on every HOST:PORT
  --tls-key FILE           its private key, PEM; both are loaded again when they change
  --tls-client-ca FILE     admit only clients with a certificate of these authorities
  --path-prefix PATH       what a reverse proxy has put in front of the paths above
  --trusted-proxy CIDR     believe the X-Forwarded headers of this address, network, "loopback" or "unix";
                           may be repeated
  Sockets that systemd has opened are used too; without --listen, they alone.

Who may come in
  --token-file FILE        clients need a token; one "NAME TOKEN" a line, loaded again when it changes
                           (or the same lines in the environment variable MCP_BRIDGE_TOKENS)
  --public-url URL         the address that clients use, without /mcp, such as https://mcp.example.com: access tokens must
                           be for it, and it tells clients where to get one. Its path is --path-prefix
  --oidc-issuer URL        accept the access tokens of this identity provider; may be repeated. A client has an access
                           token, a token of --token-file, or nothing, and is answered 401 then (docs/protect.md)
  --jwks-url URL           where its keys are (default: where its metadata says)
  --audience TEXT          access tokens must be for this, in the place of the addresses below --public-url; may be repeated
  --introspect URL         ask here about access tokens that no --oidc-issuer has signed; with --introspect-client-id ID
                           and --introspect-secret-file FILE
  --require-scope SCOPE    every access token must have it; may be repeated
  --scope-map FILE         which scopes messages need, a line such as "tools/call delete_* -> admin" each
  --client-dpop WHICH      tokens that are bound to a key (DPoP): auto (default) demands the proof, require accepts
                           no others, off refuses them
  --insecure               bind an address that other machines can reach, though nobody is authenticated
  --allow-origin ORIGIN    admit a browser origin besides loopback, such as https://app.example;
                           may be repeated
  --allow-host HOST        admit this name, or all of *.example.com, in the Host header; may be repeated.
                           Always admitted: loopback names, and the address that the client has connected to.
                           Others are refused (403) on loopback; elsewhere only if --allow-host is given

How much serve runs
  --isolation HOW          which clients share a server process:
                           auto (default): none where both sides have sessions; clients of 2026-07-28 with the
                           same token and capabilities share one of an older server; all share one of 2026-07-28;
                           session: auto, but each session has its own of the latter, too;
                           principal: those with the same token, and of an older server the same capabilities;
                           shared: all; an older server is told that its client can be asked nothing;
                           request: none; one for each request over Streamable HTTP, without sessions
  --max-sessions N         of each transport (default 1000); more are answered 503, unless another client has
                           more than this one, and one of them is idle: that one is ended
  --session-timeout D      end a Streamable HTTP session that is idle for so long; 0 means never (default 30m);
                           those of HTTP+SSE and WebSocket last as long as their connection
  --max-children N         processes of one server; 0 means the default (one a session, and 100 that clients
                           share; 32 with --isolation request)
  --max-children-total N   processes of all servers; 0 means no limit (default 0)
  --queue N                clients that may wait for a process to end (default 100)
  --queue-timeout D        and for how long, before they are answered 503 (default 10s)

A server that is run (serve, connect)
  --env NAME=VALUE, -e     set a variable in its environment, or pass ours on with NAME alone; may be repeated
  --env-file FILE          variables, one NAME=VALUE a line, as in .env files
  --pass-env WHAT          what it inherits: all (without MCP_BRIDGE_*), safe, or NAME,NAME,...
                           (default all; in a configuration file, safe)
  --cwd DIR                its working directory
  --name NAME              what to call it in the log (default: the package, script
                           or image that the command runs, or the command's name)
  --pty                    give it a terminal as stdout, for programs that otherwise buffer
  --stdin-wait D           how it is stopped: stdin is closed, and after D (default 5s)
  --term-wait D            its process group gets SIGTERM, and after D (default 5s)
  --kill-wait D            SIGKILL; so long for the group to be gone (default 5s)

A remote server (serve, connect)
  --header "NAME: VALUE", -H  send a header with every request; ${VAR} is expanded; may be repeated
  --header-env NAME=VAR    send a header with the value of an environment variable; may be repeated
  --header-file FILE       headers, one "NAME: VALUE" a line
  --connect-timeout D      time to connect in (default 10s)
  --resume-timeout D       how long to reconnect to the stream of a call that has broken before the answer;
                           then the call fails (default 15s; Streamable HTTP)
  --ca-file FILE           trust the certificates of these authorities too, PEM (https, wss; also of --oidc-issuer)
  --client-cert FILE       show this certificate to a server that asks for one, PEM
  --client-key FILE        its private key, PEM
  --transport WHICH        for http and https: http-first, sse-first, http-only or sse-only
                           (default http-first: Streamable HTTP, and HTTP+SSE if that is refused)
  --allow-http, --enable-proxy   nothing: both are done anyway; for lines that were written for mcp-remote

Signing in (login, logout, status, serve, connect; docs/sign-in.md). A server with an Authorization --header is not signed in to
  --auth HOW               auto (default): a person signs in, if the server asks for it; none;
                           client-credentials, jwt-bearer or enterprise: without a person
  --profile NAME           one of several accounts at a server
  --no-browser             open none: a code is shown, or an address
  --scope SCOPE            ask for this, instead of what the server lists; may be repeated
  --client-id ID           a client that you have registered, where the server registers none
  --client-secret-file FILE  its secret (or in the environment variable MCP_BRIDGE_CLIENT_SECRET)
  --auth-key FILE          its private key, PEM; also --auth-key-id NAME and --auth-key-alg ALG
  --client-metadata-url URL  the address of your client's metadata document, which is its id
  --client-issuer ISSUER   where --client-id is registered: it is used nowhere else
  --resource URI|off       send this instead of what the server publishes, or nothing
  --authorize-param K=V    add it to the authorization request; may be repeated
  --issuer-alias A=B       the server announces the issuer A, whose metadata names B
  --redirect-host HOST     127.0.0.1 (default) or localhost
  --redirect-port PORT     where the browser comes back to (default: made of the URL)
  --dpop WHICH             auto (default), require or off: tokens that are bound to a key
  --assertion-file FILE    the assertion for --auth jwt-bearer, read at each use
  --idp-issuer ISSUER, --idp-token-url URL, --idp-client-id ID, --idp-client-secret-file FILE, --id-token-file FILE
                           the company's identity provider, for --auth enterprise
  --auth-dir DIR           where credentials are kept (or MCP_BRIDGE_AUTH_DIR)
  --token-store WHERE      file (default), or keyring: the files are encrypted with a key in the system's keyring
  --allow-private-auth     the server may name authorization servers at private addresses
  --auth-wait D            how long a request waits for you to sign in (default 45s)
  --auth-prompt HOW        browser (default), or error: nothing is opened, the request fails
  --config FILE            the server is one of a configuration file, and is named instead of a URL
  login:   --device-code, a code for another device; --fresh, register the client anew; --cancel, end a sign-in that
           waits; --callback ADDRESS, where the browser has ended ("-" reads it from stdin, which nobody else sees);
           --detached is for mcp-bridge itself
  logout:  --all; --forget-client, register anew next time
  status:  --json; --check, renew what is due. Exit status: 0 can be used, 3 a sign-in is needed.

Revisions of the protocol (serve, connect)
  --protocol WHICH         what to speak with the server: auto (default) finds out; legacy is initialize and
                           sessions, 2024-11-05 to 2025-11-25; modern is 2026-07-28
  --client-protocol WHICH  what clients may speak: auto (default) is all of these; or legacy, or modern,
                           which opens no sessions and does not serve HTTP+SSE
  --park-timeout D         how long a call waits for what its 2026-07-28 client was asked (default 10m)

Tools (serve, connect)
  --allow-tool GLOB        show only these tools; may be repeated
  --ignore-tool GLOB       hide these tools; may be repeated

Limits
  --max-message-size N     largest message, in bytes or with a unit: KiB, MiB, GiB (default 64MiB)
  --max-depth N            levels of objects and arrays in a message (default 1000)
  --request-timeout D      cancel a request on which the server stays silent for so long;
                           0 means never (default 0)
  --drain-timeout D        how long answers that are owed are waited for at the end of input, and from a server
                           that a new configuration changes or removes (default 30s)
  --grace D                the same after SIGTERM or SIGINT, which bounds those waits, too (default 5s)

Trace (serve, connect; docs/trace.md has the format)
  --trace FILE             write all messages, at both ends of the bridge, and what else happens, as JSON Lines; a full
                           FILE (64 MiB) and that of an earlier run become FILE.1, and so on to FILE.3
  --record FILE            the same, but every message as a whole and all in one file, for replay
  --trace-max-message N    how much of a message is kept, in bytes or with a unit; 0 is nothing (default 1MiB)
  --trace-redact WHAT      take out more than passwords, tokens and credentials: the member at a path of a message,
                           such as params.arguments.pin, or what matches re:REGEX; may be repeated
  --trace-unredacted       take nothing out but session ids and requestState

Metrics (serve)
  --metrics ADDRESS        answer Prometheus at http://ADDRESS/metrics; a port alone is one of this machine
  --metrics-tools          the name of a tool is a label of its calls (the first 200 names)

Log
  --log-level LEVEL        trace, debug, info, warn, error, off (default info); docs/log.md says what is told at
                           which level. SIGUSR1 changes to debug and back while the bridge runs (not on Windows)
  --debug, --silent        short for --log-level debug, and error
  --log-format FORMAT      text or json (default text); control and bidirectional characters are escaped in both

doctor (docs/doctor.md explains what it finds)
  --json                   the report as JSON
  --slow                   more time: a minute for the first answer, and the checks that wait
  --call NAME [JSON]       call this tool once, with these arguments; otherwise none is called
  --bundle FILE            write what belongs into a bug report, without secrets: FILE.zip or FILE.tar.gz
  It also takes --env, --env-file, --pass-env, --cwd, --pty, --header, --header-env, --header-file, --ca-file, --client-cert,
  --client-key and --max-message-size. Exit status: 0 nothing found but notes, 1 faults, 2 could not find out.

Looking at a run (serve, connect; docs/inspect.md)
  --inspect[=ADDR]         a page for browsers, whose URL is written to stderr; ADDR is HOST:PORT or unix:PATH
                           (default 127.0.0.1:0, any free port), and is given with "=" only: --inspect is enough
  --inspect-token-file FILE  who may look and who may act: "view TOKEN" or "act TOKEN" a line, instead of one token
                           in that URL. An address that other machines can reach needs it, and --tls-cert
  "mcp-bridge trace" looks at every run of the same user without a flag.

trace (docs/inspect.md explains what it shows)
  -v, -vv, --verbose        messages below their lines; both ends of the bridge side by side, with what differs marked
  --http                   HTTP exchanges and streams, too
  --json                   records as they stand in a trace
  --lost                   only what got lost, and where: requests without an answer, messages that were not passed
                           on, what was dropped and why; exit status 1 if there is anything
  --export FORMAT          write the trace as har, otlp or html to stdout
  Each WORD is text, or method:, tool:, id:, dir:c2s|s2c, hop:down|up, ses:, srv:, kind:, status:ok|err|401|pending|late
  or slow:500ms; "!" in front turns it round, * in it stands for any text. "-" reads a trace from stdin.

replay (docs/recordings.md; it also takes the flags of connect, and with --serve those of serve)
  --session NAME           which session of the trace (default: the first one)
  --hop WHERE              its messages at which end of the bridge: down (default), at the clients, or up
  --allow-redacted         use a recording that lacks what was taken out of it
  --ignore PATH            what may differ: a path as it is printed, such as result.content[*].text, METHOD:PATH, or
                           a METHOD with a slash; may be repeated
  --wait D                 how much longer than in the recording to wait for the server (default 10s)
  --timing                 keep the pauses of the recording
  --serve                  be the server: answer as the recording does
  --stdio                  be the server, for the client at stdin and stdout
  --strict                 exit status 1 if anything recorded was not asked, or anything else was
  Exit status: 0 no difference, 1 differences, 2 could not run, or the server has asked what was not recorded.

wrap, unwrap (docs/recordings.md)
  --client WHICH           claude, cursor, vscode, or a client's configuration file (default: the one that has it)

When serve has a pipe as stdin, it stops once that is closed; one that is closed from the start says nothing.
SIGTERM and SIGINT end everything gracefully; a second one, at once. SIGHUP makes serve load its files again
(--config, --token-file, --scope-map, --tls-*), which it also does when they change; where there are none, it ends it.

Exit status: 0 after a graceful end, 1 when something failed (the log says what), 2 for a mistake in the
command line or a configuration file, 130 or 143 when a second signal has ended it. Durations are written
500ms, 30s, 5m, 1h30m.
`
