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

// watchdogVar is set in the environment of the watchdog, which is our executable again.
const watchdogVar = "MCP_BRIDGE_WATCHDOG"

// watchdog is our end of the one watchdog process, if there is one.
var watchdog watchdogPipe

// A watchdogPipe tells the watchdog which process groups and containers there are. Each
// change is a line: "+PGID MARKER" and "-PGID" add and remove a process group, "[KEY JSON"
// and "]KEY" a container. At the end of the pipe the watchdog kills what is left.
type watchdogPipe struct {
	mu      sync.Mutex
	w       *os.File     // nil: no watchdog
	lastKey atomic.Int64 // the key of the container that was added last
}

func (d *watchdogPipe) add(pgid int, marker string) {
	d.writeLine(fmt.Sprintf("+%d %s\n", pgid, marker))
}
func (d *watchdogPipe) remove(pgid int) { d.writeLine(fmt.Sprintf("-%d\n", pgid)) }

// addContainer tells of a container and returns its key.
func (d *watchdogPipe) addContainer(c *container) int {
	key := int(d.lastKey.Add(1))
	if text, err := json.Marshal(c); err == nil { // a container can always be marshalled
		d.writeLine(fmt.Sprintf("[%d %s\n", key, text))
	}
	return key
}

func (d *watchdogPipe) removeContainer(key int) { d.writeLine(fmt.Sprintf("]%d\n", key)) }

// writeLine writes one line. A watchdog that has ended, or that does not read so that the pipe
// is full, gets no more lines: it must not delay Start and Stop.
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

// A guardedSet is the set of process groups and containers that the watchdog kills in the end.
type guardedSet struct {
	groups     map[int]string    // process groups and their markers
	containers map[int]container // by key
}

func newGuardedSet() guardedSet {
	return guardedSet{groups: map[int]string{}, containers: map[int]container{}}
}

// readLines reads the lines of the bridge until the bridge has ended.
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

// endContainers ends the containers that are left. Their clients have ended.
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
