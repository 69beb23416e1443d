package startpages

import (
	"syscall"
	"unsafe"
)

// startHeapSize is how many bytes of the heap PopulateHeap has the kernel provide: on two CPUs, serve uses about two thirds of them until it
// listens. With less the start takes longer, and with more it takes no less time.
const startHeapSize = 1 << 20

// madvPopulateWrite is MADV_POPULATE_WRITE of Linux 5.14, which package syscall does not have. With package unix of golang.org/x/sys, this
// package would be initialised too late.
const madvPopulateWrite = 23

// heapObject is an object of the heap. It is a variable of the package, because the compiler would else put the object onto a stack.
var heapObject *[64]byte

// PopulateHeap has the kernel provide memory of the heap that a start uses, with one system call. Otherwise the kernel provides it page by
// page, as each one is used for the first time: in a virtual machine that was a sixth of the time until serve listens. It changes no memory,
// and is called once, early.
//
// Go takes memory for the heap from its lowest free addresses, so what it takes next lies behind an object that was just made. Go has 4 MiB of
// addresses made usable at first, and begins somewhere in them at random. In about one start of five, less than startHeapSize follows: then
// the kernel provides what there is. A kernel before 5.14 provides nothing.
func PopulateHeap() {
	heapObject = new([64]byte)
	_ = populate(pageOf(unsafe.Pointer(heapObject)), startHeapSize)
}

// pageOf returns the address of the page that p points into.
func pageOf(p unsafe.Pointer) uintptr { return uintptr(p) &^ uintptr(syscall.Getpagesize()-1) }

// populate has the kernel provide the pages of memory that the process may write to, up to the first page that it cannot provide. begin is the
// address of the first page.
func populate(begin, size uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, begin, size, madvPopulateWrite); errno != 0 {
		return errno
	}
	return nil
}

// PopulateGarbage has the kernel provide memory for size bytes of garbage, a multiple of garbageStep. The heap uses it after the next garbage
// collection.
func PopulateGarbage(size int) { _ = populatedGarbage(size) }

// garbageStep is how many bytes populatedGarbage has the kernel provide with one system call. That takes up to 3 ms in a virtual machine, and
// meanwhile the process cannot map other memory, as a heap that grows does.
const garbageStep = 512 << 10

// populatedGarbage returns size bytes of the heap that the kernel has provided, if it can.
func populatedGarbage(size int) []byte {
	garbage := make([]byte, size)
	for i := 0; i < size; i += garbageStep {
		_ = populate(pageOf(unsafe.Pointer(&garbage[i])), garbageStep)
	}
	return garbage
}
