// Package manual shows what a program's commands and flags are: as help for a terminal, as a man page, and as
// completion for shells. What there is to show is in one Manual; the package knows nothing else of the program.
package manual

import "strings"

// A Manual is what there is to say about a program. Its methods change nothing and may be called concurrently.
type Manual struct {
	Program        string // its name
	Summary        string // what it is, in a sentence
	Version        string // for the man page
	Examples       []Example
	Commands       []Command
	Groups         []Group // all flags, in the order in which they are shown
	Topics         []Topic
	Notes          []string // paragraphs that hold for all commands
	DefaultCommand string   // the command that is meant by arguments that name none
}

// A Command is a subcommand.
type Command struct {
	Name           string
	Summary        string   // in a few words
	Usage          []string // the lines that may be written, without the program's name
	Examples       []Example
	Notes          []string     // paragraphs
	Flags          []ParsedFlag // that it takes
	AlsoFlagsOf    []string     // commands whose flags it takes, too: they are named, not shown
	ArgumentValues []string     // what its argument may be; nil: anything
	Hidden         bool         // it is for programs: not shown
}

// An Example is a line that works as it is written, and what it does.
type Example struct{ Purpose, CommandLine string }

// ParsedFlag is what the program's parser of flags knows of a flag.
type ParsedFlag struct {
	Name     string // without dashes
	Short    string // its one letter; "": none
	Default  string // as one would write it; "": none that need be shown
	IsSwitch bool   // it takes no value, or one after "=" only
}

// A Group is flags that belong together.
type Group struct {
	Title    string
	Commands []string // the commands that it is about; nil: all that have the flags
	Flags    []Flag
	Notes    []string // paragraphs
}

// A Flag is a flag as people see it. Value stands for its value: of words with "|" between them, those in small letters are
// written as they are; FILE and DIR are completed as such; "[=X]" may be left out. Without Text it is for programs and not shown.
type Flag struct{ Name, Value, Text string }

// A Topic is a page that no command has. Its text is shown as it is.
type Topic struct{ Name, Summary, Text string }

// findCommand returns a command by its name; nil: there is none.
func (m *Manual) findCommand(name string) *Command {
	for i := range m.Commands {
		if m.Commands[i].Name == name {
			return &m.Commands[i]
		}
	}
	return nil
}

// shownGroup is a Group with those of its flags that a command has.
type shownGroup struct {
	title string
	flags []shownFlag
	notes []string
}

// shownFlag is all that is known of a flag.
type shownFlag struct {
	Flag
	parsed ParsedFlag
}

// shownGroups returns the flags that a command has, as they are shown. all: also those that another command explains
// (AlsoFlagsOf).
func (m *Manual) shownGroups(c *Command, all bool) []shownGroup {
	remaining := map[string]ParsedFlag{}
	for _, k := range c.Flags {
		remaining[k.Name] = k
	}
	if !all {
		for _, name := range c.AlsoFlagsOf {
			for _, k := range m.findCommand(name).Flags {
				delete(remaining, k.Name)
			}
		}
	}
	var found []shownGroup
	for _, g := range m.Groups {
		if !g.appliesTo(c.Name) {
			continue
		}
		s := shownGroup{title: g.Title, notes: g.Notes}
		for _, f := range g.Flags {
			k, has := remaining[f.Name]
			delete(remaining, f.Name)
			if has && f.Text != "" {
				s.flags = append(s.flags, shownFlag{f, k})
			}
		}
		if len(s.flags) > 0 {
			found = append(found, s)
		}
	}
	return found
}

// appliesTo reports whether a group is about a command.
func (g *Group) appliesTo(command string) bool {
	for _, name := range g.Commands {
		if name == command {
			return true
		}
	}
	return g.Commands == nil
}

// UngroupedFlags returns the flags that a command has and no Group: there should be none.
func (m *Manual) UngroupedFlags(command string) []string {
	var missing []string
	c := m.findCommand(command)
	for _, k := range c.Flags {
		if _, ok := m.findFlag(c, k.Name); !ok {
			missing = append(missing, k.Name)
		}
	}
	return missing
}

// IsFlagShown reports whether a flag of a command is one that people are told of.
func (m *Manual) IsFlagShown(command, name string) bool {
	f, ok := m.findFlag(m.findCommand(command), name)
	return ok && f.Text != ""
}

// findFlag returns what the first group that is about a command says of a flag.
func (m *Manual) findFlag(c *Command, name string) (Flag, bool) {
	for i := range m.Groups {
		if g := &m.Groups[i]; g.appliesTo(c.Name) {
			for _, f := range g.Flags {
				if f.Name == name {
					return f, true
				}
			}
		}
	}
	return Flag{}, false
}

// choices returns the words that a flag's value may be; nil: any.
func (f Flag) choices() []string {
	var words []string
	for _, w := range strings.Split(f.Value, "|") {
		if w != f.Value && strings.ToLower(w) == w {
			words = append(words, w)
		}
	}
	return words
}

// spec returns the flag as one writes it.
func (f shownFlag) spec() string {
	s := "--" + f.Name
	if f.parsed.Short != "" {
		s = "-" + f.parsed.Short + ", " + s
	}
	if f.Value != "" && !strings.HasPrefix(f.Value, "[") {
		s += " "
	}
	return s + f.Value
}

// textWithDefault returns the text of a flag, with its default.
func (f shownFlag) textWithDefault() string {
	if f.parsed.Default == "" {
		return f.Text
	}
	return f.Text + " (default " + f.parsed.Default + ")"
}
