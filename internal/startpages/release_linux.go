package startpages

import (
	"bytes"
	"os"
	"syscall"
)

// Release takes the pages of the executable out of the process that only starting has needed: its instructions
// and constants. Package initialisation reads nearly all of them, and a bridge that waits needs less than half. What is needed again the
// kernel maps again, from its page cache, as it does for a process that starts. A page that the process
// can write to, or could write to, stays. Where the kernel does not say what is mapped, nothing happens.
func Release() {
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range unmodifiedMappings(smaps, executable) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.begin, m.end-m.begin, syscall.MADV_DONTNEED)
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
func unmodifiedMappings(smaps []byte, executable string) (all []mapping) {
	var m mapping // the one whose lines are read; zero: it is not to be returned
	for line := range bytes.Lines(smaps) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		fields := bytes.Fields(line)
		// 00400000-00dc2000 r-xp 00000000 fe:00 1234 /usr/bin/mcp-bridge
		// Anonymous:             0 kB
		// Swap:                  0 kB
		switch {
		case len(fields) >= 5 && !bytes.HasSuffix(fields[0], []byte(":")):
			m = mapping{}
			from, to, _ := bytes.Cut(fields[0], []byte("-"))
			begin, beginOK := parseHex(from)
			end, endOK := parseHex(to)
			if beginOK && endOK && !bytes.Contains(fields[1], []byte("w")) && bytes.HasSuffix(line, []byte(" "+executable)) {
				m = mapping{begin, end}
			}
		case len(fields) < 2 || m.end == 0:
		case string(fields[0]) == "Anonymous:" && string(fields[1]) != "0":
			m = mapping{}
		case string(fields[0]) == "Swap:" && string(fields[1]) == "0": // this line comes after Anonymous
			all = append(all, m)
		}
	}
	return all
}

// parseHex returns the address that digits, lower-case hexadecimal ones without a prefix, stand for; ok is false if there is none, or another
// character. The package strconv would be one more to initialise.
func parseHex(digits []byte) (n uintptr, ok bool) {
	const lowerHex = "0123456789abcdef"
	for _, c := range digits {
		i := bytes.IndexByte([]byte(lowerHex), c)
		if i < 0 {
			return 0, false
		}
		n = n<<4 | uintptr(i)
	}
	return n, len(digits) > 0
}
