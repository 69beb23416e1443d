package migrate

import (
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// A Command is a command of mcp-bridge that bridges: serve or connect.
type Command struct {
	Name       string                                // serve or connect
	LookupFlag func(name string) (known, alone bool) // known: the command has a flag of this name; alone: no value follows the flag
}

// MixedAdvice returns what to write for arguments of command in which flags of other programs stand among our own. other is serve if
// command is connect, and the reverse. ok is false if there are no such flags. If it cannot be told which server is meant, a.Line is
// empty, and a.LeftOut has the advice for each flag.
func MixedAdvice(command, other Command, args []string) (a Advice, ok bool) {
	var foreign, programs []string
	for _, word := range args {
		if word == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		known, _ := command.LookupFlag(name)
		f, ok := findFlag(name)
		if !ok || known || !strings.HasPrefix(word, "--") || slices.Contains(foreign, "--"+name) {
			continue
		}
		if also, _ := other.LookupFlag(name); also {
			continue
		}
		foreign = append(foreign, "--"+name)
		if !slices.Contains(programs, f.program) {
			programs = append(programs, f.program)
		}
	}
	if len(foreign) == 0 {
		return Advice{}, false
	}
	is := " is a flag of "
	if len(foreign) > 1 {
		is = " are flags of "
	}
	a = Advice{Program: joinWords(foreign) + is + joinWords(programs)}
	p, complete := newMixedScanner(command, other).scan(args)
	if complete && len(p.target) > 0 {
		p.completeMixed(command, other, &a)
		return a, true
	}
	for _, name := range foreign {
		f, _ := findFlag(name[2:])
		a.LeftOut = append(a.LeftOut, name+": "+f.advice)
	}
	return a, true
}

// FlagsText returns the advice of MixedAdvice as text for people: which flags are of other programs, and what to write.
func (a Advice) FlagsText() string {
	if a.Line == "" {
		return a.Program + ":\n" + strings.Join(a.LeftOut, "\n")
	}
	return a.Program + "; write " + a.String()
}

// joinWords joins words as a sentence does: "a, b and c". There must be at least one.
func joinWords(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return words[0]
}

// newMixedScanner returns a lineScanner for arguments that mix flags of command and other, our own commands, with those of other programs. Where a
// flag of ours and one of another program have the same name, it is taken as ours, but for a header or variable in two words (isNameValuePair).
func newMixedScanner(command, other Command) lineScanner {
	return lineScanner{countValues: func(name string, after []string) (words int, known bool) {
		words, known = countValuesOf(mcpRemote, name)
		for _, c := range []Command{other, command} {
			if its, alone := c.LookupFlag(name); its {
				if words, known = 1, true; alone {
					words = 0
				}
			}
		}
		if isNameValuePair(name, after) || normalizedName(name) == "namedserver" {
			words, known = 2, true
		}
		return words, known
	}}
}

// isNameValuePair reports whether a flag for a header or a variable has the name and the value in two words, as mcp-proxy takes them, and not
// in one. after are the words behind the flag.
func isNameValuePair(flag string, after []string) bool {
	switch {
	case len(after) < 2:
		return false
	case slices.Contains([]string{"h", "header", "headers"}, normalizedName(flag)):
		return !strings.Contains(after[0], ":")
	case slices.Contains([]string{"e", "env"}, normalizedName(flag)):
		return !strings.Contains(after[0], "=") && !strings.HasPrefix(after[1], "-")
	}
	return false
}

// completeMixed sets the Line of MixedAdvice's advice, the command line of mcp-bridge, and LeftOut, the flags that it does not have. The line may
// be one of other, if command cannot do it.
func (p peerLine) completeMixed(command, other Command, a *Advice) {
	isRemote := p.isRemote()
	if command.Name == "connect" && (!isRemote || slices.ContainsFunc(p.flags, func(x givenFlag) bool {
		isOwn, _ := command.LookupFlag(x.name)
		isOthers, _ := other.LookupFlag(x.name)
		return isOthers && !isOwn
	})) { // it is what listens
		command, other = other, command
	}
	line := []string{"mcp-bridge", command.Name}
	for _, x := range p.flags {
		isOwn, hasNoValue := command.LookupFlag(x.name)
		flags := x.bridgeFlagsOf(command.Name)
		if asClient := x.bridgeFlagsOf("connect"); flags == nil && isRemote && len(asClient) > 0 { // serve has most flags of connect
			if known, _ := command.LookupFlag(strings.TrimLeft(asClient[0], "-")); known {
				flags = asClient
			}
		}
		switch name := normalizedName(x.name); {
		case len(x.values) > 0 && slices.Contains([]string{"h", "header", "headers"}, name):
			line = append(line, "--header", shownHeader(x.values[0]))
		case len(x.values) > 0 && slices.Contains([]string{"e", "env"}, name):
			name, _, _ := strings.Cut(x.values[0], "=")
			line = append(line, "--env", name+"=...")
		case len(flags) > 0:
			line = append(line, flags...)
		case isOwn && hasNoValue && len(x.values) > 0: // --inspect=ADDRESS
			line = append(line, "--"+x.name+"="+maskSecret("", x.values[0]))
		case isOwn && hasNoValue:
			line = append(line, "--"+x.name)
		case isOwn:
			line = append(append(line, "--"+x.name), WithoutSecrets(x.values)...) // no flag but those of headers and variables has a secret as its value
		default:
			a.LeftOut = append(a.LeftOut, peerLine{flags: []givenFlag{x}}.leftOut(command.Name)...)
		}
	}
	line, a.needsTokens = addTokenFile(line)
	if !isRemote {
		a.Line = printable.ShellCommand(p.withCommand(line, a)...)
		return
	}
	a.Line = printable.ShellCommand(append(line, withoutSecret(p.target[0]))...)
	if n := len(p.target) - 1; n > 0 {
		a.LeftOut = append(a.LeftOut, printable.Count(n, "word that stands", "words that stand")+" behind the URL")
	}
}
