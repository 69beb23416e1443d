package supervisor

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// watchdogVar is an environment variable that makes our executable the watchdog: StartWatchdog sets it.
const watchdogVar = "MCP_BRIDGE_WATCHDOG"

// watchdog is our end of the pipe to the watchdog process of this process, if there is one.
var watchdog watchdogPipe

// A watchdogPipe tells the watchdog which process groups and containers it is to kill when we end. Each change is a
// line: "+PGID MARKER" and "-PGID" add and remove a process group, "[KEY JSON" and "]KEY" a container. At the end of
// the pipe the watchdog kills what is left.
type watchdogPipe struct {
	mu      sync.Mutex   // guards w
	w       *os.File     // the pipe; nil: there is no watchdog, or it is given up
	lastKey atomic.Int64 // the key of the container that was added last
}

// add tells the watchdog of a process group, with the marker of its processes; "": they have none.
func (d *watchdogPipe) add(pgid int, marker string) {
	d.writeLine(fmt.Sprintf("+%d %s\n", pgid, marker))
}

// remove tells the watchdog that a process group has ended.
func (d *watchdogPipe) remove(pgid int) { d.writeLine(fmt.Sprintf("-%d\n", pgid)) }

// addContainer tells the watchdog of a container, and returns the key by which the watchdog knows it.
func (d *watchdogPipe) addContainer(c *container) int {
	key := int(d.lastKey.Add(1))
	if text, err := json.Marshal(c); err == nil { // a container can always be marshalled
		d.writeLine(fmt.Sprintf("[%d %s\n", key, text))
	}
	return key
}

// removeContainer tells the watchdog that the container with this key has ended.
func (d *watchdogPipe) removeContainer(key int) { d.writeLine(fmt.Sprintf("]%d\n", key)) }

// writeLine writes one line, with its line feed, to the watchdog. A watchdog that has ended, or that does not read so
// that the pipe is full, gets no more lines: it must not delay Start and Stop.
func (d *watchdogPipe) writeLine(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.w == nil {
		return
	}
	_ = d.w.SetWriteDeadline(time.Now().Add(time.Second))
	if _, err := d.w.WriteString(line); err != nil {
		_ = d.w.Close()
		d.w = nil
	}
}

// A guardedSet is what the watchdog kills when the process that it watches has ended.
type guardedSet struct {
	groups     map[int]string    // process groups, by id, and their markers
	containers map[int]container // containers, by the key that watchdogPipe has given them
}

// newGuardedSet returns an empty guardedSet.
func newGuardedSet() guardedSet {
	return guardedSet{groups: map[int]string{}, containers: map[int]container{}}
}

// readLines applies the lines of a watchdogPipe, which it reads from r until the pipe ends: until then the process
// that is watched lives.
func (g guardedSet) readLines(r io.Reader) {
	lines := bufio.NewReader(r) // a Scanner would limit the lines, which hold environments
	for {
		line, err := lines.ReadString('\n')
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			g.applyLine(line)
		}
		if err != nil {
			return
		}
	}
}

// applyLine makes the change that one line of a watchdogPipe says. A line that it does not understand does nothing.
func (g guardedSet) applyLine(line string) {
	number, rest, _ := strings.Cut(line[1:], " ")
	id, err := strconv.Atoi(number)
	if err != nil {
		return
	}
	switch line[0] {
	case '+':
		if id > 1 { // kill(-1) would reach everyone
			g.groups[id] = rest
		}
	case '-':
		delete(g.groups, id)
	case '[':
		var c container
		if json.Unmarshal([]byte(rest), &c) == nil {
			g.containers[id] = c
		}
	case ']':
		delete(g.containers, id)
	}
}

// endContainers ends the containers that are in the set, all at once, and returns when that is done. Their clients
// must have ended.
func (g guardedSet) endContainers() {
	var wg sync.WaitGroup
	for _, c := range g.containers {
		wg.Go(func() {
			_, _ = c.end() // nobody is left to tell of an error
			c.removeFile()
		})
	}
	wg.Wait()
}
