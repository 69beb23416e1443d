package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/manual"
)

// helpCommands returns the commands that explain the others: help, completion, man, and the hidden one that completion scripts run.
func helpCommands() []subcommand {
	return []subcommand{{
		run: help,
		Command: manual.Command{
			Name: "help", Summary: "explain a command or a topic",
			Usage: []string{"help", "help COMMAND", "help TOPIC"},
			Examples: []manual.Example{
				{Purpose: "A command and its flags", CommandLine: "help serve"},
				{Purpose: "A topic", CommandLine: "help isolation"},
			},
		},
	}, {
		run: printCompletion,
		Command: manual.Command{
			Name: "completion", Summary: "print the completion script of a shell",
			Usage: []string{"completion " + strings.Join(manual.Shells, "|")},
			Examples: []manual.Example{
				{Purpose: "For this bash", CommandLine: "completion bash > mcp-bridge.bash && source mcp-bridge.bash"},
				{Purpose: "For every zsh, in a folder of $fpath", CommandLine: "completion zsh > ~/.zfunc/_mcp-bridge"},
				{Purpose: "For every fish", CommandLine: "completion fish > ~/.config/fish/completions/mcp-bridge.fish"},
				{Purpose: "For this PowerShell", CommandLine: "completion powershell | Out-String | Invoke-Expression"},
			},
			Notes:          []string{"The first lines of what is printed say where it belongs."},
			ArgumentValues: manual.Shells,
		},
	}, {
		run: func(_ context.Context, args []string, env environment) error {
			if len(args) > 0 {
				return usagef("man takes no arguments; for one command write mcp-bridge help COMMAND")
			}
			_, err := io.WriteString(env.stdout, newManual().Man())
			return err
		},
		Command: manual.Command{
			Name: "man", Summary: "print the man page, with every command and topic",
			Usage: []string{"man"},
			Examples: []manual.Example{
				{Purpose: "Read it", CommandLine: "man | man -l -"},
				{Purpose: "Install it", CommandLine: "man > /usr/local/share/man/man1/mcp-bridge.1"},
			},
			ArgumentValues: []string{},
		},
	}, {
		run:     complete,
		Command: manual.Command{Name: manual.CompleteCommand, Hidden: true},
	}}
}

// printCompletion is the command completion: it prints the script that completes command lines in a shell.
func printCompletion(_ context.Context, args []string, env environment) error {
	if len(args) != 1 {
		return usagef("completion takes the name of one shell: %s", strings.Join(manual.Shells, ", "))
	}
	script, ok := newManual().CompletionScript(args[0])
	if !ok {
		return usagef("completion %q%s: the shells are %s", args[0], didYouMean("", args[0], manual.Shells), strings.Join(manual.Shells, ", "))
	}
	_, err := io.WriteString(env.stdout, script)
	return err
}

// complete is a hidden command that the completion scripts run: it prints what Manual.Complete returns. The first
// argument is how many words there are up to the cursor, the others are these words. Some shells do not pass an empty last word on, so
// one may be missing.
func complete(_ context.Context, args []string, env environment) error {
	if len(args) == 0 {
		return usagef("%s is for the scripts that \"mcp-bridge completion\" prints", manual.CompleteCommand)
	}
	n, err := strconv.Atoi(args[0])
	words := slices.Clone(args[1:])
	if err != nil || n < 1 || n > len(words)+1 {
		return usagef("%s %q: not the number of words", manual.CompleteCommand, args[0])
	}
	words = append(words, "")[:n]
	_, err = fmt.Fprintln(env.stdout, strings.Join(newManual().Complete(words), "\n"))
	return err
}
