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

// A Problem is one thing to know about a place in a file.
type Problem struct {
	File   string // as it was named
	Line   int    // from 1
	Column int    // from 1, in characters
	Text   string // what is wrong and what would be right
}

// String returns "file:line:column: text", as editors and terminals link it.
func (p Problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Problems are all the mistakes of a file, in its order; those of files that
// it names come last.
type Problems []Problem

// Error returns one line for each.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// sorted returns problems in the order of the file.
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

// rootCause strips the operation and the path from an error that names a file.
func rootCause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// printableName makes a name safe to print, and short.
func printableName(name string) string {
	if runes := []rune(name); len(runes) > 60 {
		name = string(runes[:60]) + "..."
	}
	return strconv.Quote(name)
}
