package main

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseStartPages takes the pages of the executable out of the process that only starting has needed: its instructions
// and constants. Package initialisation reads nearly all of them, and a bridge that waits needs less than half. What is needed again the
// kernel maps again, from its page cache, as it does for a process that starts. A page that the process
// can write to, or could write to, stays. Where the kernel does not say what is mapped, nothing happens.
func releaseStartPages() {
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer maps.Close()
	for _, m := range unmodifiedMappings(maps, executable) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED)
	}
}

// mapping is a part of the memory of a process.
type mapping struct {
	begin uintptr // its first address
	end   uintptr // the address behind its last one
}

// unmodifiedMappings returns the mappings of an executable whose memory is what the file has. Where an executable may be loaded
// anywhere (PIE), the loader writes addresses into constants, and then protects them from being written to. Such memory
// would not come back from the file.
func unmodifiedMappings(smaps io.Reader, executable string) (all []mapping) {
	var m mapping // the one whose lines are read; zero: it is not to be returned
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		// 00400000-00dc2000 r-xp 00000000 fe:00 1234 /usr/bin/mcp-bridge
		// Anonymous:             0 kB
		// Swap:                  0 kB
		switch {
		case len(fields) >= 5 && !strings.HasSuffix(fields[0], ":"):
			m = mapping{}
			from, to, _ := strings.Cut(fields[0], "-")
			begin, beginErr := strconv.ParseUint(from, 16, 64)
			end, endErr := strconv.ParseUint(to, 16, 64)
			if beginErr == nil && endErr == nil && !strings.Contains(fields[1], "w") && strings.HasSuffix(lines.Text(), " "+executable) {
				m = mapping{uintptr(begin), uintptr(end)}
			}
		case len(fields) < 2 || m.end == 0:
		case fields[0] == "Anonymous:" && fields[1] != "0":
			m = mapping{}
		case fields[0] == "Swap:" && fields[1] == "0": // this line comes after Anonymous
			all = append(all, m)
		}
	}
	return all
}
