package listen

import (
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
)

// systemdListeners returns the sockets that systemd has opened for this process:
// sd_listen_fds(3). The socket unit sets their mode and owner. With an error it also
// returns the sockets that are good, for the caller to close.
func systemdListeners() (Listeners, error) {
	var ls Listeners
	var first error
	for i, f := range activation.Files(true) {
		l, err := listenerFromFile(f)
		_ = f.Close() // the listener has its own file descriptor
		if err != nil && first == nil {
			first = fmt.Errorf("socket %d that systemd has passed, named %q: %w", i+1, f.Name(), err)
		}
		if err == nil {
			ls = append(ls, &Listener{Listener: l, systemdName: f.Name()})
		}
	}
	return ls, first
}

// listenerFromFile returns the listener of a socket that systemd has passed. An *OptionError says that it is no socket to accept
// connections on.
func listenerFromFile(f *os.File) (net.Listener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, optionf("this is no stream socket; the socket unit needs ListenStream= (%v)", err)
	}
	if !isListening(l) {
		_ = l.Close()
		return nil, optionf("this is a connection and not a socket to listen on; the socket unit needs Accept=no")
	}
	return l, nil
}
