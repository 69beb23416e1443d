package startpages

import (
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// skipOldKernel ends a test where the kernel is older than 5.14: madvise refuses an advice that it does not know also for no memory at all.
func skipOldKernel(t *testing.T) {
	t.Helper()
	const populateWrite = 23
	if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, 0, 0, populateWrite); errno != 0 {
		t.Skip("the kernel is older than 5.14")
	}
}

// pageFaults returns how many page faults this thread has had.
func pageFaults(t *testing.T) int64 {
	t.Helper()
	const thisThread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	bridgetest.Must(t, syscall.Getrusage(thisThread, &usage))
	return int64(usage.Minflt)
}

// Memory that was never used costs no page faults once it was populated, and what stood in it stays.
func TestPopulate(t *testing.T) {
	skipOldKernel(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const size = 4 << 20
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	bridgetest.Must(t, err)
	defer syscall.Munmap(memory)
	_ = syscall.Madvise(memory, syscall.MADV_NOHUGEPAGE) // else there are few page faults in any case
	memory[0] = 'x'
	bridgetest.Must(t, populate(pageOf(unsafe.Pointer(&memory[0])), size))
	before, page := pageFaults(t), syscall.Getpagesize()
	for i := page; i < size; i += page {
		memory[i] = 'y'
	}
	if faults := pageFaults(t) - before; faults > int64(size/page/4) || memory[0] != 'x' {
		t.Errorf("%d page faults for %d pages; the first byte is %q", faults, size/page, memory[0])
	}
}

// What the heap uses next is there after PopulateHeap, up to the end of the addresses that Go has made usable.
func TestPopulateHeap(t *testing.T) {
	skipOldKernel(t)
	PopulateHeap()
	const usable = 4 << 20
	begin := pageOf(unsafe.Pointer(heapObject))
	checkInMemory(t, begin, min(begin+startHeapSize, (begin/usable+1)*usable)-begin)
}

// What garbage will use is there after PopulateGarbage.
func TestPopulateGarbage(t *testing.T) {
	skipOldKernel(t)
	const size = 6 << 20
	garbage := populatedGarbage(size)
	checkInMemory(t, pageOf(unsafe.Pointer(&garbage[0])), size)
	runtime.KeepAlive(garbage)
}

// checkInMemory checks that the kernel has provided all pages of a part of the memory that begins with a page.
func checkInMemory(t *testing.T, begin, size uintptr) {
	t.Helper()
	pages := make([]byte, size/uintptr(syscall.Getpagesize()))
	if _, _, errno := syscall.Syscall(syscall.SYS_MINCORE, begin, uintptr(len(pages)*syscall.Getpagesize()), uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for i, page := range pages {
		if page&1 == 0 {
			t.Fatalf("page %d of %d is not in memory", i, len(pages))
		}
	}
}
