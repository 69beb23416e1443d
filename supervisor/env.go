package supervisor

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// ownPrefix starts the names of the bridge's own variables, which hold its
// secrets; no child gets them unless they are given by name and value.
const ownPrefix = "MCP_BRIDGE_"

// markerVar names the variable that marks the environment of a child, and so
// of its descendants, on Linux.
const markerVar = ownPrefix + "PROCESS"

// safeNames are the variables that the MCP SDKs pass to a server.
func safeNames() []string {
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
// policy says what is passed on of ours: a comma-separated list of variable
// names, "safe" for the names that the MCP SDKs pass (HOME, LOGNAME, PATH,
// SHELL, TERM, USER; their equivalents on Windows), "all" for everything but
// MCP_BRIDGE_*, "none" for nothing. A name that is not set is left out.
//
// extra are NAME=VALUE entries that are added, and win; of two with the same name the
// later one.
//
// The errors say which entry is malformed by its position, not by its content,
// which may be a secret.
func Environ(policy string, extra []string) ([]string, error) {
	return environ(os.Environ(), policy, extra)
}

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

// parsePolicy returns which names a policy passes.
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
			names = append(names, safeNames()...)
		case item == "" || strings.ContainsAny(item, "= \t\x00"):
			return nil, fmt.Errorf("environment policy, item %d: not the name of a variable: want all, safe, none or NAME,NAME,... (a value is set as NAME=VALUE, apart from this)", i+1)
		case isOwn(item):
			return nil, fmt.Errorf("environment policy, item %d: %s* belongs to the bridge: give the child a variable of another name", i+1, ownPrefix)
		default:
			names = append(names, item)
		}
	}
	return func(name string) bool {
		listed := func(n string) bool { return sameName(n, name) }
		return all && !isOwn(name) || slices.ContainsFunc(names, listed)
	}, nil
}

func isOwn(name string) bool {
	return len(name) >= len(ownPrefix) && sameName(name[:len(ownPrefix)], ownPrefix)
}

// splitVar splits NAME=VALUE; name is "" if v has not this form. Windows has
// variables whose names start with "=", hence the 1.
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

func sameName(a, b string) bool {
	if runtime.GOOS == "windows" {
		return strings.EqualFold(a, b)
	}
	return a == b
}

// withVar returns a copy of env in which name has value and is there once.
func withVar(env []string, name, value string) []string {
	kept := make([]string, 0, len(env)+1)
	for _, v := range env {
		if n, _ := splitVar(v); !sameName(n, name) {
			kept = append(kept, v)
		}
	}
	return append(kept, name+"="+value)
}

// lookVar returns the value of name in env.
func lookVar(env []string, name string) (value string, ok bool) {
	for _, v := range env {
		if n, val := splitVar(v); n != "" && sameName(n, name) {
			value, ok = val, true
		}
	}
	return value, ok
}
