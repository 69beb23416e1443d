package supervisor

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// ownPrefix begins the names of the bridge's own variables, which may hold its secrets. A
// child gets such a variable only if the configuration gives its name and value.
const ownPrefix = "MCP_BRIDGE_"

// markerVar names the environment variable that marks a child on Linux, and all its descendants, which inherit it: its
// value is the child's marker.
const markerVar = ownPrefix + "PROCESS"

// safeVarNames returns the names of the variables that the MCP SDKs pass to a server, which the policy "safe" stands for.
func safeVarNames() []string {
	if runtime.GOOS == "windows" {
		return []string{
			"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
			"PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE",
		}
	}
	return []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}
}

// Environ returns the environment for a child (docs/rules.md, ST16).
//
// policy says which of our variables the child gets. It is a comma-separated list of names. "safe" stands for the
// names that the MCP SDKs pass (HOME, LOGNAME, PATH, SHELL, TERM, USER; their equivalents on Windows), "all" for all
// names but MCP_BRIDGE_*, "none" for no name. A variable that is not set is left out.
//
// extra are NAME=VALUE entries for the child. They take precedence over our variables, and the last of several entries
// with the same name counts.
//
// An error names a malformed entry by its position and not by its content, which may be a secret.
func Environ(policy string, extra []string) ([]string, error) {
	return environ(os.Environ(), policy, extra)
}

// environ returns the environment for a child: those of our variables that policy lets pass, and extra (see Environ).
// ours are our variables, as NAME=VALUE.
func environ(ours []string, policy string, extra []string) ([]string, error) {
	pass, err := parsePolicy(policy)
	if err != nil {
		return nil, err
	}
	env := []string{} // not nil: empty is a valid environment
	for _, v := range ours {
		// bash exports functions as values that start with "()": code, not data.
		if name, value := splitVar(v); name != "" && pass(name) && !strings.HasPrefix(value, "()") {
			env = withVar(env, name, value)
		}
	}
	for i, v := range extra {
		name, value := splitVar(v)
		switch {
		case name == "":
			return nil, fmt.Errorf("environment entry %d: no name before \"=\", or no \"=\": write NAME=VALUE", i+1)
		case strings.ContainsRune(v, 0):
			return nil, fmt.Errorf("environment entry %d: contains a zero byte: remove it", i+1)
		}
		env = withVar(env, name, value)
	}
	return env, nil
}

// parsePolicy returns a function that reports whether a policy (see Environ) gives the child the variable of this name.
func parsePolicy(policy string) (pass func(name string) bool, err error) {
	var names []string
	all := false
	for i, item := range strings.Split(policy, ",") {
		item = strings.TrimSpace(item)
		switch {
		case item == "all":
			all = true
		case item == "none":
		case item == "safe":
			names = append(names, safeVarNames()...)
		case item == "" || strings.ContainsAny(item, "= \t\x00"):
			return nil, fmt.Errorf("environment policy, item %d: not the name of a variable: want all, safe, none or NAME,NAME,... (a value is set as NAME=VALUE, apart from this)", i+1)
		case isOwnVar(item):
			return nil, fmt.Errorf("environment policy, item %d: %s* belongs to the bridge: give the child a variable of another name", i+1, ownPrefix)
		default:
			names = append(names, item)
		}
	}
	return func(name string) bool {
		listed := func(n string) bool { return sameName(n, name) }
		return all && !isOwnVar(name) || slices.ContainsFunc(names, listed)
	}, nil
}

// isOwnVar reports whether the name of a variable begins with ownPrefix.
func isOwnVar(name string) bool {
	return len(name) >= len(ownPrefix) && sameName(name[:len(ownPrefix)], ownPrefix)
}

// splitVar splits NAME=VALUE; name is "" if v does not have this form. On Windows the first
// byte is skipped, because names may begin with "=" there.
func splitVar(v string) (name, value string) {
	from := 0
	if runtime.GOOS == "windows" && v != "" {
		from = 1
	}
	i := strings.IndexByte(v[from:], '=')
	if i < 0 {
		return "", ""
	}
	return v[:from+i], v[from+i+1:]
}

// sameName reports whether two names are of one variable: on Windows upper and lower case do not matter.
func sameName(a, b string) bool {
	if runtime.GOOS == "windows" {
		return strings.EqualFold(a, b)
	}
	return a == b
}

// withVar returns a copy of env with exactly one entry for name, which has value.
func withVar(env []string, name, value string) []string {
	kept := make([]string, 0, len(env)+1)
	for _, v := range env {
		if n, _ := splitVar(v); !sameName(n, name) {
			kept = append(kept, v)
		}
	}
	return append(kept, name+"="+value)
}

// lookupVar returns the value that env, of NAME=VALUE entries, has for name, the last if there are several; ok is
// false if there is none.
func lookupVar(env []string, name string) (value string, ok bool) {
	for _, v := range env {
		if n, val := splitVar(v); n != "" && sameName(n, name) {
			value, ok = val, true
		}
	}
	return value, ok
}
