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

// Notifier tells the service manager the state of the bridge: sd_notify(3). nil, the zero
// value and a Notifier without a service manager do nothing. It may be used by many
// goroutines.
type Notifier struct {
	socket           string        // the path of the service manager's socket; "": there is no service manager
	watchdogInterval time.Duration // how often the service manager's watchdog must be notified; 0: it has none
}

// NewNotifier makes a Notifier from the environment (NOTIFY_SOCKET,
// WATCHDOG_USEC, WATCHDOG_PID). It removes these variables from the environment, so that no
// child notifies in our name. Call it once, before the first child starts. An error is
// about the variables of the watchdog; the Notifier then works without the watchdog.
func NewNotifier() (*Notifier, error) {
	n := &Notifier{socket: os.Getenv("NOTIFY_SOCKET")}
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return n, err
	}
	var err error
	n.watchdogInterval, err = daemon.SdWatchdogEnabled(true)
	return n, err
}

// Ready tells the service manager that the bridge serves. Call it after the start and after Reloading. status is one line for
// people; "": none.
func (n *Notifier) Ready(status string) error {
	return n.send(daemon.SdNotifyReady + statusLine(status))
}

// Reloading tells the service manager that the configuration is being read again. Ready must follow.
func (n *Notifier) Reloading() error {
	return n.send(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// Stopping tells the service manager that the bridge is shutting down. status is one line for people; "": none.
func (n *Notifier) Stopping(status string) error {
	return n.send(daemon.SdNotifyStopping + statusLine(status))
}

// statusLine returns the line of a notification that has a status for people; "": the status is empty.
func statusLine(text string) string {
	if text == "" {
		return ""
	}
	return "\nSTATUS=" + strings.NewReplacer("\n", " ", "\r", " ").Replace(text)
}

// StartWatchdog notifies the watchdog of the service manager, if there is one, twice in each of its
// intervals, each time if alive returns true. The service manager restarts a bridge that no
// longer notifies. A nil alive counts as true. failed, if not nil, is called with errors.
// stop ends the notifications, waits for the goroutine, and may be called more than once.
func (n *Notifier) StartWatchdog(alive func() bool, failed func(error)) (stop func()) {
	if n == nil || n.socket == "" || n.watchdogInterval <= 0 {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(max(n.watchdogInterval/2, time.Millisecond))
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

// sendTimeout is how long a notification may wait for room in the service manager's socket.
const sendTimeout = 5 * time.Second

// send sends the service manager a notification, if there is one (daemon.SdNotify would need the environment variable that NewNotifier
// has removed).
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
