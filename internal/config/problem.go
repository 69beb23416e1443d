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

// reason strips the operation and the path from an error that names a file.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// quote makes a name safe to print, and short.
func quote(name string) string {
	if runes := []rune(name); len(runes) > 60 {
		name = string(runes[:60]) + "..."
	}
	return strconv.Quote(name)
}

// Suggest returns which of known was most likely meant by name, which is none of
// them, or "".
func Suggest(name string, known []string) string {
	if len(name) > 100 {
		return ""
	}
	name = normalizedName(name)
	best, least := "", 1+max(1, len(name)/4)
	for _, k := range known {
		if d := distance(name, normalizedName(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// normalizedName is a name without what people spell in different ways.
func normalizedName(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name))
}

// distance is the number of letters to insert, delete, replace or exchange
// with their neighbour that makes b of a.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	rows := make([][]int, len(s)+1)
	for i := range rows {
		rows[i] = make([]int, len(t)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(s); i++ {
		for j := 1; j <= len(t); j++ {
			replaced := rows[i-1][j-1]
			if s[i-1] != t[j-1] {
				replaced++
			}
			rows[i][j] = min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(s)][len(t)]
}
