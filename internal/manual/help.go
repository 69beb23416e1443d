package manual

import (
	"strings"
)

// width is how many columns the pages have, and column where the text of flags begins.
const (
	width  = 80
	column = 28
)

// Front returns the first page: what the program is, examples, commands and topics.
func (m *Manual) Front() string {
	var b strings.Builder
	wrap(&b, "", m.Summary)
	examples(&b, m.Program, m.Examples)
	b.WriteString("\nCommands\n")
	for _, c := range m.Commands {
		if !c.Hidden {
			entry(&b, c.Name, 16, c.Summary)
		}
	}
	b.WriteString("\nTopics\n")
	for _, t := range m.Topics {
		entry(&b, t.Name, 16, t.Summary)
	}
	for _, n := range m.Notes {
		b.WriteByte('\n')
		wrap(&b, "", n)
	}
	return b.String()
}

// Page returns the help of a command or a topic; ok is false if there is none of that name.
func (m *Manual) Page(name string) (text string, ok bool) {
	for _, t := range m.Topics {
		if t.Name == name {
			return t.Text, true
		}
	}
	c := m.command(name)
	if c == nil || c.Hidden {
		return "", false
	}
	var b strings.Builder
	wrap(&b, "", m.Program+" "+c.Name+": "+c.Summary)
	examples(&b, m.Program, c.Examples)
	b.WriteString("\nUsage\n")
	for _, line := range c.Usage {
		b.WriteString("  " + m.Program + " " + line + "\n")
	}
	for _, n := range c.Notes {
		b.WriteByte('\n')
		wrap(&b, "", n)
	}
	for _, g := range m.groups(c, false) {
		b.WriteString("\n" + g.title + "\n")
		for _, f := range g.flags {
			entry(&b, f.spec(), column, f.textWithDefault())
		}
		for _, n := range g.notes {
			wrap(&b, "  ", n)
		}
	}
	if len(c.Like) > 0 {
		b.WriteByte('\n')
		wrap(&b, "", m.like(c))
	}
	return b.String(), true
}

// like says whose flags a command takes, too.
func (m *Manual) like(c *Command) string {
	var pages []string
	for _, name := range c.Like {
		pages = append(pages, "\""+m.Program+" help "+name+"\"")
	}
	return "It also takes the flags of " + strings.Join(c.Like, " and ") + ": see " + strings.Join(pages, " and ") + "."
}

// Pages returns the names of all pages, in their order.
func (m *Manual) Pages() []string {
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

func examples(b *strings.Builder, program string, all []Example) {
	if len(all) == 0 {
		return
	}
	b.WriteString("\nExamples\n")
	for _, e := range all {
		wrap(b, "  ", e.Says+":")
		b.WriteString("    " + program + " " + e.Line + "\n")
	}
}

// entry writes a name and its text beside it, or below if the name is long.
func entry(b *strings.Builder, name string, column int, text string) {
	b.WriteString("  " + name)
	if len(name)+4 > column {
		b.WriteByte('\n')
		wrap(b, strings.Repeat(" ", column), text)
		return
	}
	var rest strings.Builder
	wrap(&rest, strings.Repeat(" ", column), text)
	b.WriteString(rest.String()[2+len(name):])
}

// wrap writes a paragraph in lines of at most width columns, each with indent in front.
func wrap(b *strings.Builder, indent, text string) {
	line := indent
	for _, word := range strings.Fields(text) {
		switch {
		case line == indent:
			line += word
		case len(line)+1+len(word) > width:
			b.WriteString(line + "\n")
			line = indent + word
		default:
			line += " " + word
		}
	}
	b.WriteString(line + "\n")
}
