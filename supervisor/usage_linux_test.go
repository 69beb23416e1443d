package supervisor

import (
	"os"
	"testing"
)

// What a process uses is told, with that of its descendants; nothing is told of one that is not there.
func TestUsage(t *testing.T) {
	own, ok := UsageOf(os.Getpid())
	if !ok || own.Resident < 1<<20 {
		t.Fatalf("of ourselves: %+v, %v", own, ok)
	}
	p := mustStart(t, sh("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done; read line"))
	readLine(t, p.Stdout())
	alone, ok := UsageOf(p.PID())
	if !ok || alone.Resident <= 0 || alone.CPU <= 0 {
		t.Errorf("of a shell: %+v, %v", alone, ok)
	}
	all, _ := UsageOf(os.Getpid(), p.PID()) // it is our child, too, whichever thread has started it, and counts once
	if all.Resident < own.Resident/2+alone.Resident || all.CPU < own.CPU+alone.CPU {
		t.Errorf("of all: %+v; of ourselves %+v, of the shell %+v", all, own, alone)
	}
	mustStop(t, p)
	if u, ok := UsageOf(p.PID()); ok {
		t.Errorf("of a process that is gone: %+v", u)
	}
}
