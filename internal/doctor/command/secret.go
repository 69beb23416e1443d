package command

import (
	"fmt"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// A secretArg is an argument of a command that holds a credential.
type secretArg struct {
	index  int    // its index in the arguments, which begin at 0 and lack the command itself
	reason string // why it is taken for a credential: "the value of --api-key"
	value  string // the credential in it
}

var (
	// secretNamePattern matches names that end in a word for a secret, such as "api-key": not "tokenizer", not "author".
	secretNamePattern = lazyregexp.New(`(?i)(^|[-_.])(api[-_.]?key|access[-_.]?key|private[-_.]?key|secret[-_.]?key|apikey|secret|token|access[-_.]?token|auth[-_.]?token|bearer|password|passwd|pwd|passphrase|credentials?|authorization|pat|key)$`)
	// nonSecretNamePattern matches names that secretNamePattern may match, and that name no secret, such as "max-tokens".
	nonSecretNamePattern = lazyregexp.New(`(?i)(max|num|public|sort|primary|partition|foreign|cache|first|last|csrf[-_.]name|ssh|host)[-_.]?(key|tokens?)$|(tokens|key[-_.]?(file|path|id|name)|token[-_.]?(file|path|url|name|limit))$`)
	// knownKeyPattern matches credentials of known makers, by how these begin ("sk-"); the credential is its second group.
	knownKeyPattern = lazyregexp.New(`(^|[^A-Za-z0-9])(sk-[A-Za-z0-9_-]{16,}|(sk|rk|pk)_(live|test)_[A-Za-z0-9]{10,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abeoprs]-[A-Za-z0-9-]{10,}|(AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{20,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----)`)
	// fileNamePattern matches the end of the name of a file.
	fileNamePattern = lazyregexp.New(`\.(pem|key|crt|json|txt|env|ya?ml|toml|conf)$`)
	// userInfoPattern matches the beginning of a URL with a user and a password, which is its group.
	userInfoPattern = lazyregexp.New(`^[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#@:]*:([^/?#@]+)@`)
	// queryParamPattern matches a name and its value in the query of a URL; both are groups.
	queryParamPattern = lazyregexp.New(`[?&]([^=&#]+)=([^&#]+)`)
	// httpCredentialPattern matches the value of an Authorization header; the credential is its group.
	httpCredentialPattern = lazyregexp.New(`(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/=-]{8,})`)
	// denseTextPattern matches a long text without spaces that may be random.
	denseTextPattern = lazyregexp.New(`^[A-Za-z0-9_+=-]{32,}$`)
)

// findSecretArgs returns the arguments that hold what looks like a credential.
func findSecretArgs(args []string) []secretArg {
	var found []secretArg
	for i, arg := range args {
		what, value := findSecret(arg)
		if value == "" && i > 0 && isSecretFlag(args[i-1]) && !strings.HasPrefix(arg, "-") && mayBeSecret(arg) {
			what, value = "the value of "+args[i-1], arg
		}
		if value != "" {
			found = append(found, secretArg{i, what, value})
		}
	}
	return found
}

// isSecretFlag reports whether an argument is a flag, such as --api-key, whose value is the next argument and a secret.
func isSecretFlag(arg string) bool {
	return strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=") && isSecretName(strings.TrimLeft(arg, "-"))
}

// isSecretName reports whether the name of a flag, variable or header tells that its value is a secret.
func isSecretName(name string) bool {
	return secretNamePattern.MatchString(name) && !nonSecretNamePattern.MatchString(name)
}

// mayBeSecret reports whether text may be a credential, and is not the name of a variable, a number, a file or too short.
func mayBeSecret(text string) bool {
	return len(text) >= 4 && !fileNamePattern.MatchString(text) && !strings.ContainsAny(text[:1], "$<@./~%") && strings.Trim(text, "0123456789") != "" &&
		text != "true" && text != "false" && text != "none"
}

// findSecret returns the credential in an argument (value), and why it is taken for one (what); value "": there is none.
func findSecret(arg string) (what, value string) {
	if name, rest, ok := strings.Cut(arg, "="); ok && isSecretName(strings.TrimLeft(name, "-")) && mayBeSecret(rest) {
		return "the value of " + name, rest
	}
	if name, rest, ok := strings.Cut(arg, ":"); ok && isSecretName(name) && mayBeSecret(strings.TrimSpace(rest)) {
		return "the header " + name, strings.TrimSpace(rest)
	}
	if m := userInfoPattern.FindStringSubmatch(arg); m != nil && mayBeSecret(m[1]) {
		return "the password in a URL", m[1]
	}
	if strings.Contains(arg, "://") {
		for _, m := range queryParamPattern.FindAllStringSubmatch(arg, -1) {
			if isSecretName(m[1]) && mayBeSecret(m[2]) {
				return "the value of " + m[1] + " in a URL", m[2]
			}
		}
	}
	if m := knownKeyPattern.FindStringSubmatch(arg); m != nil {
		return "text in the form of a key", m[2]
	}
	if m := httpCredentialPattern.FindStringSubmatch(arg); m != nil {
		return "a credential for HTTP", m[1]
	}
	if looksRandom(arg) {
		return "text that looks random", arg
	}
	return "", ""
}

// looksRandom reports whether an argument looks like a random string: it is long, has no spaces, and changes often between
// digits, small letters and capitals, as words and hexadecimal checksums do not.
func looksRandom(arg string) bool {
	if !denseTextPattern.MatchString(arg) || strings.HasPrefix(arg, "-") {
		return false
	}
	changes := 0
	for i := 1; i < len(arg); i++ {
		if charClass(arg[i]) != charClass(arg[i-1]) {
			changes++
		}
	}
	const digits, lower = "0123456789", "abcdefghijklmnopqrstuvwxyz"
	return changes*2 > len(arg) && strings.ContainsAny(arg, digits) && strings.ContainsAny(arg, lower) &&
		strings.ContainsAny(arg, strings.ToUpper(lower))
}

// charClass returns 1 for a digit, 2 for a lower-case letter, 3 for a capital and 0 for any other byte.
func charClass(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return 1
	case c >= 'a' && c <= 'z':
		return 2
	case c >= 'A' && c <= 'Z':
		return 3
	}
	return 0
}

// DisplayCommand returns a command line with the quotes that a shell needs, and without what looks like a credential.
func DisplayCommand(path string, args []string) string {
	shown := []string{path}
	secrets := findSecretArgs(args)
	for i, arg := range args {
		for _, s := range secrets {
			if s.index == i {
				arg = strings.ReplaceAll(arg, s.value, "(hidden)")
			}
		}
		shown = append(shown, arg)
	}
	return printable.ShellCommand(shown...)
}

// diagnoseArguments adds C14 for each argument that looks like a credential, and has the report hide the credential.
func diagnoseArguments(args []string, r *doctor.Report) {
	for _, s := range findSecretArgs(args) {
		r.HideSecrets(s.value)
		r.AddFinding(doctor.Finding{
			Code: "C14", Severity: doctor.Warning,
			Title:       "an argument looks like a credential",
			Evidence:    fmt.Sprintf("argument %d: %s, %d characters, not shown here", s.index+1, s.reason, len(s.value)),
			Consequence: "Arguments can be read by every user of the machine, with ps, and they get into logs, shell histories and crash reports.",
			Advice:      "Pass it in the environment, where the server can read it from there: --env NAME=VALUE, --env NAME for a variable that is set already, or --env-file FILE. Then replace the credential: this one has been visible.",
		})
	}
}
