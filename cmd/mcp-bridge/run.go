package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/eventlog"
	"github.com/mcp-bridge/mcp-bridge/internal/manual"
	"github.com/mcp-bridge/mcp-bridge/internal/migrate"
	"github.com/mcp-bridge/mcp-bridge/internal/nearest"
	"github.com/mcp-bridge/mcp-bridge/internal/notes"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// Exit statuses of the program. They are part of the command line's contract.
const (
	exitOK          = 0   // exit status: the run has ended as it should
	exitFail        = 1   // exit status: something went wrong while running, and stderr or the log says what; or the report (of doctor, replay, trace, status --check) has faults
	exitUsage       = 2   // exit status: the command line or a file it names is wrong; doctor and replay: they have no result (notRunError)
	exitSignIn      = 3   // exit status: the command status has found that a sign-in is needed (errSignInNeeded)
	exitInterrupted = 130 // exit status: a second signal, SIGINT, has ended the program at once
	exitTerminated  = 143 // exit status: a second signal, SIGTERM, has ended the program at once
)

// environment is what a run may touch of the process around it.
type environment struct {
	stdin, stdout *os.File                    // stdin and stdout of the process: with connect, record and replay --stdio, the client is there
	stderr        io.Writer                   // takes lines for people, and the log unless --log-file takes it; a write never waits for who reads it, once run has begun
	lookup        func(string) (string, bool) // returns the value of an environment variable, and whether it is set
	hangup        <-chan os.Signal            // gets each SIGHUP; nil: never
	levelSignal   <-chan os.Signal            // gets each SIGUSR1, which changes the log's level; nil: never

	eventLog *eventlog.Log // logs what an Observer is told; set by logEvents, nil before
}

// logEvents has the log tell what observer is told of, and the faults in it (package notes), until stop is called. Each levelSignal
// changes its level. otherLog is the Logger for everything else.
func (e *environment) logEvents(log hclog.Logger, observer *observe.Observer) (otherLog hclog.Logger, stop func()) {
	events := eventlog.New(log, observer)
	stopNotes := notes.Watch(observer)
	e.eventLog = events
	stopping := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-e.levelSignal:
				events.Toggle()
			case <-stopping:
				return
			}
		}
	})
	return eventlog.Once(log), func() {
		close(stopping)
		wg.Wait()
		stopNotes()
		events.Close()
	}
}

// usageError is a mistake in how the program was called.
type usageError struct {
	text       string // what the user is told: what is wrong, and often what to write instead
	isAnswered bool   // text already has the command line to write instead, so the manual is not recommended behind it
}

// Error returns the text that the user is told.
func (e *usageError) Error() string { return e.text }

// usagef returns a usageError with this text.
func usagef(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...)}
}

// answeredUsagef returns a usageError whose text has the whole command line to write instead: the manual is not recommended behind it.
func answeredUsagef(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...), isAnswered: true}
}

// loggedError is an error that the log or the report of a command has already: run prints nothing of it, and returns exitFail.
type loggedError struct{ error }

// run is the program: it returns the exit status. args are the arguments, without the program's name. The end of ctx ends it
// gracefully.
func run(ctx context.Context, args []string, env environment) int {
	errs := newLogWriter(env.stderr, "stderr was not read fast enough")
	defer errs.close()
	env.stderr = errs
	err := dispatch(ctx, args, env)
	var usage *usageError
	var logged *loggedError
	var notRun *notRunError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errSignInNeeded):
		return exitSignIn
	case errors.As(err, &logged):
		return exitFail
	case errors.As(err, &notRun):
		fmt.Fprintf(env.stderr, "mcp-bridge: %v\n", err)
		return exitUsage
	case errors.As(err, &usage) && usage.isAnswered:
		fmt.Fprintf(env.stderr, "mcp-bridge: %s\n", usage.text)
		return exitUsage
	case errors.As(err, &usage):
		fmt.Fprintf(env.stderr, "mcp-bridge: %s\nRun \"mcp-bridge help\" for the manual.\n", usage.text)
		return exitUsage
	default:
		fmt.Fprintf(env.stderr, "mcp-bridge: %v\n", err)
		return exitFail
	}
}

// dispatch runs the command that args call.
func dispatch(ctx context.Context, args []string, env environment) error {
	name, rest := splitCommand(args)
	if page, asked := parseHelp(args, name); asked {
		return help(ctx, page, env)
	}
	if name == "" {
		return usagef("nothing to do: give a command to serve after \"--\", or a URL to connect to; try \"mcp-bridge serve --demo\"")
	}
	if c, ok := findCommand(name); ok {
		return c.run(ctx, rest, env)
	}
	if program, instead, ok := migrate.AdviceFor(rest); ok {
		if instead.Line != "" {
			return answeredUsagef("%s is another program; write %s", instead.Program, instead)
		}
		return usagef("%s is another program; write mcp-bridge and only what follows %q", program, program) // which may be secret
	}
	hint := didYouMean("", name, commandNames())
	if _, err := exec.LookPath(name); err != nil && hint == "" {
		hint = "; the commands are " + strings.Join(commandNames(), ", ")
	}
	return usagef("%q is no command of mcp-bridge%s; to serve a program, write: mcp-bridge -- %s", name, hint, shownCommand(args))
}

// commandNames returns the names of all commands but the hidden ones.
func commandNames() []string {
	var names []string
	for _, c := range commandTable() {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

// didYouMean returns what is added to an error about a name that is none of known: a question whether a similar one, or the only one
// that begins with name, was meant; "": there is none. The question shows that one with prefix, such as "--", in front.
func didYouMean(prefix, name string, known []string) string {
	similar := nearest.To(name, known)
	if similar == "" && len(name) > 2 { // the beginning of one, and of no other
		starts := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return !strings.HasPrefix(k, name) })
		if len(starts) == 1 {
			similar = starts[0]
		}
	}
	if similar == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", prefix+similar)
}

// parseHelp reports as asked whether -h or --help is among our own arguments, those before "--". page is then what to show help of: command,
// which the arguments call, or nothing for the first page.
func parseHelp(args []string, command string) (page []string, asked bool) {
	for _, a := range args {
		if a == "--" || command == manual.CompleteCommand { // there it is a word to complete
			break
		}
		asked = asked || a == "-h" || a == "--help"
	}
	if _, known := findCommand(command); asked && known && !strings.HasPrefix(args[0], "-") {
		page = []string{command}
	}
	return page, asked
}

// splitCommand finds out which command the arguments call, and returns it and its arguments. If the first argument names none, it decides:
// --version and -V mean version; another flag means serve, if "--", --demo or --config is among the arguments, else connect; a URL or a host
// means connect, a configuration file means serve. If nothing fits, command is the first argument, and rest is all of them. command is "" if
// there are no arguments.
func splitCommand(args []string) (command string, rest []string) {
	if len(args) == 0 {
		return "", nil
	}
	if _, ok := findCommand(args[0]); ok {
		return args[0], args[1:]
	}
	if args[0] == "--version" || args[0] == "-V" {
		return "version", args[1:]
	}
	flags := strings.HasPrefix(args[0], "-")
	switch {
	case flags && slices.ContainsFunc(args, func(a string) bool {
		return a == "--" || a == "--demo" || a == "--config" || strings.HasPrefix(a, "--config=")
	}):
		return "serve", args
	case flags || isURL(args[0]) || looksLikeHost(args[0]):
		return "connect", args
	case isConfigFile(args[0]):
		return "serve", args
	}
	return args[0], args
}
