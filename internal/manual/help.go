package manual

import (
	"strings"
)

const (
	pageWidth      = 80 // how many columns the lines of a page of help have at most
	flagTextColumn = 28 // how many columns of a page of help are left of the texts of flags
)

// FrontPage returns the first page: what the program is, examples, the commands that are not hidden, and topics.
func (m *Manual) FrontPage() string {
	var b strings.Builder
	writeWrapped(&b, "", m.Summary)
	writeExamples(&b, m.Program, m.Examples)
	b.WriteString("\nCommands\n")
	for _, c := range m.Commands {
		if !c.Hidden {
			writeEntry(&b, c.Name, 16, c.Summary)
		}
	}
	b.WriteString("\nTopics\n")
	for _, t := range m.Topics {
		writeEntry(&b, t.Name, 16, t.Summary)
	}
	for _, n := range m.Notes {
		b.WriteByte('\n')
		writeWrapped(&b, "", n)
	}
	return b.String()
}

// Page returns the help of a command or a topic; ok is false if there is none of that name, or the command is hidden.
func (m *Manual) Page(name string) (text string, ok bool) {
	for _, t := range m.Topics {
		if t.Name == name {
			return t.Text, true
		}
	}
	c := m.findCommand(name)
	if c == nil || c.Hidden {
		return "", false
	}
	var b strings.Builder
	writeWrapped(&b, "", m.Program+" "+c.Name+": "+c.Summary)
	writeExamples(&b, m.Program, c.Examples)
	b.WriteString("\nUsage\n")
	for _, line := range c.Usage {
		b.WriteString("  " + m.Program + " " + line + "\n")
	}
	for _, n := range c.Notes {
		b.WriteByte('\n')
		writeWrapped(&b, "", n)
	}
	for _, g := range m.shownGroups(c, false) {
		b.WriteString("\n" + g.title + "\n")
		for _, f := range g.flags {
			writeEntry(&b, f.spec(), flagTextColumn, f.textWithDefault())
		}
		for _, n := range g.notes {
			writeWrapped(&b, "  ", n)
		}
	}
	if len(c.AlsoFlagsOf) > 0 {
		b.WriteByte('\n')
		writeWrapped(&b, "", m.alsoFlagsOfText(c))
	}
	return b.String(), true
}

// alsoFlagsOfText returns the sentence that says which other commands' flags a command takes, too, and where they are explained.
func (m *Manual) alsoFlagsOfText(c *Command) string {
	var pages []string
	for _, name := range c.AlsoFlagsOf {
		pages = append(pages, "\""+m.Program+" help "+name+"\"")
	}
	return "It also takes the flags of " + strings.Join(c.AlsoFlagsOf, " and ") + ": see " + strings.Join(pages, " and ") + "."
}

// PageNames returns the names that Page takes: the commands that are not hidden, and the topics, in their order.
func (m *Manual) PageNames() []string {
	var names []string
	for _, c := range m.Commands {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	for _, t := range m.Topics {
		names = append(names, t.Name)
	}
	return names
}

// writeExamples writes the examples of a page of help, with a heading; nothing if there are none.
func writeExamples(b *strings.Builder, program string, all []Example) {
	if len(all) == 0 {
		return
	}
	b.WriteString("\nExamples\n")
	for _, e := range all {
		writeWrapped(b, "  ", e.Purpose+":")
		b.WriteString("    " + program + " " + e.CommandLine + "\n")
	}
}

// writeEntry writes a name, and its text from the given column on: beside the name, or below it if the name is too long.
func writeEntry(b *strings.Builder, name string, column int, text string) {
	b.WriteString("  " + name)
	if len(name)+4 > column {
		b.WriteByte('\n')
		writeWrapped(b, strings.Repeat(" ", column), text)
		return
	}
	var rest strings.Builder
	writeWrapped(&rest, strings.Repeat(" ", column), text)
	b.WriteString(rest.String()[2+len(name):])
}

// writeWrapped writes a paragraph in lines of at most pageWidth columns, each with indent in front. A word that is too long for that has a line
// of its own.
func writeWrapped(b *strings.Builder, indent, text string) {
	line := indent
	for _, word := range strings.Fields(text) {
		switch {
		case line == indent:
			line += word
		case len(line)+1+len(word) > pageWidth:
			b.WriteString(line + "\n")
			line = indent + word
		default:
			line += " " + word
		}
	}
	b.WriteString(line + "\n")
}
