// Package nearest finds the word that somebody has most likely meant.
package nearest

import "strings"

// To returns the one of known that is spelled most like name, the first of several; "": none is similar enough. One letter may differ, or
// a quarter of the letters of name. Upper and lower case, "-", "_" and spaces do not count. A name of more than 100 bytes is like none.
func To(name string, known []string) string {
	if len(name) > 100 {
		return ""
	}
	name = Normalize(name)
	best, least := "", 1+max(1, len(name)/4)
	for _, k := range known {
		if d := editDistance(name, Normalize(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// Normalize returns a name in lower case, without "-", "_" and spaces: names that differ by these
// only count as equal.
func Normalize(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name))
}

// editDistance returns how many letters must at least be inserted, deleted, replaced or exchanged with their neighbour to make b of a.
func editDistance(a, b string) int {
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
