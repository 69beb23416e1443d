package bridgetest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// FileRSS returns how many KiB of files are in the memory of a process: mostly of its executable.
func FileRSS(tb testing.TB, pid int) (kib int) {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	Must(tb, err)
	found := regexp.MustCompile(`(?m)^RssFile:\s+(\d+) kB$`).FindSubmatch(status)
	if found == nil {
		tb.Fatal("the kernel does not tell how much memory is of files")
	}
	kib, err = strconv.Atoi(string(found[1]))
	Must(tb, err)
	return kib
}
