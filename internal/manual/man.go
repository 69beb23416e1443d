package manual

import (
	"slices"
	"strings"
)

// Man returns the man page, in section 1, with the macros of man(7): all commands, all flags, all topics.
func (m *Manual) Man() string {
	r := &roff{}
	r.macro("TH", strings.ToUpper(m.Program), "1", "", m.Program+" "+m.Version, "User Commands")
	r.macro("nh") // a word is never cut: it may be a flag
	r.macro("SH", "NAME")
	r.line(m.Program + " - " + strings.TrimSuffix(strings.TrimPrefix(m.Summary, m.Program+" "), "."))
	r.macro("SH", "SYNOPSIS")
	r.macro("nf")
	for _, c := range m.Commands {
		for _, line := range c.Usage {
			if !c.Hidden {
				r.line(m.Program + " " + line)
			}
		}
	}
	r.macro("fi")
	r.macro("SH", "DESCRIPTION")
	r.paragraphs(append([]string{m.Summary}, m.Notes...))
	r.examples(m.Program, m.Examples)
	r.macro("SH", "COMMANDS")
	for i := range m.Commands {
		c := &m.Commands[i]
		if c.Hidden {
			continue
		}
		r.macro("SS", c.Name+": "+c.Summary)
		r.paragraphs(c.Notes)
		r.examples(m.Program, c.Examples)
	}
	r.macro("SH", "OPTIONS")
	for _, g := range m.everyGroup() {
		r.macro("SS", g.title)
		for _, f := range g.flags {
			r.macro("TP")
			r.macro("B", f.spec())
			r.line(f.textWithDefault())
		}
		r.paragraphs(g.notes)
	}
	for _, t := range m.Topics {
		title, text, _ := strings.Cut(t.Text, "\n")
		r.macro("SH", strings.ToUpper(t.Name))
		r.line(title)
		r.macro("PP")
		r.macro("nf")
		for _, line := range strings.Split(strings.Trim(text, "\n"), "\n") {
			r.line(line)
		}
		r.macro("fi")
	}
	return r.String()
}

// everyGroup returns all groups, each with the flags that any command has in it, and the commands in its title.
func (m *Manual) everyGroup() []shownGroup {
	var found []shownGroup
	commands := map[string][]string{}
	for i := range m.Commands {
		c := &m.Commands[i]
		for _, g := range m.groups(c, false) {
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

// A roff is a page as groff and mandoc read it.
type roff struct {
	strings.Builder
	headed bool // nothing stands below the heading yet
}

// plainText escapes what roff would take for its own.
var plainText = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

// line writes a line of text.
func (r *roff) line(text string) {
	text = plainText.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	r.WriteString(text + "\n")
	r.headed = false
}

// paragraph begins a paragraph; below a heading there is one already.
func (r *roff) paragraph() {
	if !r.headed {
		r.macro("PP")
	}
}

// macro writes a request with its arguments.
func (r *roff) macro(name string, arguments ...string) {
	r.WriteString("." + name)
	for _, a := range arguments {
		r.WriteString(` "` + strings.ReplaceAll(plainText.Replace(a), `"`, `\(dq`) + `"`)
	}
	r.WriteByte('\n')
	r.headed = name == "SH" || name == "SS"
}

func (r *roff) paragraphs(all []string) {
	for _, p := range all {
		r.paragraph()
		r.line(p)
	}
}

func (r *roff) examples(program string, all []Example) {
	for _, e := range all {
		r.paragraph()
		r.line(e.Says + ":")
		r.macro("RS", "4")
		r.macro("nf")
		for _, line := range strings.Split(program+" "+e.Line, "\n") {
			r.line(line)
		}
		r.macro("fi")
		r.macro("RE")
	}
}
