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
// ends those, too.
func (d *diagnosis) checkEnding(p *serverProcess) {
	pid := p.process.PID()
	before := descendantsOf(pid)
	began := time.Now()
	p.closeStdin()
	timer := time.NewTimer(d.options.EndTimeout)
	defer timer.Stop()
	select {
	case <-p.process.Done():
		d.noteTiming("end after %v", time.Since(began))
		d.checkLeftBehind(p, before)
	case <-timer.C:
		d.addIgnoresEnd(p)
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
	if len(left) > 0 {
		var names []string
		for _, l := range left {
			names = append(names, fmt.Sprintf("%s (pid %d)", l.name, l.pid))
		}
		d.addFinding("C11", doctor.Warning, "the server leaves processes behind", "still running after the server has ended: "+strings.Join(names, ", "),
			"Each time a client starts the server, these stay, with their memory, ports and locks. The bridge ends them.",
			"The server should end what it has started, and wait for that, before it exits. A wrapper script should run the server with \"exec\".")
	}
	if len(containers) > 0 {
		d.addFinding("C11", doctor.Warning, "the server leaves a container behind", "container "+strings.Join(containers, ", "),
			"Each time a client starts the server, a container stays. The bridge kills it.",
			"Run it with \"docker run -i --rm --init\", so that it sees the end of its input and is removed.")
	}
}
