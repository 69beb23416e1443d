package main

// ballastSize is the size of newBallast's memory in bytes: so much more garbage may wait before Go collects it.
const ballastSize = 8 << 20

// newBallast returns memory that the garbage collector counts as used while it is kept alive. It is
// never touched, so that the system gives none for it.
//
// Go collects when there is as much garbage as memory in use, at 4 MiB at the earliest. A bridge
// uses about one, so that it would collect after every 400 calls, at 2 ms of processor time: a sixth
// of what a call costs. GOGC=200 would save as much, but would also take half as much memory again
// where there are many sessions or large messages.
func newBallast() []byte { return make([]byte, ballastSize) }
