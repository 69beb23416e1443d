package manual

import (
	"slices"
	"strings"
)

// Man returns the man page, in section 1, with the macros of man(7): all commands and flags that are shown (Command.Hidden, Flag.Text), and
// all topics.
func (m *Manual) Man() string {
	r := &roff{}
	r.writeMacro("TH", strings.ToUpper(m.Program), "1", "", m.Program+" "+m.Version, "User Commands")
	r.writeMacro("nh") // a word is never cut: it may be a flag
	r.writeMacro("SH", "NAME")
	r.writeLine(m.Program + " - " + strings.TrimSuffix(strings.TrimPrefix(m.Summary, m.Program+" "), "."))
	r.writeMacro("SH", "SYNOPSIS")
	r.writeMacro("nf")
	for _, c := range m.Commands {
		for _, line := range c.Usage {
			if !c.Hidden {
				r.writeLine(m.Program + " " + line)
			}
		}
	}
	r.writeMacro("fi")
	r.writeMacro("SH", "DESCRIPTION")
	r.writeParagraphs(append([]string{m.Summary}, m.Notes...))
	r.writeExamples(m.Program, m.Examples)
	r.writeMacro("SH", "COMMANDS")
	for i := range m.Commands {
		c := &m.Commands[i]
		if c.Hidden {
			continue
		}
		r.writeMacro("SS", c.Name+": "+c.Summary)
		r.writeParagraphs(c.Notes)
		r.writeExamples(m.Program, c.Examples)
	}
	r.writeMacro("SH", "OPTIONS")
	for _, g := range m.allGroups() {
		r.writeMacro("SS", g.title)
		for _, f := range g.flags {
			r.writeMacro("TP")
			r.writeMacro("B", f.spec())
			r.writeLine(f.textWithDefault())
		}
		r.writeParagraphs(g.notes)
	}
	for _, t := range m.Topics {
		title, text, _ := strings.Cut(t.Text, "\n")
		r.writeMacro("SH", strings.ToUpper(t.Name))
		r.writeLine(title)
		r.writeMacro("PP")
		r.writeMacro("nf")
		for _, line := range strings.Split(strings.Trim(text, "\n"), "\n") {
			r.writeLine(line)
		}
		r.writeMacro("fi")
	}
	return r.String()
}

// allGroups returns the groups in their order, each with those of its flags that are shown for any command, and with the names of these
// commands in its title. A group of which no flag is shown is left out.
func (m *Manual) allGroups() []shownGroup {
	var found []shownGroup
	commands := map[string][]string{}
	for i := range m.Commands {
		c := &m.Commands[i]
		for _, g := range m.shownGroups(c, false) {
			k := slices.IndexFunc(found, func(s shownGroup) bool { return s.title == g.title })
			if k < 0 {
				k = len(found)
				found = append(found, shownGroup{title: g.title, notes: g.notes})
			}
			for _, f := range g.flags {
				if !slices.ContainsFunc(found[k].flags, func(have shownFlag) bool { return have.Name == f.Name }) {
					found[k].flags = append(found[k].flags, f)
				}
			}
			commands[g.title] = append(commands[g.title], c.Name)
		}
	}
	order := func(s shownGroup) int {
		return slices.IndexFunc(m.Groups, func(g Group) bool { return g.Title == s.title })
	}
	slices.SortStableFunc(found, func(a, b shownGroup) int { return order(a) - order(b) })
	for i, s := range found {
		found[i].title = s.title + ": " + strings.Join(commands[s.title], ", ")
	}
	return found
}

// A roff is a man page while it is written, in the language that groff and mandoc read.
type roff struct {
	strings.Builder      // the text so far
	isAfterHeading  bool // the last line is a heading, below which nothing stands yet
}

// roffEscaper escapes the characters of a text that roff would not show as they are.
var roffEscaper = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// writeLine writes a line of text, escaped.
func (r *roff) writeLine(text string) {
	text = roffEscaper.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	r.WriteString(text + "\n")
	r.isAfterHeading = false
}

// beginParagraph begins a paragraph, unless a heading has just begun one.
func (r *roff) beginParagraph() {
	if !r.isAfterHeading {
		r.writeMacro("PP")
	}
}

// writeMacro writes the line that calls a macro, such as .SH, with its arguments in quotes, escaped.
func (r *roff) writeMacro(name string, arguments ...string) {
	r.WriteString("." + name)
	for _, a := range arguments {
		r.WriteString(` "` + strings.ReplaceAll(roffEscaper.Replace(a), `"`, `\(dq`) + `"`)
	}
	r.WriteByte('\n')
	r.isAfterHeading = name == "SH" || name == "SS"
}

// writeParagraphs writes each text as a paragraph.
func (r *roff) writeParagraphs(all []string) {
	for _, p := range all {
		r.beginParagraph()
		r.writeLine(p)
	}
}

// writeExamples writes the examples, each with its purpose and, below it, the command line, indented.
func (r *roff) writeExamples(program string, all []Example) {
	for _, e := range all {
		r.beginParagraph()
		r.writeLine(e.Purpose + ":")
		r.writeMacro("RS", "4")
		r.writeMacro("nf")
		for _, line := range strings.Split(program+" "+e.CommandLine, "\n") {
			r.writeLine(line)
		}
		r.writeMacro("fi")
		r.writeMacro("RE")
	}
}
