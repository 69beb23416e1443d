package listen

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier tells the service manager how the bridge is: sd_notify(3). nil and
// the zero value do nothing, as does one that was made where there is no
// service manager. It may be used by many goroutines.
type Notifier struct {
	socket   string
	watchdog time.Duration
}

// NewNotifier makes a Notifier from the environment (NOTIFY_SOCKET,
// WATCHDOG_USEC, WATCHDOG_PID), and takes these variables out of it, so that
// no child speaks in our name: make it once, before the first child. The error
// is about the watchdog's variables; the Notifier works without them.
func NewNotifier() (*Notifier, error) {
	n := &Notifier{socket: os.Getenv("NOTIFY_SOCKET")}
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return n, err
	}
	var err error
	n.watchdog, err = daemon.SdWatchdogEnabled(true)
	return n, err
}

// Ready says that the bridge serves, at the start and after Reloading. status
// is for people: one line.
func (n *Notifier) Ready(status string) error {
	return n.send(daemon.SdNotifyReady + statusLine(status))
}

// Reloading says that the configuration is being read anew. Ready must follow.
func (n *Notifier) Reloading() error {
	return n.send(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// Stopping says that the bridge is on its way out.
func (n *Notifier) Stopping(status string) error {
	return n.send(daemon.SdNotifyStopping + statusLine(status))
}

// Status says what there is to say, in one line.
func (n *Notifier) Status(text string) error { return n.send(statusLine(text)) }

func statusLine(text string) string {
	if text == "" {
		return ""
	}
	return "\nSTATUS=" + strings.NewReplacer("\n", " ", "\r", " ").Replace(text)
}

// Watch tells the watchdog, if there is one, twice in its time that the bridge
// is alive, as long as alive says so; the service manager restarts a bridge
// that falls silent. nil counts as alive. failed, if not nil, is called with
// what went wrong. stop ends it, waits for it, and may be called more than
// once.
func (n *Notifier) Watch(alive func() bool, failed func(error)) (stop func()) {
	if n == nil || n.socket == "" || n.watchdog <= 0 {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(max(n.watchdog/2, time.Millisecond))
		defer tick.Stop()
		for {
			if alive == nil || alive() {
				if err := n.send(daemon.SdNotifyWatchdog); err != nil && failed != nil {
					failed(err)
				}
			}
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		wg.Wait()
	})
}

// sendTimeout is how long the service manager may leave its socket full.
const sendTimeout = 5 * time.Second

// send is daemon.SdNotify for a socket that is not in the environment any more.
func (n *Notifier) send(state string) error {
	state = strings.Trim(state, "\n")
	if n == nil || n.socket == "" || state == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("telling the service manager: %w", err)
	}
	return nil
}
