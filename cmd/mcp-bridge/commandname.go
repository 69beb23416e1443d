package main

import (
	"slices"
	"strings"
)

// launcherSyntax is how the command line of a launcher is read: of a program that only starts
// another one, which a server is named after.
type launcherSyntax struct {
	commands     []string                    // words behind the launcher that make it start something, such as "run"; one of "": it may stand without; nil: it has no such word
	switches     []string                    // its options without a value
	valueOptions []string                    // its options with a value
	nameOption   string                      // its option whose value is what is started, such as "-m"; "": it has none
	nameOf       func(started string) string // returns the server's name, made of the argument that says what is started; "": not known
}

// launchers are the programs that servers are mostly started by, by their names. commandName takes other programs, such as podman, for them.
var launchers = map[string]launcherSyntax{
	"npx":  {switches: npmSwitches, valueOptions: []string{"-p", "--package", "-w", "--workspace"}, nameOf: packageName},
	"npm":  {commands: []string{"exec", "x"}, switches: npmSwitches, valueOptions: []string{"--package", "-w", "--workspace"}, nameOf: packageName},
	"bunx": {switches: []string{"--bun", "--silent", "--verbose", "--no-install"}, valueOptions: []string{"-p", "--package"}, nameOf: packageName},
	"pnpm": {commands: []string{"dlx"}, switches: []string{"--silent"}, valueOptions: []string{"--package"}, nameOf: packageName},
	"yarn": {commands: []string{"dlx"}, switches: []string{"-q", "--quiet"}, valueOptions: []string{"-p", "--package"}, nameOf: packageName},
	"uvx":  {switches: uvSwitches, valueOptions: uvValueOptions, nameOf: packageName},
	"uv":   {commands: []string{"run", "tool run"}, switches: uvSwitches, valueOptions: uvValueOptions, nameOption: "-m", nameOf: scriptName},
	"pipx": {commands: []string{"run"}, switches: []string{"--no-cache", "-q", "-v"}, valueOptions: []string{"--spec", "--python"}, nameOf: packageName},
	"node": {
		switches:     []string{"--no-warnings", "--enable-source-maps", "--experimental-strip-types", "--inspect", "--trace-warnings", "--use-system-ca"},
		valueOptions: []string{"-r", "--require", "--import", "--loader", "--experimental-loader", "--env-file"}, nameOf: scriptName,
	},
	"bun":    {commands: []string{"", "run"}, switches: []string{"--watch", "--hot", "--silent"}, nameOf: scriptName},
	"deno":   {commands: []string{"run"}, switches: []string{"-A", "--allow-all", "--allow-net", "--allow-env", "--allow-read", "-q", "--no-check", "--quiet"}, nameOf: scriptName},
	"tsx":    {switches: []string{"--no-cache", "--no-warnings"}, nameOf: scriptName},
	"python": {switches: []string{"-u", "-B", "-E", "-I", "-s", "-S", "-O", "-OO", "-q", "-P", "-v"}, valueOptions: []string{"-W", "-X"}, nameOption: "-m", nameOf: scriptName},
	"ruby":   {nameOf: scriptName},
	"java":   {nameOption: "-jar", nameOf: scriptName},
	"docker": {commands: []string{"run", "container run"}, switches: containerSwitches, valueOptions: containerValueOptions, nameOf: imageName},
}

var (
	// npmSwitches are the options of npx and npm exec that have no value.
	npmSwitches = []string{"-y", "--yes", "-q", "--quiet", "--silent", "-s", "--offline", "--prefer-offline", "--prefer-online", "--no"}
	// uvSwitches are the options of uv and uvx that have no value.
	uvSwitches = []string{"--isolated", "--offline", "--no-cache", "-n", "-q", "--quiet", "--refresh", "-U", "--upgrade", "--no-project", "--frozen", "--locked", "--no-sync", "--native-tls", "--no-config"}
	// uvValueOptions are the options of uv and uvx that have a value.
	uvValueOptions = []string{"--from", "--with", "--with-requirements", "--with-editable", "-p", "--python", "--directory", "--project", "--package", "--extra", "--group"}

	// containerSwitches are the options of docker run, and of programs like it, that have no value.
	containerSwitches = []string{"-i", "-t", "-it", "-ti", "--rm", "--init", "--interactive", "--tty", "--privileged", "--read-only", "-q", "--quiet", "--no-healthcheck", "--replace", "--sig-proxy"}
	// containerValueOptions are the options of docker run, and of programs like it, that have a value.
	containerValueOptions = []string{
		"-e", "--env", "--env-file", "-v", "--volume", "--mount", "--name", "--network", "--net", "-p", "--publish", "-w", "--workdir",
		"-u", "--user", "--userns", "-l", "--label", "-m", "--memory", "--cpus", "--platform", "--pull", "--entrypoint", "--add-host",
		"--cap-add", "--cap-drop", "--security-opt", "-h", "--hostname", "--tmpfs", "--ulimit", "--shm-size", "--pids-limit", "--cidfile", "--gpus", "--dns",
	}
)

// commandName returns what to call a server where nobody has said it: the package, script or
// image that the command runs, or else the name of its program. It uses no argument whose meaning
// is not certain: that may be a secret.
func commandName(argv []string) string {
	program := baseName(argv[0])
	launcher := strings.ToLower(program)
	for _, end := range []string{".exe", ".cmd", ".bat"} {
		launcher = strings.TrimSuffix(launcher, end)
	}
	switch {
	case launcher == "podman", launcher == "nerdctl":
		launcher = "docker"
	case launcher == "nodejs":
		launcher = "node"
	case strings.HasPrefix(launcher, "python"):
		launcher = "python"
	}
	l, ok := launchers[launcher]
	if !ok {
		return program
	}
	if name := l.startedName(argv[1:]); isLikelyName(name) {
		return name
	}
	return program
}

// isLikelyName reports whether a name looks like that of a package, script or image: it begins with a letter, and has at most 64
// letters, digits, dots, hyphens and underscores.
func isLikelyName(name string) bool {
	for i, c := range []byte(name) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')) {
			return false
		}
	}
	return name != "" && len(name) <= 64
}

// startedName returns the name of what the launcher starts with these arguments; "": not known.
func (l launcherSyntax) startedName(args []string) string {
	args, ok := l.argsAfterCommand(args)
	for ok && len(args) > 0 {
		arg := args[0]
		option, _, given := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			args = args[1:]
			ok = len(args) > 0 && !strings.HasPrefix(args[0], "-")
		case !strings.HasPrefix(arg, "-"):
			return l.nameOf(arg)
		case arg == l.nameOption && len(args) > 1:
			return l.nameOf(args[1])
		case slices.Contains(l.switches, option), given && slices.Contains(l.valueOptions, option):
			args = args[1:]
		case slices.Contains(l.valueOptions, option) && len(args) > 1:
			args = args[2:]
		default:
			return ""
		}
	}
	return ""
}

// argsAfterCommand returns the arguments behind the word that makes the launcher start something (launcherSyntax.commands): all if the launcher
// has no such word, or none of them is there but it may stand without. false: the word is missing.
func (l launcherSyntax) argsAfterCommand(args []string) ([]string, bool) {
	if l.commands == nil {
		return args, true
	}
	for _, command := range slices.Backward(l.commands) {
		words := strings.Fields(command)
		if len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			return args[len(words):], true
		}
	}
	return nil, false
}

// packageName returns the name of a package without scope, version and extras; "": spec is a URL, or has "?" or "#" in it.
func packageName(spec string) string {
	if strings.Contains(spec, "://") || strings.ContainsAny(spec, "?#") {
		return ""
	}
	if scoped, ok := strings.CutPrefix(spec, "@"); ok {
		_, spec, _ = strings.Cut(scoped, "/")
	}
	if i := strings.IndexAny(spec, "@=<>~![ "); i > 0 {
		spec = spec[:i]
	}
	return baseName(spec)
}

// imageName returns the name of a container image without registry, tag and digest; "": ref is a URL.
func imageName(ref string) string {
	if strings.Contains(ref, "://") {
		return ""
	}
	ref, _, _ = strings.Cut(ref, "@")
	name, _, _ := strings.Cut(baseName(ref), ":")
	return name
}

// genericNames are names of scripts and folders that do not say which server it is, in lower case and without an ending.
// scriptName prefers the name of a folder above.
var genericNames = []string{"index", "main", "__main__", "server", "app", "cli", "start", "dist", "build", "src", "bin", "lib", "out"}

// scriptName returns the name of a script or module without its ending, or, where that says nothing (genericNames), the name of the
// nearest folder above it that says something; the last part of path if none does. "": path is a URL, or has "@", "?" or "#" in it.
func scriptName(path string) string {
	if strings.Contains(path, "://") || strings.ContainsAny(path, "@?#") {
		return ""
	}
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '\\' })
	for i := len(parts) - 1; i >= 0; i-- {
		name := parts[i]
		if i == len(parts)-1 {
			for _, end := range []string{".js", ".mjs", ".cjs", ".ts", ".mts", ".py", ".pyz", ".rb", ".jar"} {
				name = strings.TrimSuffix(name, end)
			}
		}
		if !slices.Contains(genericNames, strings.ToLower(name)) && isLikelyName(name) {
			return name
		}
	}
	return baseName(path)
}
