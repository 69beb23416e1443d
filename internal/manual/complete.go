package manual

import (
	"slices"
	"strings"
)

// What the first line of Complete may be: what the shell is to offer.
const (
	kindWords       = "words"       // first line of Complete: the shell offers the words in the other lines
	kindFiles       = "files"       // first line of Complete: the shell offers names of files
	kindDirectories = "directories" // first line of Complete: the shell offers names of directories
	kindCommands    = "commands"    // first line of Complete: the shell offers names of programs
)

// Complete returns what the last of words may be: lines for the scripts of CompletionScript. words are the arguments of the program
// so far, and the last one, which may be empty, is what the cursor stands in. The first line is what to offer: "words",
// "files", "directories" or "commands"; after "words" the others are a word, a tab and its meaning each.
func (m *Manual) Complete(words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	current, before := words[len(words)-1], words[:len(words)-1]
	switch i := slices.Index(before, "--"); {
	case i >= 0 && i == len(before)-1:
		return []string{kindCommands}
	case i >= 0:
		return []string{kindFiles}
	}
	if len(before) == 0 && !strings.HasPrefix(current, "-") {
		return m.commandNames(current)
	}
	c := m.commandNamed(before)
	if name, value, inside := strings.Cut(current, "="); inside && strings.HasPrefix(name, "--") {
		if f := m.flagOf(c, name); f != nil {
			return f.values("--"+f.Name+"=", value)
		}
		return []string{kindFiles}
	}
	if len(before) > 0 {
		if f := m.flagOf(c, before[len(before)-1]); f != nil && !f.parsed.IsSwitch {
			return f.values("", current)
		}
	}
	if strings.HasPrefix(current, "-") {
		return m.flagWords(c, current)
	}
	return m.argumentWords(c, before, current)
}

// commandNames returns the lines of Complete for the first argument: the commands that begin with current and are not hidden or, if there are
// none, files.
func (m *Manual) commandNames(current string) []string {
	found := []string{kindWords}
	for _, c := range m.Commands {
		if !c.Hidden && strings.HasPrefix(c.Name, current) {
			found = append(found, c.Name+"\t"+c.Summary)
		}
	}
	if len(found) == 1 { // serve and connect may be left out
		return []string{kindFiles}
	}
	return found
}

// commandNamed returns the command that the arguments before the cursor call: the first one or, if that is none, DefaultCommand.
func (m *Manual) commandNamed(before []string) *Command {
	if len(before) > 0 {
		if c := m.findCommand(before[0]); c != nil {
			return c
		}
	}
	return m.findCommand(m.DefaultCommand)
}

// flagOf returns the flag of a command that an argument is, with its dashes, long or short; nil: it is none that is shown.
func (m *Manual) flagOf(c *Command, argument string) *shownFlag {
	for _, g := range m.shownGroups(c, true) {
		for i, f := range g.flags {
			if argument == "--"+f.Name || f.parsed.Short != "" && argument == "-"+f.parsed.Short {
				return &g.flags[i]
			}
		}
	}
	return nil
}

// values returns the lines of Complete for the value of a flag, of which current was typed: files, directories, or the words that the
// value may be, each with prefix in front.
func (f *shownFlag) values(prefix, current string) []string {
	switch f.Value {
	case "FILE":
		return []string{kindFiles}
	case "DIR":
		return []string{kindDirectories}
	}
	found := []string{kindWords}
	for _, word := range f.choices() {
		if strings.HasPrefix(word, current) {
			found = append(found, prefix+word+"\t")
		}
	}
	return found
}

// flagWords returns the lines of Complete for a flag: the flags of a command that begin with current, which was typed, and --help.
func (m *Manual) flagWords(c *Command, current string) []string {
	found := []string{kindWords}
	for _, g := range m.shownGroups(c, true) {
		for _, f := range g.flags {
			if strings.HasPrefix("--"+f.Name, current) {
				found = append(found, "--"+f.Name+"\t"+firstWords(f.Text))
			}
		}
	}
	if strings.HasPrefix("--help", current) {
		found = append(found, "--help\texamples and flags")
	}
	return found
}

// argumentWords returns the lines of Complete for an argument that is no flag, of which current was typed: those of ArgumentValues that
// begin with it; files if ArgumentValues is nil. before is what stands in front of it: the command's name and, if there is more, an
// argument already. A second one has no words.
func (m *Manual) argumentWords(c *Command, before []string, current string) []string {
	if c.ArgumentValues == nil {
		return []string{kindFiles}
	}
	found := []string{kindWords}
	if len(before) > 1 { // there is only one
		return found
	}
	for _, word := range c.ArgumentValues {
		if strings.HasPrefix(word, current) {
			found = append(found, word+"\t"+m.summary(word))
		}
	}
	return found
}

// summary returns the Summary of the command or the topic with this name; "": there is neither.
func (m *Manual) summary(name string) string {
	if c := m.findCommand(name); c != nil {
		return c.Summary
	}
	for _, t := range m.Topics {
		if t.Name == name {
			return t.Summary
		}
	}
	return ""
}

// firstWords returns the beginning of a text, for a menu: what stands before the first semicolon, colon, "(", or full stop with a space behind it.
func firstWords(text string) string {
	if i := strings.IndexAny(text, ";(:"); i > 0 {
		text = text[:i]
	}
	text, _, _ = strings.Cut(text, ". ")
	return strings.TrimSpace(text)
}
