package startpages

import (
	"errors"
	"syscall"
	"testing"
	"unsafe"
)

// residentPages returns how many pages of memory the process has of its own accord, and how many there are.
func residentPages(t *testing.T, begin, size uintptr) (resident, all int) {
	t.Helper()
	pages := make([]byte, size/uintptr(syscall.Getpagesize()))
	if _, _, errno := syscall.Syscall(syscall.SYS_MINCORE, begin, size, uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for _, page := range pages {
		resident += int(page & 1)
	}
	return resident, len(pages)
}

// skipOldKernel ends a test where the kernel is too old for PopulateHeap, whose error err is.
func skipOldKernel(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, syscall.EINVAL) {
		t.Skip("the kernel is older than 5.14")
	}
}

// Memory that was never used is there once it was populated, and is not changed by that.
func TestPopulate(t *testing.T) {
	const size = 256 << 10
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(memory)
	memory[0] = 'x'
	begin := uintptr(unsafe.Pointer(&memory[0]))
	if resident, all := residentPages(t, begin, size); resident == all {
		t.Fatalf("all of %d pages are there before", all)
	}
	err = populate(begin, size)
	skipOldKernel(t, err)
	if resident, all := residentPages(t, begin, size); err != nil || resident != all || memory[0] != 'x' {
		t.Errorf("%d of %d pages are there, the first byte is %q, the error is %v", resident, all, memory[0], err)
	}
}

// What the heap uses next is there after PopulateHeap.
func TestPopulateHeap(t *testing.T) {
	err := PopulateHeap()
	skipOldKernel(t, err)
	begin := uintptr(unsafe.Pointer(heapObject)) &^ uintptr(syscall.Getpagesize()-1)
	if resident, all := residentPages(t, begin, startHeapSize); err != nil || resident != all {
		t.Errorf("%d of %d pages are there, the error is %v", resident, all, err)
	}
}
