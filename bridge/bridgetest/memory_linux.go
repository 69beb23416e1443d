package bridgetest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// ExecutableRSS returns how many KiB of a process's own executable are in its memory: the instructions and constants, which come from the
// file, and not the variables. The C library of a build with the race detector does not count.
func ExecutableRSS(tb testing.TB, pid int) (kib int) {
	tb.Helper()
	executable, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	Must(tb, err)
	smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	Must(tb, err)
	isOurs, isThere := false, false
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 5 && !strings.HasSuffix(fields[0], ":"):
			isOurs = strings.HasSuffix(line, " "+executable+"\n") && !strings.Contains(fields[1], "w")
		case isOurs && fields[0] == "Rss:":
			n, err := strconv.Atoi(fields[1])
			Must(tb, err)
			kib += n
			isThere = true
		}
	}
	if !isThere {
		tb.Fatalf("the kernel does not tell how much of %s is in memory", executable)
	}
	return kib
}
