package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker in releases.
var version = ""

func printVersion(env environment) error {
	v := version
	if info, ok := debug.ReadBuildInfo(); ok && v == "" {
		v = info.Main.Version
	}
	if v == "" {
		v = "(devel)"
	}
	_, err := fmt.Fprintf(env.stdout, "mcp-bridge %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
