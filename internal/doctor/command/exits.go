package command

import (
	"fmt"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
)

// A knownCause is a text that programs write to stderr before they end, and what it means.
type knownCause struct {
	pattern   *lazyregexp.Regexp // matches the text; its first group is put into diagnosis and advice
	diagnosis string             // what is wrong; has a %s for the first group of pattern
	advice    string             // what the user can do; may have a %s for the first group of pattern
}

// knownCauses are what recogniseCause looks for in the stderr of a program that has ended: the first one that matches counts.
var knownCauses = []knownCause{
	{lazyregexp.New(`(?i)\bNo module named '?([\w.]+)`), "the Python module %s is missing", "Install it into the Python that runs the server, or run the server with uvx or its virtual environment's python."},
	{lazyregexp.New(`Cannot find (?:module|package) '([^']+)'`), "the module %s is missing", "Run \"npm install\" where the server is, build it, or check the path of the script."},
	{lazyregexp.New(`(?:npm (?:ERR!|error) (?:code )?E?404[^\n]*?|No matching version found for |not in this registry[^\n]*?)['"]?((?:@[\w.-]+/)?[\w.-]+@?[\w.*-]*)['"]?`), "the package %s is not in the registry", "Check the name of the package."},
	{lazyregexp.New(`KeyError: '([A-Z][A-Z0-9_]{2,})'`), "the variable %s is missing", "Pass it: --env %s=VALUE, or --env %[1]s for the value it has here."},
	{lazyregexp.New(`\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b[^\n]{0,60}\b(?:not set|unset|is required|required|is missing|missing|must be (?:set|provided)|not (?:found|defined|provided))`), "the variable %s is missing", "Pass it: --env %s=VALUE, or --env %[1]s for the value it has here."},
	{lazyregexp.New(`(?i)\b(?:missing|set|provide|required?|requires|need)\b[^\n]{0,60}?\b((?-i:[A-Z][A-Z0-9]*_[A-Z0-9_]+))\b`), "the variable %s is missing", "Pass it: --env %s=VALUE, or --env %[1]s for the value it has here."},
	{lazyregexp.New(`(EADDRINUSE|[Aa]ddress already in use)[^\n]*`), "its port is in use (%s)", "End the other process, or give the server another port."},
	{lazyregexp.New(`(?:can't open file|No such file or directory:?) '?([^'\n]+)'?`), "the file %s is missing", "Check the path; a relative one begins at the working directory, which --cwd sets."},
	{lazyregexp.New(`(\S+): (?:command )?not found`), "the program %s is not found", "Install it, or add its folder to PATH: --env PATH=..."},
	{lazyregexp.New(`((?:SyntaxError: [^\n]{0,60}\bJSON\b|JSONDecodeError: )[^\n]{0,60})`), "it cannot read JSON (%s)", "See which file it reads there: a configuration that is empty or broken, mostly."},
	{lazyregexp.New(`(SyntaxError: [^\n]{0,80})`), "there is a syntax error in its code (%s)", "The text on stderr names the file and the line. If the code is right, it is for a newer version of its language."},
	{lazyregexp.New(`(?i)(Unsupported engine|requires Node[^\n]{0,40}|requires Python[^\n]{0,20}|ERR_REQUIRE_ESM)`), "it needs another version of its language (%s)", "Run it with the version that it asks for."},
	{lazyregexp.New(`(?i)(permission denied|EACCES)[^\n]*`), "it is not permitted to do something (%s)", "See which file the text on stderr names, and who may use that."},
	{lazyregexp.New(`(?i)(unknown (?:option|command|argument|flag)|unrecognized arguments?|invalid option|unexpected argument)[^\n]*`), "it does not know an argument (%s)", "Check its arguments; those of mcp-bridge stand in front of \"--\"."},
	{lazyregexp.New(`(?im)^\s*(usage:)`), "it prints its help (%s ...)", "A subcommand or an option is missing."},
}

// recogniseCause returns why a program has ended, as far as its stderr tells (is), and what to do about it; "": that is not
// known.
func recogniseCause(stderr string) (is, do string) {
	for _, c := range knownCauses {
		if m := c.pattern.FindStringSubmatch(stderr); m != nil {
			is, do = fmt.Sprintf(c.diagnosis, m[1]), c.advice
			if strings.Contains(do, "%") {
				do = fmt.Sprintf(do, m[1])
			}
			return is, do
		}
	}
	return "", ""
}

// addEndsAtOnce adds C2: server has ended, or only closed its stdout, before its first answer. how and ended are what awaitExit
// has returned.
func (d *diagnosis) addEndsAtOnce(server *serverProcess, how string, ended bool) {
	title := doctor.ServerEndsAtOnce.Title
	if !ended {
		title = "the server closes its stdout"
	}
	is, do := recogniseCause(strings.Join(server.process.StderrTail(), "\n"))
	if is != "" {
		title += ": " + is
	}
	if do == "" {
		do = doctor.ServerEndsAtOnce.Advice
		if noise, _ := server.faultLines(faultNoise); len(noise) > 0 {
			do += " It has also written to stdout: " + doctor.Excerpt(noise[0])
		}
	}
	d.addFinding("C2", doctor.Error, title, how+" before the answer to initialize"+stderrSuffix(server),
		doctor.ServerEndsAtOnce.Consequence, do)
}
