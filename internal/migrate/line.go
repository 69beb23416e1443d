package migrate

import (
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
)

// Advice is what to write for a command line of another program.
type Advice struct {
	Program  string   // the name of the other program; of MixedAdvice, a sentence: "--x is a flag of PROGRAM"
	Line     string   // the command line of mcp-bridge that does the same, with "..." for values that may be secret; "": there is none
	LeftOut  []string // what Line lacks of the other line, each with the reason; without a Line, the advice for each flag
	PathHint string   // a sentence that says at which path clients of the other program find mcp-bridge; "": at the same

	listensEverywhere bool // the other program listens on all addresses, but Line on those of this machine only
	needsNoInitialize bool // the other program serves clients that send no initialize, but Line does not
	needsTokens       bool // Line asks clients for tokens, which the other program did not
}

// String returns Line and, below it, what was not carried over and what else there is to do, as text for people.
func (a Advice) String() string {
	var text strings.Builder
	text.WriteString(a.Line)
	if strings.Contains(a.Line, "...") {
		text.WriteString("\nPut your own value in place of each \"...\": what may be secret is not repeated.")
	}
	if strings.Contains(a.Line, "${TOKEN}") {
		text.WriteString("\nPut the token into the environment variable TOKEN.")
	}
	for _, l := range a.LeftOut {
		text.WriteString("\nNot carried over: " + l)
	}
	if a.PathHint != "" {
		text.WriteString("\n" + a.PathHint)
	}
	if a.needsNoInitialize {
		text.WriteString("\nWithout --stateful, supergateway needs no initialize. For clients that send none, add --isolation request: each request gets a process of its own.")
	}
	if a.needsTokens {
		text.WriteString("\nOther machines reach this address, so clients need a token, which is in the file \"tokens\". First make it:\n  " + makeTokenCommand +
			"\nClients send it as \"Authorization: Bearer TOKEN\", or as X-API-Key.")
	}
	if a.listensEverywhere {
		program := a.Program
		if program == mcpProxy {
			program += " of npm" // that of PyPI does not
		}
		text.WriteString("\nIt is open to this machine only; " + program + " listens on all addresses. For the same, add --host 0.0.0.0 --token-file tokens, and first make a token:\n  " + makeTokenCommand)
	}
	return text.String()
}

// IsConnect reports whether Line is one of connect: the other program, too, is a server over stdio.
func (a Advice) IsConnect() bool { return strings.HasPrefix(a.Line, "mcp-bridge connect ") }

// makeTokenCommand is a line for a shell that adds a new token to the file "tokens". Advice shows it.
const makeTokenCommand = `(umask 077; echo "me $(openssl rand -hex 32)" >>tokens)`

// SupergatewayAdvice returns what to write for a line of supergateway. args are what stands after the program's name. ok is false
// if args are no line of supergateway.
func SupergatewayAdvice(args []string) (a Advice, ok bool) {
	parsed := parseSupergateway(args)
	command, url := parsed.lastValue("stdio"), parsed.lastValue("sse")
	if url == "" {
		url = parsed.lastValue("streamableHttp")
	}
	if command == "" && url == "" {
		return Advice{}, false
	}
	line := []string{"mcp-bridge", "serve"}
	if out := parsed.lastValue("outputTransport"); url != "" && (out == "" || out == "stdio") {
		line[1] = "connect"
	} else if port := parsed.lastValue("port"); port != "" {
		line = append(line, "--port", port)
	} else {
		line = append(line, "--port", "8000") // supergateway's own
	}
	var left []string
	for _, x := range parsed.flags {
		flags, reason := x.bridgeFlags(line[1] == "serve", command == "")
		if line = append(line, flags...); reason != "" {
			left = append(left, "--"+x.name+" ("+reason+")") // no value: it may be secret
		}
	}
	if parsed.strayWords > 0 {
		left = append(left, printable.Count(parsed.strayWords, "word that belongs", "words that belong")+" to no flag (a command with spaces stands in quotes behind --stdio)")
	}
	switch {
	case command == "":
		line = append(line, withoutSecret(url))
	case needsShell.MatchString(command):
		line = append(line, "--", "sh", "-c", withoutSecrets(command))
	default:
		line = append(append(line, "--"), splitCommand(command)...)
	}
	a = Advice{Program: supergateway, Line: printable.ShellCommand(line...), LeftOut: left, listensEverywhere: line[1] == "serve"}
	if line[1] == "serve" && parsed.lastValue("outputTransport") == "ws" {
		a.PathHint = "The path for WebSocket clients is /ws; that of supergateway is /message, or its --messagePath."
	}
	a.needsNoInitialize = line[1] == "serve" && normalizedName(parsed.lastValue("outputTransport")) == "streamablehttp" && !parsed.has("stateful")
	return a, true
}

// A supergatewayLine is a command line of supergateway, taken apart.
type supergatewayLine struct {
	flags      []givenFlag // the flags, in the order of the line
	strayWords int         // how many words belong to no flag
}

// A givenFlag is a flag of a command line of another program, with its values.
type givenFlag struct {
	name   string   // the name of the flag, as the line spells it, without dashes
	values []string // the words that are its values; none: it has no value there
}

// parseSupergateway finds the flags of a line of supergateway, each with the values that follow it.
func parseSupergateway(args []string) supergatewayLine {
	var o supergatewayLine
	for i := 0; i < len(args); i++ {
		name, dashed := strings.CutPrefix(args[i], "--")
		if !dashed || name == "" {
			o.strayWords++
			continue
		}
		name, value, inside := strings.Cut(name, "=")
		x := givenFlag{name: name}
		if inside {
			x.values = []string{value}
		}
		for most := maxValues(name); len(x.values) < most && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--"); i++ {
			x.values = append(x.values, args[i+1])
		}
		o.flags = append(o.flags, x)
	}
	return o
}

// maxValues returns how many words may follow a flag of supergateway as its values.
func maxValues(name string) int {
	switch normalizedName(name) {
	case "stateful":
		return 0
	case "cors", "header", "healthendpoint":
		return math.MaxInt
	}
	return 1
}

// has reports whether the line has a flag, however its name is spelled.
func (o supergatewayLine) has(name string) bool {
	return slices.ContainsFunc(o.flags, func(x givenFlag) bool { return normalizedName(x.name) == normalizedName(name) })
}

// lastValue returns the value of a flag that counts if it is there several times: the last one. "": it is not there, or has no value.
func (o supergatewayLine) lastValue(name string) string {
	value := ""
	for _, x := range o.flags {
		if normalizedName(x.name) == normalizedName(name) && len(x.values) > 0 {
			value = x.values[0]
		}
	}
	return value
}

// bridgeFlags returns the flags of mcp-bridge, with their values, for a flag of supergateway. nil: the line of mcp-bridge says it in another
// way, or has nothing for it. serve: they are for serve, else for connect. remote: a remote server is bridged, else a command. reason says
// what is lost, and why; "": nothing.
func (x givenFlag) bridgeFlags(serve, remote bool) (flags []string, reason string) {
	switch name := normalizedName(x.name); name {
	case "stdio", "sse", "streamablehttp", "outputtransport", "stateful":
		return nil, "" // Line has them, or nothing is lost
	case "port", "cors", "sessiontimeout", "baseurl", "ssepath", "messagepath", "streamablehttppath", "healthendpoint":
		if !serve {
			return nil, "connect does not listen"
		}
		return x.listenFlags(name)
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
	if f, ok := findFlag(x.name); ok && f.program == supergateway {
		return nil, f.reason()
	}
	return nil, "no flag of supergateway is known by this name"
}

// listenFlags returns the flags of serve, with their values, for a flag of supergateway that is about clients over the network; name is that
// flag's, normalized. reason says what is lost, and why; "": nothing. It is a part of bridgeFlags.
func (x givenFlag) listenFlags(name string) (flags []string, reason string) {
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
			reason = "supergateway lets web pages in from everywhere, or by a pattern; here only pages of this machine are let in: for each other site, write --allow-origin ORIGIN"
		}
		return flags, reason
	case "sessiontimeout":
		wait, ok := withUnit(strings.Join(x.values, ""), time.Millisecond)
		if !ok {
			return nil, "it has no number of milliseconds"
		}
		return []string{"--session-timeout", wait}, ""
	}
	f, _ := findFlag(x.name)
	return nil, f.reason()
}

// mayBeSecret matches names whose values may be secrets, beside those that redact.IsSensitive knows.
var mayBeSecret = lazyregexp.New(`(?i)key|token|secret|pass|auth|cred`)

// isSensitive reports whether the value of a header, flag or variable with this name may be a secret, which advice must not show. It takes more
// for secrets than a trace does: who reads advice knows the values that it leaves out, but a trace would lose what somebody looks for.
func isSensitive(name string) bool { return redact.IsSensitive(name) || mayBeSecret.MatchString(name) }

// withoutSecret returns a URL with "..." in place of what may be secret in it.
func withoutSecret(addr string) string { return printable.RedactURL(addr, "...") }

// splitCommand splits a command into words as a shell would that knows no variables, with "..." in place of what may be secret. It is not
// for commands that need more of a shell (needsShell).
func splitCommand(command string) []string {
	var found []string
	before := ""
	for _, text := range splitShellWords(command) {
		found = append(found, maskSecret(before, text))
		before = text
	}
	return found
}

// splitShellWords splits a command into words, as a shell does, without its quotes and backslashes. A quote that is not closed ends with the
// command.
func splitShellWords(command string) []string {
	var found []string
	var current []rune // of the word that has begun
	isInWord, quote, escaped := false, rune(0), false
	for _, r := range command {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune("\"\\$`", r) {
				current = append(current, '\\')
			}
			current, escaped = append(current, r), false
		case r == '\\' && quote != '\'':
			isInWord, escaped = true, true
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			isInWord, quote = true, r
		case quote == 0 && unicode.IsSpace(r):
			if isInWord {
				found = append(found, string(current))
			}
			current, isInWord = nil, false
		default:
			current, isInWord = append(current, r), true
		}
	}
	if isInWord {
		found = append(found, string(current))
	}
	return found
}

// unquoted returns a word without any quotes in it.
func unquoted(w string) string { return strings.NewReplacer(`"`, "", `'`, "").Replace(w) }

// variableValue matches the value of a header that is a variable, perhaps behind the name of a scheme: "Bearer ${TOKEN}". It has no secret.
var variableValue = lazyregexp.New(`^(?:[A-Za-z]+ +)?\$\{\w+\}$`)

// shownHeader returns a header for the flag --header, "Name: value", with "..." as its value unless that is a variable. A Bearer token becomes
// the variable TOKEN: as an argument, everybody on the machine could see it.
func shownHeader(header string) string {
	name, value, _ := strings.Cut(header, ":")
	value = strings.TrimSpace(value)
	scheme, _, _ := strings.Cut(value, " ")
	switch {
	case variableValue.MatchString(value):
	case strings.EqualFold(scheme, "Bearer"):
		value = "Bearer ${TOKEN}"
	default:
		value = "..."
	}
	return strings.TrimSpace(name) + ": " + value
}

// maskSecret returns text, a word of a command line, with "..." in place of what may be secret in it. before is the word in front of it,
// perhaps the flag whose value it is.
func maskSecret(before, text string) string {
	name, _, given := strings.Cut(text, "=")
	header, _, isHeader := strings.Cut(text, ":") // such as Authorization: Bearer x
	switch {
	case isHeader && !strings.ContainsAny(header, " =/") && isSensitive(header):
		return header + ": ..."
	case strings.Contains(text, "://") && !strings.Contains(text, " "):
		return withoutSecret(text)
	case given && isSensitive(name):
		return name + "=..."
	case strings.HasPrefix(before, "-") && !strings.Contains(before, "=") && isSensitive(before):
		return "..."
	case strings.Contains(text, " "): // a line in quotes
		return withoutSecrets(text)
	}
	return text
}

// needsShell matches a command that only a shell can run: it sets a variable in front, or has outside of quotes what a shell
// takes for more than a word, or a variable inside of double ones.
var needsShell = lazyregexp.New(`^\s*[A-Za-z_]\w*=|^(?:[^'"]|'[^']*'|"[^"]*")*(?:[|&;<>()*$` + "`" + `]|\s~|"[^"]*[$` + "`" + `])`)

// shellWord matches one word of a command for a shell, with its quotes.
var shellWord = lazyregexp.New(`(?:"[^"]*"|'[^']*'|[^\s"'|&;<>()])+`)

// withoutSecrets returns a command for a shell with "..." in place of what may be secret in it. All else stays as it is written.
func withoutSecrets(command string) string {
	before := ""
	return shellWord.ReplaceAllStringFunc(command, func(w string) string {
		text := unquoted(w)
		shown := maskSecret(before, text)
		if before = text; shown == text {
			return w
		}
		return printable.ShellCommand(shown)
	})
}
