package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/migrate"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// logFlags say what is logged and how. serve, connect, record and replay have them.
type logFlags struct {
	level  string // --log-level: trace, debug, info, warn, error or off
	format string // --log-format: text or json
	debug  bool   // --debug: the level is debug, whatever --log-level says
	silent bool   // --silent: the level is error, whatever --log-level says; --debug wins over it
}

// register adds the flags of logFlags to fs, and gives the fields their defaults.
func (f *logFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.level, "log-level", "info", "")
	fs.StringVar(&f.format, "log-format", "text", "")
	fs.BoolVar(&f.debug, "debug", false, "")
	fs.BoolVar(&f.silent, "silent", false, "")
}

// logger returns a logger that writes to w: to stderr or to the file of --log-file, as stdout may carry messages. The
// standard logger of package log writes to it too from now on.
func (f *logFlags) logger(w io.Writer) (hclog.Logger, error) {
	level := hclog.LevelFromString(f.level)
	switch {
	case level == hclog.NoLevel:
		return nil, usagef("--log-level %q: use trace, debug, info, warn, error or off", f.level)
	case f.debug:
		level = hclog.Debug
	case f.silent:
		level = hclog.Error
	}
	if f.format != "text" && f.format != "json" {
		return nil, usagef("--log-format %q: use text or json", f.format)
	}
	log := hclog.New(&hclog.LoggerOptions{
		Name: "mcp-bridge", Level: level, Output: w, JSONFormat: f.format == "json",
	})
	// net/http reports some oddities of its peers to the standard logger, with
	// the first bytes of what they sent.
	stdlog.SetFlags(0)
	stdlog.SetOutput(log.StandardWriter(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}))
	return oneLineLogger{log}, nil
}

// reportError returns the error of a run as run is to see it. With a log in JSON, which is for programs, it logs the error, as the last line,
// and returns a loggedError. Otherwise, and for a usageError, it returns err itself, which is printed as plain text.
func (f *logFlags) reportError(log hclog.Logger, err error) error {
	var usage *usageError
	if err == nil || f.format != "json" || errors.As(err, &usage) {
		return err
	}
	log.Error("failed", "error", err)
	return &loggedError{err}
}

// childFlags say how a stdio server is run.
type childFlags struct {
	name      string        // --name: what the log and traces call the server, also a remote one; "": made of the command, or "remote"
	cwd       string        // --cwd: the working directory of the server; "": ours
	passEnv   string        // --pass-env: which of our environment variables the server inherits; "": all, or for the servers of a configuration file the safe ones
	envFile   string        // --env-file: a file of environment variables for the server, one NAME=VALUE a line; "": none
	env       []string      // --env: environment variables for the server, as NAME=VALUE, or NAME for the value that it has here
	addedEnv  []string      // the environment variables of --env-file and --env, as NAME=VALUE; set by spec. With --config, connect sets it to those that the file gives the server
	pty       bool          // --pty: the server's stdout is a terminal
	stdinWait time.Duration // --stdin-wait: how long to wait for the end of the server after its stdin was closed; 0: not at all
	termWait  time.Duration // --term-wait: how long to wait for the end after SIGTERM, which a server gets that has not ended within stdinWait; 0: not at all
	killWait  time.Duration // --kill-wait: how long to wait for the end after SIGKILL, which a server gets that has not ended within termWait; 0: 5 s
}

// register adds the flags of childFlags to fs, and gives the fields their defaults.
func (f *childFlags) register(fs *pflag.FlagSet) {
	defaults := config.DefaultSettings()
	fs.StringVar(&f.name, "name", "", "")
	fs.StringVar(&f.cwd, "cwd", "", "")
	fs.StringVar(&f.passEnv, "pass-env", "", "")
	fs.StringVar(&f.envFile, "env-file", "", "")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "")
	fs.BoolVar(&f.pty, "pty", false, "")
	fs.DurationVar(&f.stdinWait, "stdin-wait", defaults.StdinWait, "")
	fs.DurationVar(&f.termWait, "term-wait", defaults.TermWait, "")
	fs.DurationVar(&f.killWait, "kill-wait", defaults.KillWait, "")
}

// spec describes the child that runs argv, the command and its arguments, and sets addedEnv. lookup returns variables of our own environment.
func (f *childFlags) spec(argv []string, lookup func(string) (string, bool)) (supervisor.Spec, error) {
	addedEnv, err := f.readAddedEnv(lookup)
	if err != nil {
		return supervisor.Spec{}, err
	}
	f.addedEnv = addedEnv
	policy := f.passEnv
	if policy == "" {
		policy = "all"
	}
	env, err := supervisor.Environ(policy, addedEnv)
	if err != nil {
		return supervisor.Spec{}, usagef("%v", err)
	}
	name := f.name
	if name == "" {
		name = commandName(argv)
	}
	return supervisor.Spec{
		Name: name, Path: argv[0], Args: argv[1:], Env: env, Dir: f.cwd, PTY: f.pty,
		Stop: supervisor.StopWaits{Stdin: orNever(f.stdinWait), Term: orNever(f.termWait), Kill: orNever(f.killWait)},
	}, nil
}

// baseName returns what stands behind the last slash or backslash of a path: the whole path if there is none.
func baseName(path string) string {
	return path[strings.LastIndexAny(path, `/\`)+1:]
}

// readAddedEnv returns the variables of --env-file and --env, the latter last. lookup returns variables of our own environment.
func (f *childFlags) readAddedEnv(lookup func(string) (string, bool)) ([]string, error) {
	var added []string
	if f.envFile != "" {
		err := eachLine("--env-file", f.envFile, func(n int, line string) error {
			name, value, wrong := config.ParseVariable(line)
			if wrong != "" {
				return usagef("--env-file %s, line %d: %s", f.envFile, n, wrong)
			}
			added = append(added, name+"="+value)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, kv := range f.env {
		name, _, given := strings.Cut(kv, "=")
		if name == "" {
			return nil, usagef("--env: write NAME=value, or NAME for the value it has here")
		}
		if !given {
			value, set := lookup(name)
			if !set {
				return nil, usagef("--env %s: the environment variable is not set; write %s=value", name, name)
			}
			kv = name + "=" + value
		}
		added = append(added, kv)
	}
	return added, nil
}

// eachLine calls f for each line of the file name that is neither blank nor a # comment, and ends at the first error. n is
// the number of the line; flag is the flag that names the file, for the text of an error. A byte order mark in front, which
// some editors write, is no part of the first line.
func eachLine(flag, name string, f func(n int, line string) error) error {
	file, err := os.Open(name)
	if err != nil {
		return usagef("%s: %v", flag, err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := f(n, line); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return usagef("%s %s: %v", flag, name, err)
	}
	return nil
}

// readHeaders returns the headers that values (--header), file (--header-file; "": none) and variables (--header-env) give, in the order of
// file, values, variables. lookup returns variables of our own environment.
func readHeaders(values []string, file string, variables []string, lookup func(string) (string, bool)) (http.Header, error) {
	h := http.Header{}
	add := func(where, line string) error {
		k, v, ok := strings.Cut(line, ":")
		k = strings.TrimSpace(k)
		if !ok || !isHeaderName(k) {
			return usagef("%s: write \"Name: value\" (or \"Name:value\")", where)
		}
		v, err := expand(strings.TrimSpace(v), lookup)
		if err != nil {
			return usagef("%s: %s: %v", where, k, err)
		}
		if v == "..." { // from an answer that does not repeat what may be secret
			return usagef("%s: put the value of %s in place of \"...\"", where, k)
		}
		if strings.ContainsAny(v, "\r\n\x00") {
			return usagef("%s: the value of %s has a line break", where, k)
		}
		h.Add(k, v)
		return nil
	}
	if file != "" {
		err := eachLine("--header-file", file, func(n int, line string) error {
			return add(fmt.Sprintf("--header-file %s, line %d", file, n), line)
		})
		if err != nil {
			return nil, err
		}
	}
	for _, v := range values {
		if err := add("--header", v); err != nil {
			return nil, err
		}
	}
	for _, v := range variables {
		name, variable, ok := strings.Cut(v, "=")
		if !ok || variable == "" {
			return nil, usagef("--header-env: write NAME=VARIABLE, such as Authorization=AUTH, where the variable AUTH has the value")
		}
		if err := add("--header-env", name+": ${"+variable+"}"); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// isHeaderName reports whether s may be the name of an HTTP header: it is not empty, and has no character that a name cannot have.
func isHeaderName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// expand replaces ${NAME} with the environment variable. One that is not set
// is an error: an empty credential would only fail later, and less clearly.
func expand(s string, lookup func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		out.WriteString(before)
		if !ok {
			return out.String(), nil
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", errors.New("\"${\" has no closing \"}\"")
		}
		value, set := lookup(name)
		if !set {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		out.WriteString(value)
		s = after
	}
}

// invalidValueError returns the usageError for a flag's value that cannot be parsed: it says what the value should be.
func invalidValueError(err *pflag.InvalidValueError) error {
	want := ""
	switch err.GetFlag().Value.Type() {
	case "int", "int64", "uint", "uint16":
		want = "a whole number"
	case "duration":
		want = "a time with its unit, such as 30s, 5m or 1h30m"
	case "bool":
		want = "true or false"
	default: // it says so itself
		return usagef("%v", err)
	}
	return usagef("--%s is %q and should be %s", err.GetFlag().Name, err.GetValue(), want)
}

// explainFlagError returns the usageError for err, with which the parsing of args has failed. Of a flag that the command does not have
// it says what was probably meant: it is another command's, another program's, or that of a program that should stand behind "--".
func explainFlagError(fs *pflag.FlagSet, args []string, err error) error {
	command := fs.Name()
	if value, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return invalidValueError(value)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usagef("%v", err)
	}
	name := unknown.GetSpecifiedName()
	if instead, ok := migrate.SupergatewayAdvice(args); ok {
		return answeredUsagef("--%s is a flag of %s; write %s", name, instead.Program, instead)
	}
	if command == "serve" || command == "connect" {
		this, other := migrateCommand("serve"), migrateCommand("connect")
		if command == "connect" {
			this, other = other, this
		}
		if instead, ok := migrate.MixedAdvice(this, other, args); ok && instead.Line != "" {
			return answeredUsagef("%s", instead.FlagsText())
		} else if ok {
			return usagef("%s", instead.FlagsText())
		}
	}
	if advice := otherBridgeAdvice(command, name, args); advice != "" {
		return usagef("%s", advice)
	}
	for _, c := range commandTable() {
		if c.Name != command && slices.Contains(flagsOf(c.Name), name) {
			if command != "serve" && command != "connect" { // what another command does is not what was wanted
				return usagef("--%s is a flag of %s, not of %s%s", name, c.Name, command, usageHint(command))
			}
			hint := "" // the arguments may have a credential, and stderr may be kept
			if i := findProgram(args); i >= 0 {
				hint = fmt.Sprintf(", with \"--\" in front of %q", args[i])
			}
			return usagef("--%s is a flag of %s, not of %s; write mcp-bridge %s and the same arguments%s", name, c.Name, command, c.Name, hint)
		}
	}
	if advice, ok := migrate.FlagAdvice(name); ok {
		return usagef("%s", advice)
	}
	if len(name) > 1 {
		if guess := didYouMean("--", name, append(flagsOf(command), "help")); guess != "" {
			return usagef("%v%s", err, guess)
		}
	}
	if !slices.Contains([]string{"serve", "connect", "doctor"}, command) { // a word in front is no command to run
		return usagef("%v%s", err, usageHint(command))
	}
	if i := findProgram(args); i >= 0 {
		return usagef("%v; if %q is the command to run, write \"--\" in front of it: mcp-bridge %s -- %s", err, args[i], command, shownCommand(args[i:]))
	}
	return usagef("%v", err)
}

// shownCommand returns a command as one writes it in a shell, for an error or a hint on stderr. What may be secret in it is
// left out, as somebody may keep what stands on stderr.
func shownCommand(argv []string) string {
	return printable.ShellCommand(migrate.WithoutSecrets(argv)...)
}

// refuseOtherBridge returns an error if argv, a command to run, is a line of another program that listens, and so never answers on its
// stdout. nil: it is none, or nothing can be said to write instead.
func refuseOtherBridge(argv []string) error {
	if program, instead, ok := migrate.AdviceFor(argv); ok && instead.Line != "" && !instead.IsConnect() {
		return answeredUsagef("%s is another program, which does not speak MCP on its stdout; write %s", program, instead)
	}
	return nil
}

// warnOtherBridge says in the log what to write instead if argv, a command to run, is a line of another bridge over stdio. That works, but one
// bridge is enough. command is the command of ours that runs it: serve or connect.
func warnOtherBridge(argv []string, command string, log hclog.Logger) {
	if program, instead, ok := migrate.AdviceFor(argv); ok && instead.Line != "" {
		write := strings.Replace(instead.Line, "mcp-bridge connect", "mcp-bridge "+command, 1)
		log.Warn("the command is another bridge, which mcp-bridge can take the place of", "program", program, "write", write)
	}
}

// migrateCommand describes one of our commands to package migrate: its name, and which flags it has.
func migrateCommand(command string) migrate.Command {
	c, _ := findCommand(command)
	set := c.newFlagSet()
	return migrate.Command{Name: command, LookupFlag: func(name string) (known, alone bool) {
		f := set.Lookup(string(hyphenateFlag(nil, name)))
		if f == nil && len(name) == 1 {
			f = set.ShorthandLookup(name)
		}
		return f != nil, f != nil && f.NoOptDefVal != ""
	}}
}

// usageHint returns the end of an error's text that says how a command of ours is called; "": there is no such command, or it is hidden.
func usageHint(command string) string {
	c, ok := findCommand(command)
	if !ok || len(c.Usage) == 0 {
		return ""
	}
	return "; write mcp-bridge " + strings.Join(c.Usage, ", or mcp-bridge ")
}

// otherBridgeAdvice returns what to write if args were written for another program. name is a flag in args that command does not have. As another
// command of ours has it, it alone does not tell: there must be another argument that only the other program takes. "": there is none.
func otherBridgeAdvice(command, name string, args []string) string {
	ours := func(flag string) bool {
		return slices.ContainsFunc(commandTable(), func(c subcommand) bool { return slices.Contains(flagsOf(c.Name), flag) })
	}
	if !ours(name) {
		return "" // it is answered by itself
	}
	for i, a := range args {
		flag, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if advice, known := migrate.FlagAdvice(flag); known && strings.HasPrefix(a, "--") && !ours(flag) {
			return advice
		}
		if _, err := strconv.ParseUint(a, 10, 16); err == nil && command == "connect" && name == "host" && i > 0 && isURL(args[i-1]) {
			return "--host is a flag of mcp-remote: write --redirect-host HOST, and --redirect-port " + a
		}
	}
	return ""
}

// findProgram returns the index in args of what looks like a program to run that lacks the "--" in front of it; negative: there is none.
func findProgram(args []string) int {
	if slices.Contains(args, "--") {
		return -1
	}
	for i, a := range args {
		isFlagValue := i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.Contains(args[i-1], "=")
		if !strings.HasPrefix(a, "-") && !isURL(a) && !isFlagValue {
			return i
		}
	}
	return -1
}

// flagNames returns the names of all flags of a command.
func flagNames(fs *pflag.FlagSet) []string {
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// parseFlags parses args, the arguments of a command, and returns those that belong to no flag: positional are those before "--", command
// those after it (nil: there is no "--"). The error is a usageError, which says what to write instead.
func parseFlags(fs *pflag.FlagSet, args []string) (positional, command []string, err error) {
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.SetNormalizeFunc(hyphenateFlag)
	if err := fs.Parse(args); err != nil {
		return nil, nil, explainFlagError(fs, args, err)
	}
	rest := fs.Args()
	if n := fs.ArgsLenAtDash(); n >= 0 {
		return rest[:n], rest[n:], nil
	}
	return rest, nil, nil
}

// hyphenateFlag returns the name of our flag for a name that is written as programs in JavaScript do: session-timeout for sessionTimeout.
func hyphenateFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	var b strings.Builder
	for _, r := range name {
		if 'A' <= r && r <= 'Z' {
			b.WriteByte('-')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return pflag.NormalizedName(b.String())
}
