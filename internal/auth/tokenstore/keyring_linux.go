package tokenstore

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
)

// sessionReachable returns an error where there is no session bus, and so no keyring. The
// library would start a bus of its own there, with nobody on it, and leave it running.
func sessionReachable() error {
	if address := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" && address != "autolaunch:" {
		return nil
	}
	dir := filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	for _, name := range []string{"bus", "dbus-session"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return nil
		}
	}
	return errors.New("there is no session bus, as in a container or a session without a desktop")
}
