package printable

import "strings"

// ShellCommand returns a command line as one types it into a shell: an argument that is more than a plain word
// there stands in single quotes. What is not printable stays as it is.
func ShellCommand(argv ...string) string {
	out := make([]string, len(argv))
	for i, a := range argv {
		if out[i] = a; a == "" || strings.ContainsFunc(a, isShellSyntax) {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

// isShellSyntax reports whether a character may mean something to a shell.
func isShellSyntax(r rune) bool {
	plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r)
	return !plain
}
