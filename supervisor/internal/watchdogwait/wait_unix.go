//go:build unix

package watchdogwait

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/startpages"
)

func init() {
	if os.Getenv(startpages.WatchdogVar) == "" {
		return
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	release := time.AfterFunc(startpages.StartTime, startpages.Release)
	s := ReadLines(os.Stdin)
	release.Stop()
	if len(s.Groups) == 0 && len(s.Starting) == 0 && len(s.Containers) == 0 {
		os.Exit(0)
	}
	// The id of a group cannot belong to other processes yet: groups that ended with the bridge ended a moment ago.
	for pgid := range s.Groups {
		_ = syscall.Kill(-pgid, syscall.SIGKILL)
	}
	left = &s
}
