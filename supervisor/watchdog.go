package supervisor

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// watchdogVar tells our executable that it is the watchdog.
const watchdogVar = "MCP_BRIDGE_WATCHDOG"

// watchdog is our end of the one watchdog process, if there is one.
var watchdog watchdogPipe

// A watchdogPipe tells the watchdog which process groups there are, one line
// each: "+PGID MARKER" and "-PGID". Its end is the order to kill what is left.
type watchdogPipe struct {
	mu sync.Mutex
	w  *os.File // nil: no watchdog
}

func (d *watchdogPipe) add(pgid int, marker string) { d.tell(fmt.Sprintf("+%d %s\n", pgid, marker)) }
func (d *watchdogPipe) remove(pgid int)             { d.tell(fmt.Sprintf("-%d\n", pgid)) }

// tell writes one line. A watchdog that is gone, or so stuck that its
// pipe is full, is given up: it must not hold up the children it is there for.
func (d *watchdogPipe) tell(line string) {
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

// A guarded is a set of process groups and their markers, in the watchdog.
type guarded map[int]string

// follow reads what the bridge tells until the bridge is gone.
func (g guarded) follow(r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			continue
		}
		id, marker, _ := strings.Cut(line[1:], " ")
		pgid, err := strconv.Atoi(id)
		switch {
		case err != nil || pgid <= 1: // kill(-1) would reach everyone
		case line[0] == '+':
			g[pgid] = marker
		case line[0] == '-':
			delete(g, pgid)
		}
	}
}
