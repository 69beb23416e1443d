package config

import (
	"net/http"
	"strings"
)

// readEnvFile reads environment variables into env from the file that m names, one a line, as ParseVariable reads it.
func (p *parser) readEnvFile(m member, env map[string]string) {
	p.eachLine(m, func(line string) (wrong string) {
		name, value, wrong := ParseVariable(line)
		if wrong == "" {
			env[name] = value
		}
		return wrong
	})
}

// ParseVariable reads a line NAME=VALUE of a file of environment variables; mistake is what is wrong
// with the line, without showing any of it; "": nothing. As in the .env files of editors, "export" may
// stand before the name and quotes around the value; in double quotes, \n, \r, \t,
// \" and \\ are what they are in JSON.
func ParseVariable(line string) (name, value, mistake string) {
	name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
	name = strings.TrimSpace(name)
	if !ok || name == "" || strings.ContainsAny(name, " \t\"'") {
		return "", "", "write NAME=VALUE"
	}
	value = strings.TrimSpace(value)
	if value != "" && (value[0] == '"' || value[0] == '\'') {
		if len(value) < 2 || value[len(value)-1] != value[0] {
			return "", "", "the value begins with a quote and does not end with it"
		}
		double := value[0] == '"'
		if value = value[1 : len(value)-1]; double {
			value = escapes.Replace(value)
		}
	}
	if strings.ContainsRune(value, 0) {
		return "", "", "the value contains a zero character"
	}
	return name, value, ""
}

// escapes replaces the escapes that a value in double quotes may have (ParseVariable).
var escapes = strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\"`, `"`, `\\`, `\`)

// readHeaderFile adds the headers in the file that m names to header: one "Name: value" a line, with variables expanded. A name may be
// there several times.
func (p *parser) readHeaderFile(m member, header http.Header) {
	p.eachLine(m, func(line string) (wrong string) {
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || !isToken(name) {
			return `write "Name: value"`
		}
		value, flaws := expand(strings.TrimSpace(value), p.lookup)
		if len(flaws) > 0 {
			return flaws[0].text
		}
		if strings.ContainsFunc(value, isControl) {
			return "the value contains a control character"
		}
		header.Add(name, value)
		return ""
	})
}

// eachLine calls f for each line, but for blank ones and # comments, of the file that m names, and adds the file to Config.Files. What f
// returns, unless it is "", is wrong with the line: it is recorded with the line's number, and should show nothing of the line.
func (p *parser) eachLine(m member, f func(line string) (wrong string)) {
	name, ok := p.readPath(m)
	if !ok {
		return
	}
	p.config.Files = append(p.config.Files, name)
	if p.readFile == nil {
		return
	}
	data, err := p.readFile(name)
	if err != nil {
		p.addMissing(p.newProblem(m.value.StartOffset, m.label+": "+name+": "+rootCause(err).Error()))
		return
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if wrong := f(line); wrong != "" {
			p.addMissing(Problem{File: name, Line: n, Column: 1, Text: wrong})
		}
	}
}
