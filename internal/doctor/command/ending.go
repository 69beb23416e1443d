package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// leftBehindTimeout is how long processes that the server has started may go on after the server has ended, before they count
// as left behind.
const leftBehindTimeout = 500 * time.Millisecond

// checkEnding ends p as clients end a server, by the end of its input, and adds C11 if it does not end, or leaves processes. It
// ends those, too. It returns how long p took to end; 0: it did not end.
func (d *diagnosis) checkEnding(p *serverProcess) (took time.Duration) {
	pid := p.process.PID()
	before := descendantsOf(pid)
	began := time.Now()
	p.closeStdin()
	timer := time.NewTimer(d.options.EndTimeout)
	defer timer.Stop()
	select {
	case <-p.process.Done():
		took = time.Since(began)
		d.checkLeftBehind(p, before)
	case <-timer.C:
		d.addIgnoresEnd(p)
	}
	return took
}

// noteEnding adds to the fact "timings" how long a process took to end, as checkEnding has returned it.
func (d *diagnosis) noteEnding(took time.Duration) {
	if took > 0 {
		d.noteTiming("end after %v", took)
	}
}

// addIgnoresEnd ends p, which runs on after the end of its input, and adds C11.
func (d *diagnosis) addIgnoresEnd(p *serverProcess) {
	wait := d.options.EndTimeout
	d.stopProcess(p)
	seen := fmt.Sprintf("still running %v after its stdin was closed", wait)
	is := doctor.IgnoresEndOfInput
	err := p.process.ExitError()
	if err != nil && strings.Contains(err.Error(), "SIGKILL") {
		seen += fmt.Sprintf(", and %v after SIGTERM; it took SIGKILL", wait)
		is = doctor.MustBeKilled
	}
	d.report.AddFinding(is.WithEvidence(seen))
}

// checkLeftBehind adds C11 for processes and containers that are left of p, which has ended, and ends them. before are the
// processes that descended from p when it still ran.
func (d *diagnosis) checkLeftBehind(p *serverProcess, before []systemProcess) {
	pid := p.process.PID()
	left := stillRunning(before, pid)
	for until := time.Now().Add(leftBehindTimeout); len(left) > 0 && time.Now().Before(until); left = stillRunning(before, pid) {
		time.Sleep(20 * time.Millisecond)
	}
	d.stopProcess(p)
	p.mu.Lock()
	containers := p.killedContainers
	p.mu.Unlock()
	const leavesProcesses, leavesContainer = "the server leaves processes behind", "the server leaves a container behind"
	if len(left) > 0 && !d.hasFindingTitled(leavesProcesses) { // another process may have done the same
		var names []string
		for _, l := range left {
			names = append(names, fmt.Sprintf("%s (pid %d)", l.name, l.pid))
		}
		d.addFinding("C11", doctor.Warning, leavesProcesses, "still running after the server has ended: "+strings.Join(names, ", "),
			"Each time a client starts the server, these stay, with their memory, ports and locks. The bridge ends them.",
			"The server should end what it has started, and wait for that, before it exits. A wrapper script should run the server with \"exec\".")
	}
	if len(containers) > 0 && !d.hasFindingTitled(leavesContainer) {
		d.addFinding("C11", doctor.Warning, leavesContainer, "container "+strings.Join(containers, ", "),
			"Each time a client starts the server, a container stays. The bridge kills it.",
			"Run it with \"docker run -i --rm --init\", so that it sees the end of its input and is removed.")
	}
}
