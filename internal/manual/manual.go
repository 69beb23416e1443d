// Package manual shows what a program's commands and flags are: as help for a terminal, as a man page, and as
// completion for shells. What there is to show is in one Manual; the package knows nothing else of the program.
package manual

import "strings"

// A Manual is what there is to say about a program. Its methods change nothing and may be called concurrently.
type Manual struct {
	Program        string    // the name of the program
	Summary        string    // what the program is, in a sentence
	Version        string    // the program's version, for the man page
	Examples       []Example // examples of the program, for the first page
	Commands       []Command // all commands, in the order in which they are shown
	Groups         []Group   // all flags of all commands, in the order in which they are shown
	Topics         []Topic   // the pages that are about no command
	Notes          []string  // paragraphs that hold for all commands
	DefaultCommand string    // the name of the command that is meant by arguments that name none
}

// A Command is a subcommand of the program.
type Command struct {
	Name           string       // the name of the command, as it is typed
	Summary        string       // what it does, in a few words
	Usage          []string     // the forms in which it may be called, without the program's name
	Examples       []Example    // examples of this command
	Notes          []string     // paragraphs about it
	Flags          []ParsedFlag // all flags that it takes
	AlsoFlagsOf    []string     // the commands whose flags it takes, too: help names these commands and does not show their flags again
	ArgumentValues []string     // the words that its argument may be; nil: anything; empty: it takes no argument
	Hidden         bool         // it is for programs, and not shown
}

// An Example is a line that works as it is written, and what it does.
type Example struct {
	Purpose     string // what the line does
	CommandLine string // the line, without the program's name
}

// ParsedFlag is what the program's parser of flags knows of a flag.
type ParsedFlag struct {
	Name     string // the name of the flag, without dashes
	Short    string // the letter of its short form; "": it has none
	Default  string // its default, as one would write it; "": it need not be shown
	IsSwitch bool   // it takes no value, or one behind "=" only
}

// A Group is flags that belong together, and are shown so.
type Group struct {
	Title    string   // the heading above the flags
	Commands []string // the names of the commands for which the group is shown; nil: all that have any of its flags
	Flags    []Flag   // the flags, in the order in which they are shown
	Notes    []string // paragraphs below the flags
}

// A Flag is a flag as people see it.
type Flag struct {
	Name string // the name of the flag, without dashes

	// Value stands for its value in the help. Of words with "|" between them, those in small letters are written as they are; FILE and DIR are
	// completed as such; "[=X]" may be left out. "": it has no value.
	Value string

	Text string // what it does; "": it is for programs, and not shown
}

// A Topic is a page that is about no command.
type Topic struct {
	Name    string // what help calls it
	Summary string // what it is about, in a few words
	Text    string // the page, which is shown as it is
}

// findCommand returns the command with this name; nil: there is none.
func (m *Manual) findCommand(name string) *Command {
	for i := range m.Commands {
		if m.Commands[i].Name == name {
			return &m.Commands[i]
		}
	}
	return nil
}

// shownGroup is a Group with those of its flags that are shown for a command or, for the man page, for any command (allGroups).
type shownGroup struct {
	title string      // Group.Title; for the man page, with the commands behind it
	flags []shownFlag // these flags, in the order of the Group
	notes []string    // Group.Notes
}

// shownFlag is all that is known of a flag: what people see, and what the parser knows.
type shownFlag struct {
	Flag              // what people see
	parsed ParsedFlag // what the parser knows
}

// shownGroups returns the groups of flags that are shown for a command, each with those of its flags that the command has and that have a
// Text. Of several groups with the same flag, only the first counts: without a Text there, the flag is in none. all: also flags that the
// command shares with one of its AlsoFlagsOf, which are otherwise left out.
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

// appliesTo reports whether a group may be shown for a command: it is one of Group.Commands, or that is nil.
func (g *Group) appliesTo(command string) bool {
	for _, name := range g.Commands {
		if name == command {
			return true
		}
	}
	return g.Commands == nil
}

// UngroupedFlags returns the names of the flags that a command has and that are in no Group for it. There should be none; a test
// checks that.
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

// IsFlagShown reports whether the help shows a flag that a command has: on the page of the command, or on that of one of its AlsoFlagsOf. One
// without Text, or of no Group, it does not show.
func (m *Manual) IsFlagShown(command, name string) bool {
	f, ok := m.findFlag(m.findCommand(command), name)
	return ok && f.Text != ""
}

// findFlag returns the flag with this name from the first group for a command that has it; false: none has.
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

// choices returns the words that a flag's value may be, those in small letters in Value; nil: Value does not list any.
func (f Flag) choices() []string {
	var words []string
	for _, w := range strings.Split(f.Value, "|") {
		if w != f.Value && strings.ToLower(w) == w {
			words = append(words, w)
		}
	}
	return words
}

// spec returns the flag as help shows it, with its short form and what stands for its value: "-e, --env NAME=VALUE".
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

// textWithDefault returns the Text of a flag, with its default behind it if that is to be shown.
func (f shownFlag) textWithDefault() string {
	if f.parsed.Default == "" {
		return f.Text
	}
	return f.Text + " (default " + f.parsed.Default + ")"
}
