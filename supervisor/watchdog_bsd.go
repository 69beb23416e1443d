//go:build unix && !linux

package supervisor

// killMarked does nothing: on these systems a process cannot read the environment of another one.
func (g guardedSet) killMarked() {}
