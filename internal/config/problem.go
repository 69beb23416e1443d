package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// A Problem is a mistake or a notice about a place in a file.
type Problem struct {
	File   string // the file as the user has named it; one that the configuration file names, by its absolute path
	Line   int    // the number of the line, from 1
	Column int    // the number of the character in the line, from 1
	Text   string // what is wrong and what would be right
}

// String returns "file:line:column: text", as editors and terminals link it.
func (p Problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Problems are all the mistakes of a file, in its order; those of files that
// it names come last.
type Problems []Problem

// Error returns one line for each mistake.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// sorted sorts problems by their places, those of other files than file at the end, and removes those that are there twice.
func sorted(problems []Problem, file string) []Problem {
	other := func(p Problem) int {
		if p.File == file {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(other(a)-other(b), cmp.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column)
	})
	return slices.Compact(problems)
}

// rootCause returns the error inside of an *fs.PathError, without the operation and the path; any other error as it is.
func rootCause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// printableName returns a name in quotes and escaped, so that messages can show it; of more than 60 characters, the first 60 and "...".
func printableName(name string) string {
	if runes := []rune(name); len(runes) > 60 {
		name = string(runes[:60]) + "..."
	}
	return strconv.Quote(name)
}
