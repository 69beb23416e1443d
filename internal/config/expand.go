package config

import (
	"fmt"
	"strings"
)

// An expandError is what is wrong with a ${...} in a string. Its text never shows the string.
type expandError struct {
	text      string // what is wrong; "": nothing
	isMissing bool   // the file is right, but what it names, such as an environment variable, is not there
	name      string // the name of the variable that is not set; "": the error is about something else
}

// expand replaces what a string has of
//
//	${NAME}            the environment variable; it must be set
//	${NAME:-default}   the default if the variable is unset or empty
//	${env:NAME}        the same as ${NAME}, as VS Code and Cursor write it
//	$${                the two characters ${
//
// and leaves every other $ alone. flaws are all errors that it has found; with any of them, out is of no use.
func expand(s string, lookup func(string) (string, bool)) (out string, flaws []expandError) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 {
			b.WriteString(s)
			return b.String(), flaws
		}
		b.WriteString(s[:i])
		s = s[i:]
		switch {
		case strings.HasPrefix(s, "$${"):
			b.WriteString("${")
			s = s[3:]
		case strings.HasPrefix(s, "${"):
			inside, after, closed := strings.Cut(s[2:], "}")
			if !closed {
				return "", append(flaws, expandError{text: `"${" has no closing "}": write $${ where the two characters are meant`})
			}
			value, wrong := expandVariable(inside, lookup)
			if wrong.text != "" {
				flaws = append(flaws, wrong)
			}
			b.WriteString(value)
			s = after
		default:
			b.WriteByte('$')
			s = s[1:]
		}
	}
}

// expandVariable returns the value of what stands between ${ and }, such as NAME:-default. flaw.text is "" if nothing is wrong.
func expandVariable(expression string, lookup func(string) (string, bool)) (value string, flaw expandError) {
	if strings.HasPrefix(expression, "input:") {
		return "", expandError{`${input:...} is what VS Code asks a person for: use an environment variable, as in ${NAME}`, true, ""}
	}
	name, fallback, hasFallback := strings.Cut(strings.TrimPrefix(expression, "env:"), ":-")
	if !isVariableName(name) {
		// What stands there may be part of a password.
		return "", expandError{text: `"${" does not begin a variable here: write ${NAME} or ${NAME:-default}, and $${ where the two characters are meant`}
	}
	value, set := lookup(name)
	if !set && name == "userHome" { // Cursor and VS Code know it
		if value, set = lookup("HOME"); !set {
			value, set = lookup("USERPROFILE")
		}
	}
	switch {
	case hasFallback && value == "":
		return fallback, expandError{}
	case set:
		return value, expandError{}
	case name == "workspaceFolder":
		return "", expandError{"${workspaceFolder} is known to editors only: write the path, or set an environment variable of this name", true, ""}
	}
	return "", expandError{fmt.Sprintf("the environment variable %s is not set: set it, or write ${%s:-default}", name, name), true, name}
}

// isVariableName reports whether s can be the name of an environment variable in ${...}: 1 to 200 ASCII letters, digits and _, not beginning
// with a digit.
func isVariableName(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 200
}
