package main

import (
	"fmt"
	"runtime"

	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
)

// printVersion prints the version of this program, that of Go, and the system it is built for.
func printVersion(env environment) error {
	_, err := fmt.Fprintf(env.stdout, "mcp-bridge %s %s %s/%s\n", buildinfo.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
