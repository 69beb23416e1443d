package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/supervisor/internal/watchdogwait"
)

// watchdog is our end of the pipe to the watchdog process of this process, if there is one.
var watchdog watchdogPipe

// A watchdogPipe tells the watchdog which process groups and containers it is to kill when we end. Each change is a
// line (watchdogwait.ReadLines). At the end of the pipe the watchdog kills what is left.
type watchdogPipe struct {
	mu      sync.Mutex   // guards w; held while the watchdog is started
	w       *os.File     // the pipe; nil: there is no watchdog, or it is given up
	lastKey atomic.Int64 // the key of the container that was added last; the first has 1
}

// beginStart tells the watchdog of the marker of a child that is about to be started; "": it has none. It waits for a
// watchdog that is only being started. add or endStart follows.
func (d *watchdogPipe) beginStart(marker string) { d.writeLine("?" + marker + "\n") }

// endStart tells the watchdog that the child with this marker could not be started.
func (d *watchdogPipe) endStart(marker string) { d.writeLine("!" + marker + "\n") }

// add tells the watchdog of a process group, with the marker of its processes; "": they have none. The start that
// beginStart has told of is over.
func (d *watchdogPipe) add(pgid int, marker string) {
	d.writeLine(fmt.Sprintf("+%d %s\n", pgid, marker))
}

// remove has the watchdog forget a process group: it has ended.
func (d *watchdogPipe) remove(pgid int) { d.writeLine(fmt.Sprintf("-%d\n", pgid)) }

// addContainer tells the watchdog of a container, and returns the key by which the watchdog knows it.
func (d *watchdogPipe) addContainer(c *container) int {
	key := int(d.lastKey.Add(1))
	if text, err := json.Marshal(c); err == nil { // a container can always be marshalled
		d.writeLine(fmt.Sprintf("[%d %s\n", key, text))
	}
	return key
}

// removeContainer has the watchdog forget the container with this key: it has ended, it was never started, or it could
// not be ended.
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
type guardedSet struct{ watchdogwait.Set }

// endContainers ends the containers that are in the set, all at once, and returns when that is done. Their clients
// must have ended.
func (g guardedSet) endContainers() {
	var wg sync.WaitGroup
	for _, text := range g.Containers {
		wg.Go(func() {
			var c container
			if json.Unmarshal(text, &c) != nil {
				return
			}
			_, _ = c.end() // nobody is left to tell of an error
			c.removeFile()
		})
	}
	wg.Wait()
}
