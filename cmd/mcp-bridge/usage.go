package main

// usage is the manual, as "mcp-bridge help" prints it.
const usage = `mcp-bridge - converts between the transports of the Model Context Protocol

  mcp-bridge serve [flags] -- COMMAND [ARG...]    expose a stdio server over Streamable HTTP
  mcp-bridge serve [flags] --demo                 expose the built-in demo server
  mcp-bridge connect [flags] URL                  present a remote server as a stdio process
  mcp-bridge connect [flags] -- COMMAND [ARG...]  run a stdio server under supervision, for a stdio client
  mcp-bridge demo                                 the demo server itself, on stdin and stdout
  mcp-bridge version                              print the version
  mcp-bridge help                                 print this page

  mcp-bridge [flags] -- COMMAND [ARG...]          short for serve
  mcp-bridge [flags] URL                          short for connect

"--" ends the flags of mcp-bridge; what follows is run as it is, without a shell.
Messages travel on stdin and stdout; the log goes to stderr.

Where serve listens
  --listen HOST:PORT       address to bind; may be repeated (default 127.0.0.1:8080; port 0 picks one)
  --host HOST, --port N    the same in two parts
  --insecure               bind an address that other machines can reach, though nobody is authenticated
  --allow-origin ORIGIN    admit a browser origin besides loopback, such as https://app.example;
                           may be repeated
  --allow-host HOST        admit a Host header besides loopback names when bound to loopback;
                           may be repeated

Sessions of serve
  --max-sessions N         more are answered 503 (default 1000)
  --session-timeout D      end a session that is idle for so long; 0 means never (default 30m)

The server that is run (serve, connect)
  --env NAME=VALUE, -e     set a variable in its environment, or pass ours on with NAME alone; may be repeated
  --env-file FILE          variables, one NAME=VALUE a line
  --pass-env WHAT          what it inherits: all (without MCP_BRIDGE_*), safe, or NAME,NAME,... (default all)
  --cwd DIR                its working directory
  --name NAME              what to call it in the log (default: the command's name)
  --pty                    give it a terminal as stdout, for programs that otherwise buffer
  --stdin-wait D           how it is stopped: stdin is closed, and after D (default 5s)
  --term-wait D            its process group gets SIGTERM, and after D (default 5s)
  --kill-wait D            SIGKILL; so long for the group to be gone (default 5s)

The remote server (connect)
  --header "NAME: VALUE"   send a header with every request; ${VAR} is expanded; may be repeated
  --header-file FILE       headers, one "NAME: VALUE" a line
  --connect-timeout D      time to connect in (default 10s)

Limits
  --max-message-size N     largest message, in bytes or with a unit: KiB, MiB, GiB (default 64MiB)
  --request-timeout D      cancel a request on which the server stays silent for so long;
                           0 means never (default 0)
  --drain-timeout D        how long answers that are owed are waited for at the end of input (default 30s)
  --grace D                the same after SIGTERM or SIGINT (default 5s)

Log
  --log-level LEVEL        trace, debug, info, warn, error, off (default info)
  --log-format FORMAT      text or json (default text)

serve answers at /mcp; /healthz says that the process lives, /readyz that a server runs or can be started.
When serve has a pipe as stdin, it stops once that is closed; one that is closed from the start says nothing.
SIGTERM, SIGINT and SIGHUP end everything gracefully; a second one, at once.

Exit status: 0 after a graceful end, 1 when something failed (the log says what), 2 for a mistake in the
command line. Durations are written 500ms, 30s, 5m, 1h30m.
`
