package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseStartPages takes the pages of the executable out of the process that only starting has needed: its instructions
// and constants. Package initialisation reads nearly all of them, and a bridge that waits needs less than half. What is needed again the
// kernel maps again, from its page cache, as it does for a process that starts. A page that the process
// can write to stays. Where the kernel does not say what is mapped, nothing happens.
func releaseStartPages() {
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// 00400000-00dc2000 r-xp 00000000 fe:00 1234 /usr/bin/mcp-bridge
		addresses, rest, _ := strings.Cut(lines.Text(), " ")
		permissions, rest, _ := strings.Cut(rest, " ")
		if strings.Contains(permissions, "w") || !strings.HasSuffix(rest, " "+executable) {
			continue
		}
		from, to, _ := strings.Cut(addresses, "-")
		begin, beginErr := strconv.ParseUint(from, 16, 64)
		end, endErr := strconv.ParseUint(to, 16, 64)
		if beginErr == nil && endErr == nil {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(begin), uintptr(end-begin), unix.MADV_DONTNEED)
		}
	}
}
