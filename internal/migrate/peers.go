package migrate

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// equivalent is what stands for a flag of another program in command lines of mcp-bridge: flags with their dashes, and with their value
// if that is fixed.
type equivalent struct {
	serve   string // what stands for it in a line of serve; "": nothing does
	connect string // what stands for it in a line of connect; "": nothing does
}

// equivalentFlags are the flags of mcp-proxy, mcp-remote and websocketd that mcp-bridge has, too, perhaps by other names. The keys are
// normalized names.
var equivalentFlags = map[string]equivalent{
	"port": {serve: "--port"}, "host": {serve: "--host", connect: "--redirect-host"}, "address": {serve: "--host"},
	"alloworigin": {serve: "--allow-origin"}, "origin": {serve: "--allow-origin"}, "cwd": {serve: "--cwd"},
	"sslcert": {serve: "--tls-cert"}, "sslkey": {serve: "--tls-key"},
	"maxforks": {serve: "--max-children"}, "devconsole": {serve: "--inspect"}, "passenv": {serve: "--pass-env"}, "maxbodysize": {serve: "--max-message-size"}, "nomodern": {serve: "--client-protocol legacy"},
	"nopassenvironment": {serve: "--pass-env safe"}, "upstreamprotocol": {serve: "--protocol"}, "stateless": {serve: "--isolation request"},
	"namedserverconfig": {serve: "--config"}, "sseport": {serve: "--port"}, "ssehost": {serve: "--host"},
	"loglevel": {"--log-level", "--log-level"}, "debug": {"--debug", "--debug"},
	"transport": {connect: "--transport"}, "ignoretool": {connect: "--ignore-tool"}, "resource": {connect: "--resource"},
	"silent": {connect: "--silent"},
	"config": {serve: "--config"}, "clientid": {connect: "--client-id"}, "disableresourceparameter": {connect: "--resource off"}, "clientcredentials": {connect: "--auth client-credentials"},
}

// flagsWithoutValue are the normalized names of those flags of other programs that no value follows.
var flagsWithoutValue = []string{"debug", "nodebug", "allowhttp", "enableproxy", "silent", "stateless", "nostateless", "shell", "tunnel", "nomodern",
	"modern", "eventstore", "noeventstore", "passenvironment", "nopassenvironment", "verifyssl", "noverifyssl", "ssl", "sameorigin", "devconsole", "keepalive",
	"disableresourceparameter", "clientcredentials", "devicecode", "cli"}

// timeFlag is what stands for a flag of another program whose value is a time as a number without a unit. Our flags have the unit in the value.
type timeFlag struct {
	equivalent               // the flags of mcp-bridge that stand for it
	unit       time.Duration // the unit of the other program's number
}

// timeFlags are the flags of other programs whose value is a time, by normalized names. Where two flags of ours stand for one, both get the
// time.
var timeFlags = map[string]timeFlag{
	"authtimeout":             {equivalent{connect: "--auth-wait"}, time.Second},
	"connectiontimeout":       {equivalent{connect: "--connect-timeout"}, time.Millisecond},
	"requesttimeout":          {equivalent{"--request-timeout", "--request-timeout"}, time.Millisecond},
	"sessiontimeout":          {equivalent{serve: "--session-timeout"}, time.Millisecond},
	"sessionidletimeout":      {equivalent{serve: "--session-timeout"}, time.Millisecond},
	"gracefulshutdowntimeout": {equivalent{"--grace", "--grace"}, time.Millisecond},
	"closems":                 {equivalent{serve: "--term-wait --kill-wait"}, time.Millisecond},
}

// equivalentFlags returns the flags of a command of mcp-bridge (serve, connect or doctor), with their values, that stand for t with this value,
// a number in t.unit or a time with its unit; nil: the command has none, or the value is no time above 0.
func (t timeFlag) equivalentFlags(command, value string) (flags []string) {
	ours := t.serve
	if command == "connect" {
		ours = t.connect
	}
	wait, ok := withUnit(value, t.unit)
	if !ok || command == "doctor" {
		return nil
	}
	for _, name := range strings.Fields(ours) {
		flags = append(flags, name, wait)
	}
	return flags
}

// reason returns why equivalentFlags returns no flags for this command and value, and what to write.
func (t timeFlag) reason(command, value string) string {
	wait, ok := withUnit(value, t.unit)
	ours, _, _ := strings.Cut(t.serve, " ")
	if ours == "" || command == "connect" && t.connect != "" {
		ours = t.connect
	}
	switch {
	case !ok:
		return "it is no number above 0; write " + ours + " with a unit, such as 30s"
	case command == "serve":
		return "serve sets a command no such limit; with a URL, write " + ours + " " + wait
	}
	return command + " has no such flag"
}

// withUnit returns a number of units, such as 1500 milliseconds, as the flags of mcp-bridge take a time: "1500ms". A time that has its
// unit already stays as it is. ok is false if it is no time above 0.
func withUnit(number string, unit time.Duration) (wait string, ok bool) {
	if d, err := time.ParseDuration(number); err == nil && d > 0 {
		return number, true
	}
	n, err := strconv.ParseUint(number, 10, 31)
	switch d := time.Duration(n) * unit; {
	case err != nil || n == 0:
		return "", false
	case d%time.Second == 0:
		return fmt.Sprintf("%ds", d/time.Second), true
	default:
		return fmt.Sprintf("%dms", d.Milliseconds()), true
	}
}

// peerAdvice returns what to write for a command line of another program. program is its name, as findProgram returns it, args are the words
// behind it, and source is where it comes from. ok is false if args are not understood.
func peerAdvice(program string, args []string, source packageSource) (a Advice, ok bool) {
	if program == supergateway {
		return SupergatewayAdvice(args)
	}
	p, ok := newScanner(program).scan(args)
	if ok && (len(p.target) == 0 || program == mcpProxy && p.hasNamedServers() && !p.isRemote()) {
		return p.configFileAdvice(program)
	}
	if !ok {
		return Advice{}, false
	}
	line := []string{"mcp-bridge", "serve"}
	remote := p.isRemote()
	switch {
	case program == inspectorPackage:
		return Advice{Program: mcpInspector, Line: p.doctorLine(remote), LeftOut: p.leftOut("doctor")}, true
	case remote:
		line[1] = "connect"
	}
	for _, x := range p.flags {
		line = append(line, x.bridgeFlagsOf(line[1])...)
	}
	if program == mcpProxy && source == fromPyPI && !remote && !p.passesEnvironment() && !slices.Contains(line, "--pass-env") {
		line = append(line, "--pass-env", "safe") // that of PyPI gives a command no more by itself
	}
	a = Advice{Program: program, LeftOut: p.leftOut(line[1])}
	line, a.needsTokens = addTokenFile(line)
	a.listensEverywhere = !remote && !slices.Contains(line, "--host") && (program == websocketd || program == mcpProxy && (source == fromNPM || p.isNPMProxy()))
	if !remote {
		a.Line = printable.ShellCommand(p.withCommand(line, &a)...)
		return a, true
	}
	rest := p.target[1:]
	if len(rest) > 0 && isPort(rest[0]) { // that of mcp-remote's sign-in
		line, rest = append(line, "--redirect-port", rest[0]), rest[1:]
	}
	if len(rest) > 0 {
		a.LeftOut = append(a.LeftOut, printable.Count(len(rest), "word that stands", "words that stand")+" behind the URL (one URL is all that connect takes)")
	}
	a.Line = printable.ShellCommand(append(line, withoutSecret(p.target[0]))...)
	return a, true
}

// withCommand returns line, a command line of serve, with "--" and p's command behind it, without secrets. If a.LeftOut has --shell, the command
// is one word for a shell: it is run by sh -c, and --shell is taken out of a.LeftOut.
func (p peerLine) withCommand(line []string, a *Advice) []string {
	line = append(line, "--")
	shell := slices.IndexFunc(a.LeftOut, func(l string) bool { return strings.HasPrefix(l, "--shell ") })
	if shell < 0 || len(p.target) != 1 {
		return append(line, WithoutSecrets(p.target)...)
	}
	a.LeftOut = slices.Delete(a.LeftOut, shell, shell+1)
	return append(line, "sh", "-c", withoutSecrets(p.target[0]))
}

// configFileAdvice returns what to write for a line of mcp-proxy whose servers have names (--named-server), or are in a file: serve --config. ok
// is false if it is no such line.
func (p peerLine) configFileAdvice(program string) (a Advice, ok bool) {
	if program != mcpProxy || !p.hasNamedServers() {
		return Advice{}, false
	}
	line := []string{"mcp-bridge", "serve"}
	var file bool
	var named []string
	var rest peerLine // what the line of mcp-bridge has
	for _, x := range p.flags {
		switch normalizedName(x.name) {
		case "namedserver":
			named = append(named, strings.Join(x.values[:min(1, len(x.values))], ""))
			continue
		case "passenvironment": // serve gives the whole environment to a command, and to the servers of a file if it is told so
			line = append(line, "--pass-env", "all")
			continue
		case "e", "env", "cwd": // they are the command's
			if len(p.target) > 0 {
				continue
			}
		case "namedserverconfig":
			file = true
		}
		line, rest.flags = append(line, x.bridgeFlagsOf("serve")...), append(rest.flags, x)
	}
	left := rest.leftOut("serve")
	if !file {
		line = append(line, "--config", "servers.json")
	}
	if named != nil {
		left = append(left, fmt.Sprintf(`--named-server (write %s into the "mcpServers" of the file, as {"NAME": {"command": "PROGRAM", "args": ["ARGUMENT"]}})`, strings.Join(named, ", ")))
	}
	if len(p.target) > 0 {
		left = append(left, `the command (write it into the "mcpServers" of the file, with its "env" and "cwd": clients find it at /servers/NAME/mcp)`)
	}
	line, public := addTokenFile(line)
	return Advice{Program: program, Line: printable.ShellCommand(line...), LeftOut: left, needsTokens: public}, true
}

// addTokenFile returns a line of mcp-bridge with "--token-file tokens" added, if it is one of serve at an address that other machines reach,
// which serve refuses without tokens. needsTokens is false if nothing was added: the line says itself who may come in, or need not.
func addTokenFile(line []string) (_ []string, needsTokens bool) {
	for i, word := range line {
		switch {
		case slices.Contains([]string{"--token-file", "--tls-client-ca", "--oidc-issuer", "--introspect", "--insecure"}, word):
			return line, false
		case i+1 == len(line):
		case word == "--host":
			needsTokens = needsTokens || !isLoopback(line[i+1])
		case word == "--listen":
			host, _, err := net.SplitHostPort(line[i+1])
			needsTokens = needsTokens || err == nil && !isLoopback(host) // otherwise it is a Unix socket
		}
	}
	if line[1] != "serve" || !needsTokens {
		return line, false
	}
	return append(line, "--token-file", "tokens"), true
}

// isLoopback reports whether a host is this machine itself, which no other machine reaches: localhost or a loopback address.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// hasNamedServers reports whether the line, one of mcp-proxy, names servers (--named-server), or a file of them.
func (p peerLine) hasNamedServers() bool {
	return slices.ContainsFunc(p.flags, func(x givenFlag) bool {
		return slices.Contains([]string{"namedserver", "namedserverconfig"}, normalizedName(x.name))
	})
}

// passesEnvironment reports whether the line, one of mcp-proxy, gives the command the whole environment (--pass-environment).
func (p peerLine) passesEnvironment() bool {
	return slices.ContainsFunc(p.flags, func(x givenFlag) bool { return normalizedName(x.name) == "passenvironment" })
}

// isNPMProxy reports whether the line, one of mcp-proxy, has flags that only the mcp-proxy of npm has. All flags of that of PyPI are in lower
// case.
func (p peerLine) isNPMProxy() bool {
	return slices.ContainsFunc(p.flags, func(x givenFlag) bool {
		return len(x.name) > 1 && x.name != strings.ToLower(x.name) || slices.Contains([]string{"server", "endpoint", "shell", "tunnel"}, x.name)
	})
}

// isRemote reports whether the line names the server by a URL; false: by a command, or not at all.
func (p peerLine) isRemote() bool { return len(p.target) > 0 && strings.Contains(p.target[0], "://") }

// A peerLine is a command line of another program than supergateway, taken apart.
type peerLine struct {
	flags  []givenFlag // the flags, in the order of the line
	target []string    // the words that belong to no flag: a command, or a URL first; nil: none
}

// A lineScanner takes command lines apart: those of one program (newScanner), or lines that mix the flags of several
// (newMixedScanner).
type lineScanner struct {
	countValues       func(name string, after []string) (words int, known bool) // returns how many of the words after a flag, which has no "=" in it, are its value; known is false if no program is known to have the flag
	flagsAfterCommand bool                                                      // flags of the programs may stand behind a command, too; behind a URL they always may
}

// scan takes a command line apart; args are the words behind the name of the program. ok is false if it has a flag that is not known, and the
// word behind it may be its value or the command.
func (s lineScanner) scan(args []string) (p peerLine, ok bool) {
	for i := 0; i < len(args); i++ {
		word := args[i]
		switch {
		case word == "--":
			p.target = append(slices.Clip(p.target), args[i+1:]...)
			return p, true
		case !strings.HasPrefix(word, "-") || word == "-":
			p.target = append(p.target, word)
			if !strings.Contains(p.target[0], "://") && !s.flagsAfterCommand {
				p.target = append(p.target, args[i+1:]...)
				return p, true
			}
			continue
		}
		name, value, inside := strings.Cut(strings.TrimLeft(word, "-"), "=")
		x := givenFlag{name: name}
		if inside {
			x.values = []string{value}
		}
		n, known := s.countValues(name, args[i+1:])
		if !inside && !known && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") && !strings.Contains(args[i+1], "://") {
			return p, false
		}
		for ; !inside && len(x.values) < n && i+1 < len(args); i++ {
			x.values = append(x.values, args[i+1])
		}
		p.flags = append(p.flags, x)
	}
	return p, true
}

// newScanner returns the lineScanner for a program other than supergateway.
func newScanner(program string) lineScanner {
	return lineScanner{
		countValues:       func(name string, _ []string) (int, bool) { return countValuesOf(program, name) },
		flagsAfterCommand: program == inspectorPackage,
	}
}

// countValuesOf returns how many words follow a flag of a program as its value. known is false if neither this program nor
// another one is known to have the flag.
func countValuesOf(program, name string) (words int, known bool) {
	normal := normalizedName(name)
	_, taken := equivalentFlags[normal]
	_, named := findFlag(name)
	_, timed := timeFlags[normal]
	switch {
	case slices.Contains([]string{"h", "headers", "e", "env", "namedserver"}, normal) && program == mcpProxy:
		return 2, true
	case slices.Contains(flagsWithoutValue, normal):
		return 0, true
	case taken || named || timed || slices.Contains([]string{"h", "e", "header", "env"}, normal):
		return 1, true
	}
	return 0, false
}

// bridgeFlagsOf returns the flags of a command of mcp-bridge (serve, connect or doctor) for a flag of another program, with their values, but
// without secrets. nil: the command has none.
func (x givenFlag) bridgeFlagsOf(command string) []string {
	name := normalizedName(x.name)
	if slices.Contains([]string{"h", "header", "headers"}, name) && command == "connect" && len(x.values) > 0 {
		return []string{"--header", shownHeader(x.values[0])}
	}
	if slices.Contains([]string{"e", "env"}, name) && command == "serve" && len(x.values) > 0 {
		return []string{"--env", x.values[0] + "=..."}
	}
	if t, ok := timeFlags[name]; ok {
		return t.equivalentFlags(command, strings.Join(x.values, ""))
	}
	ours := equivalentFlags[name].serve
	if command == "connect" {
		ours = equivalentFlags[name].connect
	}
	if ours == "" || command == "doctor" || name == "maxbodysize" && strings.Join(x.values, "") == "0" { // 0 is no limit, which serve does not know
		return nil
	}
	flags := strings.Fields(ours)
	if len(flags) > 1 || slices.Contains(flagsWithoutValue, name) {
		return flags
	}
	return append(flags, WithoutSecrets(x.values)...)
}

// leftOut returns the flags of the line that a command of mcp-bridge does not have, each with the reason.
func (p peerLine) leftOut(command string) []string {
	var all []string
	for _, x := range p.flags {
		if len(x.bridgeFlagsOf(command)) > 0 || command == "doctor" && slices.Contains([]string{"cli", "method", "toolname", "transport"}, normalizedName(x.name)) {
			continue
		}
		_, isEquivalent := equivalentFlags[normalizedName(x.name)]
		f, ok := findFlag(x.name)
		t, isTime := timeFlags[normalizedName(x.name)]
		reason := f.reason()
		switch {
		case isTime:
			reason = t.reason(command, strings.Join(x.values, ""))
		case ok:
		case isEquivalent && command == "serve" && normalizedName(x.name) == "transport":
			reason = "every transport is at one port (/mcp, /sse, /ws)"
		case isEquivalent && command == "serve":
			reason = "it is about a remote server"
		case isEquivalent:
			reason = command + " has no such flag"
		default:
			reason = "mcp-bridge knows no flag of this name"
		}
		all = append(all, "--"+x.name+" ("+reason+")")
	}
	return all
}

// doctorLine returns the command line of doctor for one of the MCP inspector. remote: the server is a URL, else a command.
func (p peerLine) doctorLine(remote bool) string {
	line := []string{"mcp-bridge", "doctor"}
	var tool, arguments string
	for _, x := range p.flags {
		switch normalizedName(x.name) {
		case "toolname":
			tool = strings.Join(x.values, "")
		case "toolarg":
			arguments = `{"ARGUMENT": "VALUE"}`
		}
	}
	if tool != "" {
		line = append(line, "--call", tool)
	}
	switch {
	case !remote:
		return printable.ShellCommand(append(append(line, "--"), WithoutSecrets(p.target)...)...)
	case tool != "" && arguments != "":
		return printable.ShellCommand(append(line, withoutSecret(p.target[0]), arguments)...)
	}
	return printable.ShellCommand(append(line, withoutSecret(p.target[0]))...)
}

// isPort reports whether a word is the number of a port.
func isPort(word string) bool {
	_, err := strconv.ParseUint(word, 10, 16)
	return err == nil
}

// WithoutSecrets returns the words of a command with "..." in place of what may be secret in them, as far as names and forms tell.
func WithoutSecrets(command []string) []string {
	shown := make([]string, len(command))
	before := ""
	for i, w := range command {
		shown[i], before = maskSecret(before, w), w
	}
	return shown
}
