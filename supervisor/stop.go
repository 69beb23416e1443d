package supervisor

import (
	"errors"
	"fmt"
	"time"
)

// StopWaits says how long Process.Stop waits after each of its steps before it takes the next. Zero means the default
// of 5 s. Negative means to go on to the next step at once; for Kill, the last step, it means the default.
type StopWaits struct {
	// Stdin is how long the child has to end after its stdin was closed.
	Stdin time.Duration
	// Term is how long the group has to end after SIGTERM.
	Term time.Duration
	// Kill is how long the system has to end the group after SIGKILL.
	Kill time.Duration
}

// withDefaults returns the waits with defaults in the place of zeros, and of a negative Kill.
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

// A stopStep is one step of Process.Stop.
type stopStep struct {
	name     string        // what Spec.OnStop is told
	action   func()        // takes the step: asks the child to end, or ends it
	onStrays func()        // called again and again during the wait, for strays that were not there before; nil: nothing to do
	wait     time.Duration // how long the end is waited for before the next step
}

// stopSteps returns the steps of Stop, which it takes in this order until everything has ended.
func (p *Process) stopSteps() []stopStep {
	return []stopStep{
		{"close stdin", p.closeStdin, nil, p.stopWaits.Stdin},
		{"terminate", p.child.terminate, p.child.terminateStrays, p.stopWaits.Term},
		{"kill", p.child.kill, p.child.killStrays, p.stopWaits.Kill},
	}
}

// closeStdin closes stdin, and waits a moment for that. Closing takes as long as the child holds the lock of the pipe, as in splice(2):
// perhaps until it is killed.
func (p *Process) closeStdin() {
	closed := make(chan struct{})
	p.wg.Go(func() { defer close(closed); _ = p.stdin.Close() })
	select {
	case <-closed:
	case <-time.After(100 * time.Millisecond):
	}
}

// Stop ends the process: it closes stdin and waits, sends SIGTERM to the group and waits, sends SIGKILL to the group and waits. It
// skips the remaining steps once the whole group has ended, and on Linux after Subreap every descendant that left the group. When
// Stop returns nil, all of them are gone, the process is reaped, and no goroutine or file descriptor is left. An error means that
// a process has survived SIGKILL, or that the container of the process may still run.
//
// If the process was the client of a container and has not said how the container ended, Stop kills the container last. This takes
// 10 s at most.
//
// Stop may be called at any time, also after the process has exited, and any number of times. All calls return when the process
// has ended, with the same error.
func (p *Process) Stop() error {
	p.stopOnce.Do(func() { p.stopErr = errors.Join(p.runStop(), p.endContainer()) })
	return p.stopErr
}

// Kill ends the process and its descendants at once: it takes the same steps as Stop, but does not wait before SIGKILL.
// It returns what Stop would. If Stop was called before, Kill only waits for that and returns the error of Stop.
func (p *Process) Kill() error {
	p.stopOnce.Do(func() {
		p.stopWaits.Stdin, p.stopWaits.Term = time.Nanosecond, time.Nanosecond
		p.stopErr = errors.Join(p.runStop(), p.endContainer())
	})
	return p.stopErr
}

// runStop takes the steps of Stop until the process and its descendants have ended, reaps the process, and waits for
// the goroutines. The error says that something has survived SIGKILL.
func (p *Process) runStop() error {
	gone := false
	p.stopAsked.Store(true)
	for _, step := range p.stopSteps() {
		if p.onStop != nil && !p.hasExited() {
			p.onStop(step.name)
		}
		step.action()
		if gone = p.awaitGone(step); gone {
			break
		}
	}
	if !p.hasExited() {
		// SIGKILL does not end a process that hangs in the kernel. The waiter goroutine
		// reaps it when it ends. It may end just now, so reap may be called here as well;
		// only the first call has an effect.
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

// awaitGone waits for step.wait at most until the process and all that belongs to it have ended, and reports whether
// they have. It reaps the process if that has exited.
func (p *Process) awaitGone(step stopStep) bool {
	end := time.Now().Add(step.wait)
	if !p.exitsWithin(step.wait) {
		return false
	}
	p.reap()
	// The system does not tell when a group becomes empty, so poll; once is mostly enough.
	for delay := time.Millisecond; ; delay = min(2*delay, maxPollInterval) {
		if p.child.isGone() {
			return true
		}
		left := time.Until(end)
		if left <= 0 {
			return false
		}
		if step.onStrays != nil {
			step.onStrays()
		}
		time.Sleep(min(delay, left))
	}
}

// exitsWithin waits for wait at most until the process has exited, whatever its descendants do, and reports whether it has.
func (p *Process) exitsWithin(wait time.Duration) bool {
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return p.hasExited()
	}
}

// maxPollInterval is the longest pause between two looks whether a group is empty. It is short because the last member
// may end after a look: then the next signal goes to whoever has got the group's id. Systems hand out ids in turn, and
// none comes round in this time.
const maxPollInterval = 20 * time.Millisecond

// hasExited reports whether the process has exited, reaped or not.
func (p *Process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// reap reaps the process, which must have exited. Only the first call does anything.
func (p *Process) reap() { p.reapOnce.Do(p.child.reap) }
