package startpages

import (
	"syscall"
	"unsafe"
)

const (
	startHeapSize = 1 << 20 // bytes of the heap that PopulateHeap has the kernel provide: nearly all are in use when the bridge listens

	madvPopulateWrite = 23 // MADV_POPULATE_WRITE, since Linux 5.14; package unix of golang.org/x/sys would be initialised too late
)

// heapObject is an object in the heap. It is a variable of the package so that it is in no stack.
var heapObject *[64]byte

// PopulateHeap has the kernel provide the memory of the heap that a start uses, with one system call. Otherwise the kernel provides it
// page by page, as each one is used for the first time: in a virtual machine that was a sixth of the time until the bridge listens.
// It changes no memory and is called once, early. The heap grows from its lowest free address, and gets 4 MiB of addresses at first: the memory
// behind an object that was just made is what comes next. A kernel before 5.14 knows no such call; the error says so.
func PopulateHeap() error {
	heapObject = new([64]byte)
	page := uintptr(syscall.Getpagesize())
	return populate(uintptr(unsafe.Pointer(heapObject))&^(page-1), startHeapSize)
}

// populate has the kernel provide the pages of memory that the process may write to. begin is the address of the first page.
func populate(begin, size uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, begin, size, madvPopulateWrite); errno != 0 {
		return errno
	}
	return nil
}
