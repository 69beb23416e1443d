package bridgetest

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	CheckLeaks(m)
}

// CheckLeaks must be able to fail, or every TestMain that uses it proves nothing.
func TestSettleSeesAGoroutine(t *testing.T) {
	before := goroutines()
	release, ended := make(chan struct{}), make(chan struct{})
	go func() { <-release; close(ended) }()
	if left := newStacks(before); !strings.Contains(left, "TestSettleSeesAGoroutine") {
		t.Errorf("a goroutine that runs was not seen; left = %q", left)
	}
	close(release)
	<-ended
	if left := settleGoroutines(before); left != "" {
		t.Errorf("a goroutine that has ended is still seen: %s", left)
	}
}

func TestChildrenAndFDs(t *testing.T) {
	if runtime.GOOS != "linux" {
		if FDs() != -1 || Children() != nil {
			t.Errorf("FDs and Children know more than their documentation says")
		}
		return
	}
	files := FDs()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if FDs() <= files {
		t.Errorf("an open pipe was not counted")
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(Children(), cmd.Process.Pid) {
		t.Errorf("a child was not seen")
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if slices.Contains(Children(), cmd.Process.Pid) {
		t.Errorf("a child that was waited for is still seen")
	}
}
