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

// watchdogVar tells our executable that it is the watchdog.
const watchdogVar = "MCP_BRIDGE_WATCHDOG"

// watchdog is our end of the one watchdog process, if there is one.
var watchdog watchdogPipe

// A watchdogPipe tells the watchdog which process groups there are, one line
// each: "+PGID MARKER" and "-PGID"; and which containers: "[KEY JSON" and "]KEY".
// Its end is the order to kill what is left.
type watchdogPipe struct {
	mu   sync.Mutex
	w    *os.File // nil: no watchdog
	keys atomic.Int64
}

func (d *watchdogPipe) add(pgid int, marker string) { d.tell(fmt.Sprintf("+%d %s\n", pgid, marker)) }
func (d *watchdogPipe) remove(pgid int)             { d.tell(fmt.Sprintf("-%d\n", pgid)) }

// addContainer tells of a container and returns its key.
func (d *watchdogPipe) addContainer(c *container) int {
	key := int(d.keys.Add(1))
	if text, err := json.Marshal(c); err == nil { // always
		d.tell(fmt.Sprintf("[%d %s\n", key, text))
	}
	return key
}

func (d *watchdogPipe) removeContainer(key int) { d.tell(fmt.Sprintf("]%d\n", key)) }

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

// A guarded is what the watchdog has in its care.
type guarded struct {
	groups     map[int]string // process groups and their markers
	containers map[int]container
}

func newGuarded() guarded {
	return guarded{groups: map[int]string{}, containers: map[int]container{}}
}

// follow reads what the bridge tells until the bridge is gone.
func (g guarded) follow(r io.Reader) {
	lines := bufio.NewReader(r) // of any length: they hold environments
	for {
		line, err := lines.ReadString('\n')
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			g.note(line)
		}
		if err != nil {
			return
		}
	}
}

func (g guarded) note(line string) {
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

// endContainers ends what is left of the containers. Their clients are dead.
func (g guarded) endContainers() {
	var wg sync.WaitGroup
	for _, c := range g.containers {
		wg.Go(func() {
			_, _ = c.end() // there is nobody to tell
			c.removeFile()
		})
	}
	wg.Wait()
}
