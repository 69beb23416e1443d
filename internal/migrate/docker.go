package migrate

import (
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// image matches the name of a container image of supergateway or mcp-proxy, with its registry, tag and digest.
var image = lazyregexp.New(`^(?:[a-z0-9.-]+(?::\d+)?/)?(?:supercorp|supercorp-ai|sparfenyuk)/(supergateway|mcp-proxy)(?::[\w.-]+)?(?:@sha256:\w+)?$`)

// A dockerLine is a command line of docker, or podman, that runs the image of another program that carries MCP.
type dockerLine struct {
	imageProgram   string   // the program in the image: supergateway or mcp-proxy
	options        []string // the words between "run" and the image
	argsAfterImage []string // the words behind the image, which are the program's
}

// parseDocker takes a command line of docker or podman apart; ok is false if it does not run the image of another program (dockerLine).
func parseDocker(argv []string) (d dockerLine, ok bool) {
	if len(argv) < 3 || argv[0] != "docker" && argv[0] != "podman" {
		return d, false
	}
	if argv = argv[1:]; argv[0] == "container" {
		argv = argv[1:]
	}
	at := slices.IndexFunc(argv, func(word string) bool { return image.MatchString(word) })
	if argv[0] != "run" || at < 0 {
		return d, false
	}
	return dockerLine{image.FindStringSubmatch(argv[at])[1], argv[1:at], argv[at+1:]}, true
}

// programArgs returns the arguments of the program in the image, with --port set to the port that docker publishes (-p), if it publishes any:
// clients use that one.
func (d dockerLine) programArgs() []string {
	public := ""
	for _, value := range d.values("-p", "--publish") {
		value, _, _ = strings.Cut(value, "/") // tcp
		parts := strings.Split(value, ":")
		if len(parts) > 1 && isPort(parts[len(parts)-2]) {
			public = parts[len(parts)-2]
		}
	}
	if public == "" {
		return d.argsAfterImage
	}
	args := slices.Clone(d.argsAfterImage)
	own := len(args) // words, without the command, which may have a port, too
	if p, ok := newScanner(d.imageProgram).scan(args); ok && d.imageProgram != supergateway && !p.isRemote() {
		own -= len(p.target)
	}
	for i, word := range args[:own] {
		name, _, inside := strings.Cut(word, "=")
		switch {
		case name != "--port" && name != "--sse-port":
		case inside:
			args[i] = name + "=" + public
			return args
		case i+1 < len(args):
			args[i+1] = public
			return args
		}
	}
	return slices.Insert(args, 0, "--port", public)
}

// addDockerSettings completes the advice for the program in the image by docker's own options: environment variables become --env in a.Line,
// mounted folders and files of variables go into a.LeftOut.
func (d dockerLine) addDockerSettings(a *Advice) {
	var env []string
	for _, value := range d.values("-e", "--env") {
		name, _, given := strings.Cut(value, "=")
		if given {
			name += "=..." // it may be secret
		}
		env = append(env, "--env", name)
	}
	if len(env) > 0 && !a.IsConnect() {
		a.Line = strings.Replace(a.Line, "mcp-bridge serve", "mcp-bridge serve "+printable.ShellCommand(env...), 1)
	}
	if len(d.values("-v", "--volume", "--mount")) > 0 {
		a.LeftOut = append(a.LeftOut, "the folders that docker mounts (the server runs on this machine: write their paths of this machine)")
	}
	if len(d.values("--env-file")) > 0 {
		a.LeftOut = append(a.LeftOut, "--env-file of docker (write --env-file FILE)")
	}
}

// values returns the values of an option of docker in the line, however often it is there. names are its forms, such as -e and --env.
func (d dockerLine) values(names ...string) (values []string) {
	for i, word := range d.options {
		for _, name := range names {
			after, found := strings.CutPrefix(word, name)
			switch {
			case !found:
			case after == "" && i+1 < len(d.options):
				values = append(values, d.options[i+1])
			case strings.HasPrefix(after, "="):
				values = append(values, after[1:])
			case after != "" && len(name) == 2: // -p8000:8000
				values = append(values, after)
			}
		}
	}
	return values
}
