package supervisor

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A containerLine is what is said on a command line that runs a container.
type containerLine struct {
	globals  []string // the arguments that choose an engine, which its other commands need too
	afterRun int      // the index in the arguments of what follows "run"
	cidFile  string   // the file for the container's id (--cidfile); "": the line names none
	remove   bool     // the container is to be removed when it has ended (--rm)
	detach   bool     // the command ends at once, and the container goes on (--detach)
}

// parseContainerLine takes a command line apart. ok is false unless program is docker, podman or nerdctl and the
// command is "run" or "container run". With an option that engineOptions and runSwitches do not have it may miss the
// command (then ok is false) or later options.
func parseContainerLine(program string, args []string) (l containerLine, ok bool) {
	name := strings.TrimSuffix(strings.ToLower(filepath.Base(program)), ".exe")
	valued, ok := engineOptions[name]
	if !ok {
		return l, false
	}
	isGlobal := func(option string) bool { return slices.Contains(valued, option) }
	n := eachOption(args, isGlobal, func(string, string) {})
	l.globals = args[:n:n]
	switch {
	case len(args) > n && args[n] == "run":
		l.afterRun = n + 1
	case len(args) > n+1 && args[n] == "container" && args[n+1] == "run":
		l.afterRun = n + 2
	default:
		return l, false
	}
	takes := func(option string) bool { return !slices.Contains(runSwitches, option) }
	eachOption(args[l.afterRun:], takes, func(option, value string) {
		switch option {
		case "cidfile":
			l.cidFile = value
		case "rm":
			l.remove = isTrue(value)
		case "d", "detach":
			l.detach = isTrue(value)
		default:
			// podman and nerdctl take their global options after "run" as well, but not
			// the one-letter ones: there, one letter is an option of run.
			if name != "docker" && len(option) > 1 && isGlobal(option) {
				l.globals = append(l.globals, "--"+option+"="+value)
			}
		}
	})
	return l, true
}

// eachOption calls visit for each option at the beginning of args, with the name of the option without dashes. It
// returns the index of the first argument that is not an option. takes says whether an option has a value. An option
// without a value has the value "true", unless a value follows it after "=".
func eachOption(args []string, takes func(name string) bool, visit func(name, value string)) int {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		next := func() string {
			if i++; i < len(args) {
				return args[i]
			}
			return ""
		}
		switch {
		case arg == "--":
			return i + 1
		case len(arg) < 2 || arg[0] != '-':
			return i
		case arg[1] != '-':
			eachLetter(arg[1:], takes, next, visit)
			continue
		}
		name, value, given := strings.Cut(arg[2:], "=")
		switch {
		case !given && takes(name):
			value = next()
		case !given:
			value = "true"
		}
		visit(name, value)
	}
	return len(args)
}

// eachLetter calls visit for each of the one-letter options in one argument, given without its dash, as in -it or
// -eNAME. takes says whether an option has a value; visit gets the option's name, and its value, or "true" if it has
// none; next takes the argument that follows, as the value of the last option.
func eachLetter(letters string, takes func(name string) bool, next func() string, visit func(name, value string)) {
	for letters != "" {
		name, rest := letters[:1], letters[1:]
		value, given := strings.CutPrefix(rest, "=")
		switch {
		case takes(name) && rest == "":
			visit(name, next())
			return
		case takes(name) || given:
			visit(name, value)
			return
		}
		visit(name, "true")
		letters = rest
	}
}

// isTrue reports whether the value of a switch turns it on.
func isTrue(value string) bool {
	b, err := strconv.ParseBool(value)
	return b && err == nil
}

// engineOptions has the programs that run containers, and for each the global options that have a value.
var engineOptions = map[string][]string{
	"docker": {"config", "context", "c", "host", "H", "log-level", "l", "tlscacert", "tlscert", "tlskey"},
	"podman": {
		"cdi-spec-dir", "cgroup-manager", "config", "conmon", "connection", "c", "context", "db-backend", "events-backend", "hooks-dir", "host", "H",
		"identity", "imagestore", "log-level", "module", "namespace", "network-cmd-path", "network-config-dir", "out", "registries-conf",
		"root", "runroot", "runtime", "runtime-flag", "ssh", "storage-driver", "storage-opt", "tls-ca", "tls-cert", "tls-key", "tmpdir", "url", "volumepath",
	},
	"nerdctl": {
		"address", "a", "bridge-ip", "cdi-spec-dirs", "cgroup-manager", "cni-netconfpath", "cni-path", "data-root", "host", "H",
		"host-gateway-ip", "hosts-dir", "namespace", "n", "snapshotter", "storage-driver", "userns-remap",
	},
}

// runSwitches are the options of the engines' command "run" that have no value.
var runSwitches = []string{
	"d", "i", "t", "P", "q",
	"debug", "debug-full", "detach", "disable-content-trust", "env-host", "experimental", "help", "http-proxy", "init", "insecure-registry",
	"interactive", "no-healthcheck", "no-hostname", "no-hosts", "oom-kill-disable", "passwd", "privileged", "publish-all", "quiet", "read-only",
	"read-only-tmpfs", "remote", "replace", "rm", "rmi", "rootfs", "sig-proxy", "syslog", "tls-verify", "trace", "transient-store", "tty",
	"unsetenv-all", "use-api-socket",
}
