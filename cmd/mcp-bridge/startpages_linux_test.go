package main

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// fileRSS returns how many KiB of files are in the memory of this process.
func fileRSS(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^RssFile:\s+(\d+) kB$`).FindSubmatch(status)
	if found == nil {
		t.Fatal("the kernel does not tell how much memory is of files")
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// What only starting has needed does not stay in memory.
func TestReleaseStartPages(t *testing.T) {
	executable, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	before := fileRSS(t)
	releaseStartPages()
	after := fileRSS(t)
	t.Logf("%d KiB of files in memory, before %d; the executable has %d", after, before, len(executable)>>10)
	if after > before*3/4 {
		t.Errorf("%d KiB of files are in memory; before there were %d", after, before)
	}
}
