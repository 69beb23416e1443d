// Package watchdogwait is the first part of the watchdog, a second process of the bridge's executable: it waits until the
// bridge has ended, and kills the process groups that are left.
//
// It does so while it is initialised. Of the packages whose own imports are initialised, Go initialises the first one by its
// import path ("Program initialization" in the specification of Go). This package imports few packages that come early, so that nearly
// all others come after the wait, and not at all if nothing is left to kill then. To initialise them is most of
// the time and the memory that a start needs, and the watchdog starts while the first server does. An import of strings, strconv or
// bufio would already let a hundred packages come first.
package watchdogwait

import (
	"bytes"
	"io"
)

// A Set is what the watchdog is to kill: process groups, descendants and containers.
type Set struct {
	Groups     map[int]string  // the marker of each process group, by the group's id
	Starting   map[string]bool // the markers of children that were being started, so that their groups are not known
	Containers map[int][]byte  // what the bridge has written of each container, which is JSON, by the container's key
}

// left is what the bridge has left behind; nil: this process is not the watchdog.
var left *Set

// Left returns what the bridge has left behind. Its process groups have been killed, its containers have not. ok is false if
// this process is not the watchdog.
func Left() (s Set, ok bool) {
	if left == nil {
		return Set{}, false
	}
	return *left, true
}

// ReadLines reads the lines that the bridge writes, until the bridge has ended, and returns what it leaves behind. "+PGID MARKER"
// and "-PGID" add and remove a process group, "[KEY JSON" and "]KEY" a container, "?MARKER" and "!MARKER" the start of a child, which
// "+PGID MARKER" removes, too.
func ReadLines(r io.Reader) Set {
	s := Set{Groups: map[int]string{}, Starting: map[string]bool{}, Containers: map[int][]byte{}}
	var unread []byte // the beginning of a line
	chunk := make([]byte, 4<<10)
	for {
		n, err := r.Read(chunk)
		unread = append(unread, chunk[:n]...)
		for {
			line, rest, found := bytes.Cut(unread, []byte("\n"))
			if !found {
				break
			}
			s.applyLine(line)
			unread = rest
		}
		if err != nil {
			s.applyLine(unread)
			return s
		}
	}
}

// applyLine makes the change that one line says. A line that it does not understand does nothing.
func (s Set) applyLine(line []byte) {
	if len(line) == 0 {
		return
	}
	switch marker := string(line[1:]); {
	case line[0] == '?' && marker != "":
		s.Starting[marker] = true
		return
	case line[0] == '!':
		delete(s.Starting, marker)
		return
	}
	number, rest, _ := bytes.Cut(line[1:], []byte(" "))
	id, ok := parseID(number)
	if !ok {
		return
	}
	switch line[0] {
	case '+':
		if id > 1 { // kill(-1) would reach everyone
			s.Groups[id] = string(rest)
			delete(s.Starting, string(rest))
		}
	case '-':
		delete(s.Groups, id)
	case '[':
		s.Containers[id] = bytes.Clone(rest)
	case ']':
		delete(s.Containers, id)
	}
}

// parseID returns the number that digits stand for; ok is false unless they are one to nine digits, without a sign.
// (strconv would be an import too many, see the package comment.)
func parseID(digits []byte) (id int, ok bool) {
	const maxDigits = 9 // which an int holds
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		id = 10*id + int(c-'0')
	}
	return id, len(digits) > 0 && len(digits) <= maxDigits
}
