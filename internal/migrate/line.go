package migrate

import (
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// Advice is what to write for a line of another program.
type Advice struct {
	Program string   // whose line it is
	Line    string   // that of mcp-bridge which does the same; values that may be secret are not repeated
	Left    []string // what Line does not have of the other one, each with the reason
	At      string   // where its clients find mcp-bridge, if that is another path; "": they find it

	everywhere bool // the other program listens on all addresses, and Line on this machine's only
	guarded    bool // Line asks clients for tokens, which the other program did not
}

// String returns the line, and below it what is left, and who can connect.
func (a Advice) String() string {
	var text strings.Builder
	text.WriteString(a.Line)
	if strings.Contains(a.Line, "...") {
		text.WriteString("\nPut your own value in place of each \"...\": what may be secret is not repeated.")
	}
	if strings.Contains(a.Line, "${TOKEN}") {
		text.WriteString("\nPut the token into the environment variable TOKEN.")
	}
	for _, l := range a.Left {
		text.WriteString("\nNot carried over: " + l)
	}
	if a.At != "" {
		text.WriteString("\n" + a.At)
	}
	if a.guarded {
		text.WriteString("\nOther machines reach this address, so clients need a token, which is in the file \"tokens\". First make it:\n  " + makeToken +
			"\nClients send it as \"Authorization: Bearer TOKEN\", or as X-API-Key.")
	}
	if a.everywhere {
		program := a.Program
		if program == mcpProxy {
			program += " of npm" // that of PyPI does not
		}
		text.WriteString("\nIt is open to this machine only; " + program + " listens on all addresses. For the same, add --host 0.0.0.0 --token-file tokens, and first make a token:\n  " + makeToken)
	}
	return text.String()
}

// IsConnect tells if the line is one of connect: the other program was a server over stdio.
func (a Advice) IsConnect() bool { return strings.HasPrefix(a.Line, "mcp-bridge connect ") }

// makeToken adds a token to the file "tokens".
const makeToken = `(umask 077; echo "me $(openssl rand -hex 32)" >>tokens)`

// Line returns what to write for a line of another program. args are what stands after the program's name. ok is false
// if args are no line of such a program.
func Line(args []string) (a Advice, ok bool) {
	given := parse(args)
	command, url := given.last("stdio"), given.last("sse")
	if url == "" {
		url = given.last("streamableHttp")
	}
	if command == "" && url == "" {
		return Advice{}, false
	}
	to := []string{"mcp-bridge", "serve"}
	if out := given.last("outputTransport"); url != "" && (out == "" || out == "stdio") {
		to[1] = "connect"
	} else if port := given.last("port"); port != "" {
		to = append(to, "--port", port)
	} else {
		to = append(to, "--port", "8000") // supergateway's own
	}
	var left []string
	for _, x := range given.flags {
		flags, why := x.ours(to[1] == "serve", command == "")
		if to = append(to, flags...); why != "" {
			left = append(left, "--"+x.name+" ("+why+")") // no value: it may be secret
		}
	}
	if given.words > 0 {
		left = append(left, printable.Count(given.words, "word that belongs", "words that belong")+" to no flag (a command with spaces stands in quotes behind --stdio)")
	}
	switch {
	case command == "":
		to = append(to, withoutSecret(url))
	case forShell.MatchString(command):
		to = append(to, "--", "sh", "-c", withoutSecrets(command))
	default:
		to = append(append(to, "--"), words(command)...)
	}
	a = Advice{Program: supergateway, Line: printable.Shell(to...), Left: left, everywhere: to[1] == "serve"}
	if to[1] == "serve" && given.last("outputTransport") == "ws" {
		a.At = "The path for WebSocket clients is /ws; that of supergateway is /message, or its --messagePath."
	}
	return a, true
}

// options are what a line of supergateway has.
type options struct {
	flags []option // in their order
	words int      // how many words belong to no flag
}

// An option is a flag with its values.
type option struct {
	name   string // as it is written, without dashes
	values []string
}

// parse finds the flags of a line of supergateway, each with the values that follow it.
func parse(args []string) options {
	var o options
	for i := 0; i < len(args); i++ {
		name, dashed := strings.CutPrefix(args[i], "--")
		if !dashed || name == "" {
			o.words++
			continue
		}
		name, value, inside := strings.Cut(name, "=")
		x := option{name: name}
		if inside {
			x.values = []string{value}
		}
		for most := valuesOf(name); len(x.values) < most && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--"); i++ {
			x.values = append(x.values, args[i+1])
		}
		o.flags = append(o.flags, x)
	}
	return o
}

// valuesOf returns how many words may follow a flag of supergateway as its values.
func valuesOf(name string) int {
	switch normalizedName(name) {
	case "stateful":
		return 0
	case "cors", "header", "healthendpoint":
		return math.MaxInt
	}
	return 1
}

// last returns the value that counts; "": there is none.
func (o options) last(name string) string {
	value := ""
	for _, x := range o.flags {
		if normalizedName(x.name) == normalizedName(name) && len(x.values) > 0 {
			value = x.values[0]
		}
	}
	return value
}

// ours returns the flags of mcp-bridge for one of supergateway that does not say what is bridged: of serve or else of
// connect, for a remote server or else a command. why is the reason if it has none, and something is lost.
func (x option) ours(serve, remote bool) (flags []string, why string) {
	switch name := normalizedName(x.name); name {
	case "stdio", "sse", "streamablehttp", "outputtransport", "stateful":
		return nil, "" // Line has them, or nothing is lost
	case "port", "cors", "sessiontimeout", "baseurl", "ssepath", "messagepath", "streamablehttppath", "healthendpoint":
		if !serve {
			return nil, "connect does not listen"
		}
		return x.listening(name)
	case "header", "oauth2bearer":
		if !remote {
			return nil, "it was a header of the replies; mcp-bridge sends none but the protocol's"
		}
		if name == "oauth2bearer" {
			return []string{"--header", "Authorization: Bearer ${TOKEN}"}, ""
		}
		for _, v := range x.values {
			flags = append(flags, "--header", shownHeader(v))
		}
		return flags, ""
	case "loglevel":
		return []string{"--log-level", strings.Replace(strings.Join(x.values, ""), "none", "off", 1)}, ""
	}
	if f, ok := find(x.name); ok && f.program == supergateway {
		return nil, f.reason()
	}
	return nil, "no flag of supergateway is known by this name"
}

// listening is ours for a flag that is about clients over the network. name is the flag's, normalized.
func (x option) listening(name string) (flags []string, why string) {
	switch name {
	case "port":
		return nil, ""
	case "cors":
		for _, v := range x.values {
			if strings.Contains(v, "://") {
				flags = append(flags, "--allow-origin", v)
			}
		}
		if len(flags) < 2*max(1, len(x.values)) {
			why = "supergateway lets web pages in from everywhere, or by a pattern, serve only pages of this machine: for each other site, write --allow-origin ORIGIN"
		}
		return flags, why
	case "sessiontimeout":
		wait, ok := withUnit(strings.Join(x.values, ""), time.Millisecond)
		if !ok {
			return nil, "it has no number of milliseconds"
		}
		return []string{"--session-timeout", wait}, ""
	}
	f, _ := find(x.name)
	return nil, f.reason()
}

// secret is what the names of secrets have in them.
var secret = lazyregexp.New(`(?i)key|token|secret|pass|auth|cred`)

// userInfo matches who the user is in a URL, with a password perhaps, in which there may be a slash. Behind a host, or a port, an
// "@" stands in the path.
var userInfo = lazyregexp.New(`://(?:[^/]*|[^/:\[]+:[^/]*[^/0-9][^/]*/[^@]*)@`)

// withoutSecret returns a URL without what may be secret in it.
func withoutSecret(addr string) string {
	addr, _, query := strings.Cut(addr, "?")
	if addr = userInfo.ReplaceAllStringFunc(addr, func(string) string { return "://" }); query {
		addr += "?..."
	}
	return addr
}

// words splits a command as a shell would that knows no variables: forShell has the others.
func words(command string) []string {
	var found []string
	before := ""
	for _, text := range split(command) {
		found = append(found, masked(before, text))
		before = text
	}
	return found
}

// split takes the quotes and backslashes of a shell away from words. A quote that is not closed ends with the command.
func split(command string) []string {
	var found []string
	var now []rune // of the word that has begun
	begun, quote, escaped := false, rune(0), false
	for _, r := range command {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune("\"\\$`", r) {
				now = append(now, '\\')
			}
			now, escaped = append(now, r), false
		case r == '\\' && quote != '\'':
			begun, escaped = true, true
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			begun, quote = true, r
		case quote == 0 && unicode.IsSpace(r):
			if begun {
				found = append(found, string(now))
			}
			now, begun = nil, false
		default:
			now, begun = append(now, r), true
		}
	}
	if begun {
		found = append(found, string(now))
	}
	return found
}

// unquoted returns a word without its quotes.
func unquoted(w string) string { return strings.NewReplacer(`"`, "", `'`, "").Replace(w) }

// variable matches the value of a header that is a variable, perhaps behind the name of a scheme.
var variable = lazyregexp.New(`^(?:[A-Za-z]+ +)?\$\{\w+\}$`)

// shownHeader returns a header as it is given to a flag, "Name: value", without its value unless that is a variable's. A
// Bearer token is taken from a variable: as an argument, everybody on the machine could see it.
func shownHeader(header string) string {
	name, value, _ := strings.Cut(header, ":")
	value = strings.TrimSpace(value)
	scheme, _, _ := strings.Cut(value, " ")
	switch {
	case variable.MatchString(value):
	case strings.EqualFold(scheme, "Bearer"):
		value = "Bearer ${TOKEN}"
	default:
		value = "..."
	}
	return strings.TrimSpace(name) + ": " + value
}

// masked returns a word without what may be secret in it.
func masked(before, text string) string {
	name, _, given := strings.Cut(text, "=")
	header, _, isHeader := strings.Cut(text, ":") // such as Authorization: Bearer x
	switch {
	case isHeader && !strings.ContainsAny(header, " =/") && secret.MatchString(header):
		return header + ": ..."
	case strings.Contains(text, "://") && !strings.Contains(text, " "):
		return withoutSecret(text)
	case given && secret.MatchString(name):
		return name + "=..."
	case strings.HasPrefix(before, "-") && !strings.Contains(before, "=") && secret.MatchString(before):
		return "..."
	case strings.Contains(text, " "): // a line in quotes
		return withoutSecrets(text)
	}
	return text
}

// forShell matches a command that only a shell can run: it sets a variable in front, or has outside of quotes what a shell
// takes for more than a word, or a variable inside of double ones.
var forShell = lazyregexp.New(`^\s*[A-Za-z_]\w*=|^(?:[^'"]|'[^']*'|"[^"]*")*(?:[|&;<>()*$` + "`" + `]|\s~|"[^"]*[$` + "`" + `])`)

// A word of a command for a shell, with its quotes.
var shellWord = lazyregexp.New(`(?:"[^"]*"|'[^']*'|[^\s"'|&;<>()])+`)

// withoutSecrets returns a command for a shell without what may be secret in it.
func withoutSecrets(command string) string {
	before := ""
	return shellWord.ReplaceAllStringFunc(command, func(w string) string {
		text := unquoted(w)
		shown := masked(before, text)
		if before = text; shown == text {
			return w
		}
		return printable.Shell(shown)
	})
}
