// Command print writes hostile lines of a trace to stdout, for tests that are modules of their own: print SEED COUNT.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/tests/hostile"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "print SEED COUNT")
		os.Exit(2)
	}
	seed, _ := strconv.ParseUint(os.Args[1], 10, 64)
	count, _ := strconv.Atoi(os.Args[2])
	_, _ = os.Stdout.Write(hostile.JoinLines(hostile.TraceLines(seed, count)))
}
