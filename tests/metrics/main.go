// Command metrics prints how large the packages of a checkout are, so that a
// change can be compared with what was before it:
//
//	go run ./tests/metrics [DIR]
//
// Tests, and the folder tests, do not count. A function's lines are those from its first to
// its last; a type's methods are those of its package, however many files they are in.
package main

import (
	"fmt"
	"os"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/metrics"
)

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	packages, err := metrics.Walk(dir)
	if err == nil && len(packages) == 0 {
		err = fmt.Errorf("%s holds no Go package", dir)
	}
	if err == nil {
		err = metrics.Print(os.Stdout, packages)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}
