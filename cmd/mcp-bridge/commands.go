package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/manual"
)

// A subcommand is one command of the program, such as serve: what help says of it, its flags, and what it does.
type subcommand struct {
	manual.Command // what help says of the command

	newFlagSet func() *pflag.FlagSet                                           // returns all flags that the command takes; nil: it takes none
	run        func(ctx context.Context, args []string, env environment) error // runs the command to its end; args are those behind its name
}

// commandTable returns all commands, also the hidden one, in the order in which help shows them.
func commandTable() []subcommand {
	return slices.Concat(bridgeCommands(), watchCommands(), recordCommands(), accountCommands(), otherCommands(), helpCommands())
}

// bridgeCommands returns the commands that carry messages between clients and servers.
func bridgeCommands() []subcommand {
	return []subcommand{{
		newFlagSet: new(serveFlags).flagSet, run: serve,
		Command: manual.Command{
			Name: "serve", Summary: "expose a server, or many, over every transport",
			Usage: []string{"serve [flags] -- COMMAND [ARG...]", "serve [flags] URL", "serve [flags] --config FILE", "serve [flags] --demo"},
			Examples: []manual.Example{
				{Purpose: "A stdio server at http://127.0.0.1:8080/mcp, /sse and /ws", CommandLine: "serve -- npx -y @modelcontextprotocol/server-everything"},
				{Purpose: "The servers of a client's configuration file", CommandLine: "serve --config servers.json"},
				{Purpose: "A remote server, over every transport, at another port", CommandLine: "serve --port 9000 https://mcp.example.com/mcp"},
				{Purpose: "For other machines, with TLS and tokens", CommandLine: "serve --listen 0.0.0.0:8443 --tls-cert cert.pem \\\n        --tls-key key.pem --token-file tokens -- ./my-server"},
			},
			Notes: []string{
				"It answers at /mcp (Streamable HTTP), /sse and /message (HTTP+SSE), /ws (WebSocket), /healthz and /readyz; with --config at /servers/NAME/mcp and so on, and /servers is the list.",
				`"--" ends the flags of mcp-bridge; what follows is run as it is, without a shell. A URL is http://, https://, ws://, wss://, unix:PATH or tcp:HOST:PORT.`,
				"When stdin is a pipe that is open at the start, serve stops once that is closed. SIGTERM and SIGINT end it gracefully; a second one, at once. SIGHUP loads its files again, and so does a change of a file; without any file, SIGHUP ends it.",
			},
		},
	}, {
		newFlagSet: new(connectFlags).flagSet, run: connect,
		Command: manual.Command{
			Name: "connect", Summary: "present a server to a stdio client",
			Usage: []string{"connect [flags] URL", "connect [flags] -- COMMAND [ARG...]", "connect [flags] --config FILE NAME"},
			Examples: []manual.Example{
				{Purpose: "A remote server; a browser opens if it asks for a sign-in", CommandLine: "connect https://mcp.example.com/mcp"},
				{Purpose: "With a token from the environment variable AUTH", CommandLine: "connect --header-env Authorization=AUTH https://example.com/mcp"},
				{Purpose: "A stdio server under supervision, with a trace", CommandLine: "connect --trace trace.jsonl -- uvx mcp-server-git"},
				{Purpose: "One server of a configuration file", CommandLine: "connect --config servers.json memory"},
			},
			Notes: []string{
				"Messages travel on stdin and stdout; the log goes to stderr. MCP clients start this line: in their configuration mcp-bridge is the \"command\", and the rest are the \"args\".",
				`"--" ends the flags of mcp-bridge; what follows is run as it is, without a shell. A URL is http://, https://, ws://, wss://, unix:PATH or tcp:HOST:PORT.`,
			},
		},
	}}
}

// watchCommands returns the commands that show what happens: doctor and trace.
func watchCommands() []subcommand {
	return []subcommand{{
		newFlagSet: new(doctorFlags).flagSet, run: diagnose,
		Command: manual.Command{
			Name: "doctor", Summary: "say what is wrong with a server, and what to do about it",
			Usage: []string{"doctor [flags] URL", "doctor [flags] -- COMMAND [ARG...]", "doctor [flags] --config FILE NAME"},
			Examples: []manual.Example{
				{Purpose: "A remote server", CommandLine: "doctor https://mcp.example.com/mcp"},
				{Purpose: "A stdio server", CommandLine: "doctor -- npx -y @modelcontextprotocol/server-everything"},
				{Purpose: "A server of a configuration file", CommandLine: "doctor --config servers.json files"},
				{Purpose: "And call one of its tools", CommandLine: `doctor --call echo '{"message": "hi"}' https://example.com/mcp`},
				{Purpose: "For a bug report", CommandLine: "doctor --bundle report.zip -- uvx mcp-server-git"},
			},
			Notes: []string{"docs/doctor.md explains what it finds. Exit status: 0 nothing but notes was found, 1 faults were found, 2 nothing could be checked."},
		},
	}, {
		newFlagSet: new(traceFlags).flagSet, run: traceCommand,
		Command: manual.Command{
			Name: "trace", Summary: "show what passes through a running bridge, or a trace",
			Usage: []string{"trace [flags] [PID|NAME|FILE] [WORD...]"},
			Examples: []manual.Example{
				{Purpose: "What passes through your bridge that runs (of several, name one by its PID)", CommandLine: "trace"},
				{Purpose: "What waits for an answer there", CommandLine: "trace status:pending"},
				{Purpose: "Slow calls of a trace", CommandLine: "trace trace.jsonl method:tools/call slow:1s"},
				{Purpose: "What got lost, and where", CommandLine: "trace trace.jsonl --lost"},
			},
			Notes: []string{
				`Each WORD is text, or method:, tool:, id:, dir:c2s|s2c, hop:down|up, ses:, srv:, kind:, status:ok|err|401|pending|late or slow:500ms; "!" in front turns it round, * in it stands for any text. "-" reads a trace from stdin. docs/inspect.md explains what is shown.`,
			},
		},
	}}
}

// recordCommands returns the commands about recordings: record, replay, and wrap and unwrap, with which a desktop client can be recorded.
func recordCommands() []subcommand {
	return []subcommand{{
		newFlagSet: (&connectFlags{isRecord: true}).flagSet, run: recordCommand,
		Command: manual.Command{
			Name: "record", Summary: "connect, and record the session in a file",
			Usage: []string{"record FILE [flags] URL", "record FILE [flags] -- COMMAND [ARG...]"},
			Examples: []manual.Example{
				{Purpose: "A stdio server, for a stdio client", CommandLine: "record session.jsonl -- uvx mcp-server-git"},
				{Purpose: "A remote server", CommandLine: "record session.jsonl https://mcp.example.com/mcp"},
			},
			AlsoFlagsOf: []string{"connect"},
			Notes:       []string{`Every message is kept as a whole, without secrets; "mcp-bridge replay" reads the file (docs/recordings.md).`},
		},
	}, {
		newFlagSet: replayFlagSet, run: replayCommand,
		Command: manual.Command{
			Name: "replay", Summary: "act as the client, or as the server, of a recording",
			Usage: []string{"replay [flags] FILE URL", "replay [flags] FILE -- COMMAND [ARG...]", "replay --serve [flags] FILE", "replay --stdio [flags] FILE"},
			Examples: []manual.Example{
				{Purpose: "Find out what a server answers differently now", CommandLine: "replay session.jsonl -- uvx mcp-server-git"},
				{Purpose: "The same, but an id may differ", CommandLine: "replay --ignore 'result.content[*].id' session.jsonl -- ./server"},
				{Purpose: "A server that answers as recorded", CommandLine: "replay --serve --port 9000 session.jsonl"},
				{Purpose: "The same for a stdio client", CommandLine: "replay --stdio session.jsonl"},
			},
			AlsoFlagsOf: []string{"connect", "serve"},
			Notes: []string{"In the client's place, the flags of connect about the server, its messages and the log count; with --serve those of serve, with --stdio those of connect. The file is in the place of --config.",
				"Exit status: 0 no difference, 1 differences, 2 could not run, or the server has asked what was not recorded."},
		},
	}, {
		newFlagSet: func() *pflag.FlagSet { return new(wrapFlags).flagSet("wrap") }, run: runWrap("wrap"),
		Command: manual.Command{
			Name: "wrap", Summary: "put the bridge between a desktop client and its server",
			Usage: []string{"wrap [flags] NAME"},
			Examples: []manual.Example{
				{Purpose: "The server that is called memory in the client's configuration", CommandLine: "wrap memory"},
				{Purpose: "If several clients have one", CommandLine: "wrap --client claude memory"},
				{Purpose: "A client's own file", CommandLine: "wrap --client ./.mcp.json memory"},
			},
			Notes: []string{`Start the client anew then. "mcp-bridge trace NAME" shows what passes, "mcp-bridge unwrap NAME" takes the bridge out again (docs/recordings.md).`},
		},
	}, {
		newFlagSet: func() *pflag.FlagSet { return new(wrapFlags).flagSet("unwrap") }, run: runWrap("unwrap"),
		Command: manual.Command{
			Name: "unwrap", Summary: "take the bridge out again, byte for byte",
			Usage:    []string{"unwrap [flags] NAME"},
			Examples: []manual.Example{{Purpose: "The server that was wrapped", CommandLine: "unwrap memory"}},
		},
	}}
}

// accountCommands returns the commands about credentials of remote servers: login, logout and status.
func accountCommands() []subcommand {
	return []subcommand{{
		newFlagSet: new(loginFlags).flagSet, run: login,
		Command: manual.Command{
			Name: "login", Summary: "sign in to a remote server, in a browser or with a code",
			Usage: []string{"login [flags] URL", "login [flags] --config FILE NAME"},
			Examples: []manual.Example{
				{Purpose: "In the browser of this machine", CommandLine: "login https://mcp.example.com/mcp"},
				{Purpose: "With a code, on another device", CommandLine: "login --device-code https://mcp.example.com/mcp"},
				{Purpose: "A second account", CommandLine: "login --profile work https://mcp.example.com/mcp"},
				{Purpose: "With a client that you have registered", CommandLine: "login --client-id ID https://mcp.example.com/mcp"},
			},
			Notes: []string{`Give flags such as --profile and --client-id again wherever the sign-in is used. More: "mcp-bridge help auth".`},
		},
	}, {
		newFlagSet: new(logoutFlags).flagSet, run: logout,
		Command: manual.Command{
			Name: "logout", Summary: "sign out, and have the tokens revoked",
			Usage: []string{"logout [flags] URL", "logout [flags] --config FILE NAME", "logout [flags] --all"},
			Examples: []manual.Example{
				{Purpose: "One server", CommandLine: "logout https://mcp.example.com/mcp"},
				{Purpose: "All servers", CommandLine: "logout --all"},
			},
		},
	}, {
		newFlagSet: new(statusFlags).flagSet, run: status,
		Command: manual.Command{
			Name: "status", Summary: "say who is signed in where",
			Usage: []string{"status [flags] [URL]", "status [flags] --config FILE NAME"},
			Examples: []manual.Example{
				{Purpose: "All servers", CommandLine: "status"},
				{Purpose: "One, renewing what is due", CommandLine: "status --check https://mcp.example.com/mcp"},
			},
			Notes: []string{"Exit status: 0 what is shown can be used, 1 --check could not renew a token, 3 a sign-in is needed."},
		},
	}}
}

// otherCommands returns the commands that belong to no other group.
func otherCommands() []subcommand {
	return []subcommand{{
		run: func(_ context.Context, args []string, env environment) error { return checkConfig(args, env) },
		Command: manual.Command{
			Name: "check-config", Summary: "say what is wrong with a configuration file",
			Usage:    []string{"check-config FILE"},
			Examples: []manual.Example{{Purpose: "All mistakes, with line and column", CommandLine: "check-config servers.json"}},
			Notes:    []string{"Exit status: 0 all is well, 1 a command cannot be found, 2 mistakes in the file."},
		},
	}, {
		run: health,
		Command: manual.Command{
			Name: "health", Summary: "say whether a bridge that serves is ready",
			Usage: []string{"health [ADDRESS]"},
			Examples: []manual.Example{
				{Purpose: "The one at the default address, 127.0.0.1:8080", CommandLine: "health"},
				{Purpose: "At another port, with TLS", CommandLine: "health https://127.0.0.1:8443"},
				{Purpose: "At a Unix socket", CommandLine: "health unix:/run/mcp-bridge.sock"},
				{Purpose: "Only whether the process lives", CommandLine: "health http://127.0.0.1:8080/healthz"},
			},
			Notes: []string{"For a container's HEALTHCHECK, and for scripts. It asks /readyz unless the address has a path, sends no token, and does not verify the certificate. Exit status: 0 it is ready, 1 it is not, or nobody answers within 5s."},
		},
	}, {
		run: runDemo,
		Command: manual.Command{
			Name: "demo", Summary: "the demo server itself, on stdin and stdout",
			Usage:    []string{"demo"},
			Examples: []manual.Example{{Purpose: "Look at it", CommandLine: "doctor -- mcp-bridge demo"}},
			Notes:    []string{`"mcp-bridge serve --demo" serves it.`},
		},
	}, {
		run: func(_ context.Context, args []string, env environment) error {
			if len(args) > 0 {
				return usagef("version takes no arguments")
			}
			return printVersion(env)
		},
		Command: manual.Command{Name: "version", Summary: "print the version", Usage: []string{"version"}},
	}}
}

// runWrap returns the function that runs the command wrap or unwrap, whichever of them command is.
func runWrap(command string) func(context.Context, []string, environment) error {
	return func(_ context.Context, args []string, env environment) error { return wrapCommand(command, args, env) }
}

// replayFlagSet returns the set of all flags of replay: those for the client's place, and those with --serve or --stdio.
func replayFlagSet() *pflag.FlagSet {
	set := new(replayFlags).flagSet()
	set.AddFlagSet(new(replayServeFlags).flagSet())
	return set
}

// knownFlags returns what a FlagSet knows of its flags, as package manual takes it.
func knownFlags(set *pflag.FlagSet) []manual.ParsedFlag {
	var all []manual.ParsedFlag
	set.VisitAll(func(f *pflag.Flag) {
		all = append(all, manual.ParsedFlag{Name: f.Name, Short: f.Shorthand, Default: shownDefault(f), IsSwitch: f.NoOptDefVal != ""})
	})
	return all
}

// shownDefault returns a flag's default as one would write it; "": help need not show it, as it is empty, zero or false.
func shownDefault(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "0", "0s", "[]", "false":
		return ""
	}
	if d, err := time.ParseDuration(f.DefValue); err == nil && f.Value.Type() == "duration" {
		return shortDuration(d)
	}
	return f.DefValue
}

// shortDuration returns the text of a duration without zero units at its end: 30m, not 30m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// findCommand returns the command of this name; ok is false if there is none.
func findCommand(name string) (c subcommand, ok bool) {
	table := commandTable()
	i := slices.IndexFunc(table, func(c subcommand) bool { return c.Name == name })
	if i < 0 {
		return c, false
	}
	return table[i], true
}

// flagsOf returns the names of a command's flags that help shows.
func flagsOf(name string) []string {
	m := newManual()
	c, _ := findCommand(name)
	if c.newFlagSet == nil {
		return nil
	}
	return slices.DeleteFunc(flagNames(c.newFlagSet()), func(flag string) bool { return !m.IsFlagShown(name, flag) })
}

// help prints the first page, or that of a command or a topic.
func help(_ context.Context, args []string, env environment) error {
	m := newManual()
	var err error
	switch len(args) {
	case 0:
		_, err = fmt.Fprint(env.stdout, m.FrontPage())
	case 1:
		text, ok := m.Page(args[0])
		if !ok {
			pages := m.PageNames()
			return usagef("there is no help on %q%s; there is help on %s", args[0], didYouMean("", args[0], pages), strings.Join(pages, ", "))
		}
		_, err = fmt.Fprint(env.stdout, text)
	default:
		return usagef("help takes one command or topic; %q is one argument too many", args[1])
	}
	return err
}
