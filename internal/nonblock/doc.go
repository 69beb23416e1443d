// Package nonblock reads and writes connections with system calls that Go's scheduler is not told of. Only Linux has such
// calls here; elsewhere, and with the race detector, everything is read and written as usual.
//
// A read or write of package net tells the scheduler when its system call begins and when it ends. If the call takes long, a thread
// of the Go runtime, sysmon, has another thread go on with the goroutines meanwhile. For a call that may wait, that is needed. A call
// on a non-blocking socket never waits: it takes long only where the kernel gives the processor to another process, such as the one that
// the write was for. Where the processors are busy, that happens often: then sysmon moves goroutines between threads in vain, and looks
// after the calls every 50 µs.
//
// While such a call runs, the garbage collector cannot stop its thread. So a call is given at most 64 KiB, which takes some 20 µs: longer
// reads and writes are made as usual.
//
// A pipe must not be read or written like this, nor asked how much is in it. The kernel locks the pipe meanwhile, and waits for another
// process that has locked it: one that reads or writes memory which is not there yet, or that moves bytes into it with splice(2).
// A child could stop the whole bridge. A socket's lock is held by no other process.
package nonblock

// maxSize is how many bytes a system call that the scheduler is not told of may read or write.
const maxSize = 64 << 10
