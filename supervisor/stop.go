package supervisor

import (
	"errors"
	"fmt"
	"time"
)

// StopWaits are the waits of the steps of Process.Stop. Zero means the default
// of 5 s; negative means not to wait, but to go on to the next step at once.
type StopWaits struct {
	// Stdin is how long the child has to end after its stdin was closed.
	Stdin time.Duration
	// Term is how long the group has to end after SIGTERM.
	Term time.Duration
	// Kill is how long the system has to end the group after SIGKILL. There
	// is no step after it, so negative means the default.
	Kill time.Duration
}

func (w StopWaits) withDefaults() StopWaits {
	const usual = 5 * time.Second
	if w.Stdin == 0 {
		w.Stdin = usual
	}
	if w.Term == 0 {
		w.Term = usual
	}
	if w.Kill <= 0 {
		w.Kill = usual
	}
	return w
}

// A stopStep is one row of the stop table.
type stopStep struct {
	name   string
	action func()
	// again is repeated while waiting: it reaches descendants that came to
	// light only during this step, each once. May be nil.
	again func()
	wait  time.Duration
}

// stopTable is what Stop does, in this order, until everything has ended.
func (p *Process) stopTable() []stopStep {
	return []stopStep{
		{"close stdin", func() { _ = p.stdin.Close() }, nil, p.waits.Stdin},
		{"terminate", p.child.terminate, p.child.terminateStrays, p.waits.Term},
		{"kill", p.child.kill, p.child.killStrays, p.waits.Kill},
	}
}

// Stop ends the process: it closes stdin and waits, sends SIGTERM to the group
// and waits, sends SIGKILL to the group and waits. It goes no further than it
// must, but it is over only when the whole group has ended, and on Linux after
// Subreap every descendant that left the group. When it returns nil, all of
// them are gone, the process is reaped, and no goroutine or descriptor is left.
// An error means that something survived SIGKILL.
//
// If the process was the client of a container and has not told how that ended, the
// container is killed last; that takes 10 s at most.
//
// Stop may be called at any time, also after the process has exited, and by
// many: all wait for the same end.
func (p *Process) Stop() error {
	p.stop.Do(func() { p.stopErr = errors.Join(p.runStop(), p.endContainer()) })
	return p.stopErr
}

func (p *Process) runStop() error {
	gone := false
	for _, step := range p.stopTable() {
		step.action()
		if gone = p.awaitGone(step); gone {
			break
		}
	}
	if !p.hasExited() {
		// Not even SIGKILL ends a process that hangs in the kernel. The waiter
		// reaps it when it does end; both may try, reap is done once.
		p.abandoned.Store(true)
		if p.hasExited() {
			p.reap()
		}
		p.stdout.finish()
		p.stderr.finish()
		return fmt.Errorf("stop %s: process %d: %w", p.name, p.child.pid, errSurvived)
	}
	p.stdout.finish()
	p.stderr.finish()
	p.wg.Wait()
	if !gone {
		return fmt.Errorf("stop %s: descendants of process %d: %w", p.name, p.child.pid, errSurvived)
	}
	return nil
}

// awaitGone waits for the process and all that belongs to it to end, as long
// as the step allows, and reports whether they have.
func (p *Process) awaitGone(step stopStep) bool {
	end := time.Now().Add(step.wait)
	if !p.awaitExit(step.wait) {
		return false
	}
	p.reap()
	// Nothing tells when a group becomes empty, so look; rarely more than once.
	for delay := time.Millisecond; ; delay = min(2*delay, maxPoll) {
		if p.child.gone() {
			return true
		}
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		if step.again != nil {
			step.again()
		}
		time.Sleep(min(delay, left))
	}
}

// awaitExit waits for the process alone.
func (p *Process) awaitExit(wait time.Duration) bool {
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return p.hasExited()
	}
}

// maxPoll is short on purpose: between two looks the group's last member might
// end and its id be given away. Ids are handed out in turn, and no system
// comes round in this time.
const maxPoll = 20 * time.Millisecond

func (p *Process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *Process) reap() { p.reapOnce.Do(p.child.reap) }
