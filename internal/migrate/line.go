package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// Line returns the line of mcp-bridge that does what args do with another program, and which program that is. args are
// what stands after the program's name. ok is false if args are no line of such a program. Values that may be
// secret are not repeated.
func Line(args []string) (line, program string, ok bool) {
	given := parse(args)
	command, url := given.last("stdio"), given.last("sse")
	if url == "" {
		url = given.last("streamableHttp")
	}
	if command == "" && url == "" {
		return "", "", false
	}
	to := []string{"mcp-bridge", "serve"}
	if out := given.last("outputTransport"); url != "" && (out == "" || out == "stdio") {
		to[1] = "connect"
	} else if port := given.last("port"); port != "" {
		to = append(to, "--port", port)
	} else {
		to = append(to, "--port", "8000") // supergateway's own
	}
	to = append(to, given.others(to[1] == "serve", command == "")...)
	switch {
	case command == "":
		to = append(to, withoutSecret(url))
	case forShell.MatchString(command):
		to = append(to, "--", "sh", "-c", withoutSecrets(command))
	default:
		to = append(append(to, "--"), words(command)...)
	}
	return printable.Shell(to...), supergateway, true
}

// options are the flags of a line of supergateway, in their order.
type options []struct{ name, value string }

// parse finds the flags of a line of supergateway, each with the value that follows it.
func parse(args []string) options {
	var o options
	for i := 0; i < len(args); i++ {
		name, dashed := strings.CutPrefix(args[i], "--")
		if !dashed || name == "" {
			continue
		}
		name, value, inside := strings.Cut(name, "=")
		if !inside && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			i++
			value = args[i]
		}
		o = append(o, struct{ name, value string }{normalizedName(name), value})
	}
	return o
}

// last returns the value that counts; "": there is none.
func (o options) last(name string) string {
	value := ""
	for _, x := range o {
		if x.name == normalizedName(name) {
			value = x.value
		}
	}
	return value
}

// others returns the flags of mcp-bridge for those that do not say what is bridged: of serve or else of connect, for
// a remote server or else a command.
func (o options) others(serve, remote bool) []string {
	ofServe, ofRemote := []string{"cors", "sessiontimeout"}, []string{"header", "oauth2bearer"}
	var to []string
	for _, x := range o {
		if !serve && slices.Contains(ofServe, x.name) || !remote && slices.Contains(ofRemote, x.name) {
			continue
		}
		switch x.name {
		case "header":
			name, _, _ := strings.Cut(x.value, ":")
			to = append(to, "--header", strings.TrimSpace(name)+": ...")
		case "oauth2bearer":
			to = append(to, "--header", "Authorization: Bearer ${TOKEN}")
		case "cors":
			origin := "https://app.example" // all of them, in supergateway: here one is named
			if strings.Contains(x.value, "://") {
				origin = x.value
			}
			to = append(to, "--allow-origin", origin)
		case "sessiontimeout":
			if ms, err := strconv.Atoi(x.value); err == nil && ms > 0 && ms%1000 == 0 {
				to = append(to, "--session-timeout", fmt.Sprintf("%ds", ms/1000))
			}
		case "loglevel":
			to = append(to, "--log-level", strings.Replace(x.value, "none", "off", 1))
		}
	}
	return to
}

// A word of a command line: what a shell would take as one, without what only a shell knows.
var word = lazyregexp.New(`(?:"[^"]*"|'[^']*'|[^\s"'])+`)

// secret is what the names of secrets have in them.
var secret = lazyregexp.New(`(?i)key|token|secret|pass|auth|cred`)

// withoutSecret returns a URL without what may be secret in it.
func withoutSecret(addr string) string {
	addr, _, query := strings.Cut(addr, "?")
	if scheme, rest, ok := strings.Cut(addr, "://"); ok {
		addr = scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
	}
	if query {
		addr += "?..."
	}
	return addr
}

// words splits a command as a shell would, nearly: it is for a person to read.
func words(command string) []string {
	var found []string
	before := ""
	for _, w := range word.FindAllStringSubmatch(command, -1) {
		text := unquoted(w[0])
		found = append(found, masked(before, text))
		before = text
	}
	return found
}

// unquoted returns a word without its quotes.
func unquoted(w string) string { return strings.NewReplacer(`"`, "", `'`, "").Replace(w) }

// masked returns a word without what may be secret in it.
func masked(before, text string) string {
	name, _, given := strings.Cut(text, "=")
	switch {
	case given && secret.MatchString(name):
		return name + "=..."
	case strings.HasPrefix(before, "-") && !strings.Contains(before, "=") && secret.MatchString(before):
		return "..."
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
		return shown
	})
}
