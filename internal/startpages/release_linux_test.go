package startpages

import (
	"os"
	"slices"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// What only starting has needed does not stay in memory.
func TestRelease(t *testing.T) {
	before := bridgetest.ExecutableRSS(t, os.Getpid())
	Release()
	after := bridgetest.ExecutableRSS(t, os.Getpid())
	t.Logf("%d KiB of the executable in memory, before %d", after, before)
	if after > before*7/8 {
		t.Errorf("%d KiB of the executable are in memory; before there were %d", after, before)
	}
}

// What the loader has written into an executable that may be loaded anywhere (PIE) is not in its file, and stays.
func TestUnwrittenMappings(t *testing.T) {
	const smaps = `ebf90000-ec034000 r-xp 00000000 fe:00 11035928                   /usr/bin/my bridge
Size:                656 kB
Anonymous:             0 kB
AnonHugePages:         0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me sd
ec034000-ec114000 r--p 000a4000 fe:00 11035928                   /usr/bin/my bridge
Anonymous:             0 kB
Swap:                  0 kB
ec114000-ec13d000 r--p 00184000 fe:00 11035928                   /usr/bin/my bridge
Anonymous:           164 kB
Swap:                  0 kB
ec13d000-ec13e000 r--p 001ad000 fe:00 11035928                   /usr/bin/my bridge
Anonymous:             0 kB
Swap:                  4 kB
ec13e000-ec14a000 rw-p 001ae000 fe:00 11035928                   /usr/bin/my bridge
Anonymous:             0 kB
Swap:                  0 kB
f3a10000000-f3a10028000 r--p 00000000 fe:00 4711                       /usr/lib/libc.so.6
Anonymous:             0 kB
Swap:                  0 kB
`
	want := []mapping{{0xebf90000, 0xec034000}, {0xec034000, 0xec114000}}
	if got := unmodifiedMappings([]byte(smaps), "/usr/bin/my bridge"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}
