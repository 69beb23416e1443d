package migrate

import (
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// A Command is one of mcp-bridge that bridges: serve or connect.
type Command struct {
	Name string
	Flag func(name string) (known, alone bool) // is it a flag of the command, and does no value follow it
}

// Mixed returns what to write for arguments of one of the commands that have flags of other programs among its own. ok is
// false if they have none. It answers all of them at once. a.Line is empty if it cannot be told what is bridged.
func Mixed(command, other Command, args []string) (a Advice, ok bool) {
	var foreign, programs []string
	for _, word := range args {
		if word == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		known, _ := command.Flag(name)
		f, ok := find(name)
		if !ok || known || !strings.HasPrefix(word, "--") || slices.Contains(foreign, "--"+name) {
			continue
		}
		if also, _ := other.Flag(name); also {
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
	a = Advice{Program: list(foreign) + is + list(programs)}
	p, complete := scannerOfMixed(command, other).scan(args)
	if complete && len(p.target) > 0 {
		p.mixed(command, other, &a)
		return a, true
	}
	for _, name := range foreign {
		f, _ := find(name[2:])
		a.Left = append(a.Left, name+": "+f.advice)
	}
	return a, true
}

// OfFlags returns the advice of Mixed as text.
func (a Advice) OfFlags() string {
	if a.Line == "" {
		return a.Program + ":\n" + strings.Join(a.Left, "\n")
	}
	return a.Program + "; write " + a.String()
}

// list joins words as a sentence does.
func list(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return words[0]
}

// scannerOfMixed returns what takes arguments apart that have flags of the commands and of other programs. A flag of ours is ours.
func scannerOfMixed(command, other Command) lineScanner {
	return lineScanner{followed: func(name string, after []string) (words int, known bool) {
		words, known = followed(mcpRemote, name)
		for _, c := range []Command{other, command} {
			if its, alone := c.Flag(name); its {
				if words, known = 1, true; alone {
					words = 0
				}
			}
		}
		if isPair(name, after) || normalizedName(name) == "namedserver" {
			words, known = 2, true
		}
		return words, known
	}}
}

// isPair tells if a flag with a name and a value has them in two words, as mcp-proxy takes them.
func isPair(flag string, after []string) bool {
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

// mixed completes the advice: the line of mcp-bridge, and what it does not have.
func (p peerLine) mixed(command, other Command, a *Advice) {
	remote := p.remote()
	if command.Name == "connect" && (!remote || slices.ContainsFunc(p.flags, func(x option) bool {
		its, _ := command.Flag(x.name)
		others, _ := other.Flag(x.name)
		return others && !its
	})) { // it is what listens
		command, other = other, command
	}
	to := []string{"mcp-bridge", command.Name}
	for _, x := range p.flags {
		its, alone := command.Flag(x.name)
		flags := x.kept(command.Name)
		if asClient := x.kept("connect"); flags == nil && remote && len(asClient) > 0 { // serve has most flags of connect
			if known, _ := command.Flag(strings.TrimLeft(asClient[0], "-")); known {
				flags = asClient
			}
		}
		switch name := normalizedName(x.name); {
		case len(x.values) > 0 && slices.Contains([]string{"h", "header", "headers"}, name):
			to = append(to, "--header", shownHeader(x.values[0]))
		case len(x.values) > 0 && slices.Contains([]string{"e", "env"}, name):
			name, _, _ := strings.Cut(x.values[0], "=")
			to = append(to, "--env", name+"=...")
		case len(flags) > 0:
			to = append(to, flags...)
		case its && alone && len(x.values) > 0: // --inspect=ADDRESS
			to = append(to, "--"+x.name+"="+masked("", x.values[0]))
		case its && alone:
			to = append(to, "--"+x.name)
		case its:
			to = append(append(to, "--"+x.name), WithoutSecrets(x.values)...) // no flag but those of headers and variables has a secret as its value
		default:
			a.Left = append(a.Left, peerLine{flags: []option{x}}.left(command.Name)...)
		}
	}
	to, a.guarded = guarded(to)
	if !remote {
		a.Line = printable.Shell(p.withCommand(to, a)...)
		return
	}
	a.Line = printable.Shell(append(to, withoutSecret(p.target[0]))...)
	if n := len(p.target) - 1; n > 0 {
		a.Left = append(a.Left, printable.Count(n, "word that stands", "words that stand")+" behind the URL")
	}
}
