package signin

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/cli/browser"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
)

// browserStartTimeout is how long Open waits for the end of a browser's command: some run as long as the browser does.
const browserStartTimeout = 2 * time.Second

// A browserCommand is a client.Browser: a program with arguments, in which %s stands for the address; nil: the system's
// browser.
type browserCommand []string

// FindBrowser returns what opens a browser for the person at this machine; nil: there is none, and why says so.
// isDisabled: --no-browser was given. lookup reads environment variables, of which $BROWSER counts before all else, as
// where an editor on another machine has set it.
func FindBrowser(isDisabled bool, lookup func(string) (string, bool)) (found client.Browser, why string) {
	get := func(name string) string { v, _ := lookup(name); return v }
	has := func(names ...string) bool {
		for _, name := range names {
			if get(name) != "" {
				return true
			}
		}
		return false
	}
	switch {
	case isDisabled:
		return nil, "--no-browser was given"
	case len(strings.Fields(get("BROWSER"))) > 0:
		return browserCommand(strings.Fields(get("BROWSER"))), ""
	case has("SSH_CONNECTION", "SSH_TTY"):
		return nil, "this is a session over SSH"
	case runtime.GOOS == "windows", runtime.GOOS == "darwin":
		return browserCommand(nil), ""
	case inContainer() || has("KUBERNETES_SERVICE_HOST"):
		return nil, "this is a container"
	case has("WSL_DISTRO_NAME", "WSL_INTEROP", "DISPLAY", "WAYLAND_DISPLAY"):
		return browserCommand(nil), ""
	}
	return nil, "there is no display"
}

// inContainer reports whether Docker or Podman has started us, as far as can be told.
func inContainer() bool {
	for _, name := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(name); err == nil {
			return true
		}
	}
	return false
}

// Open opens an address, which must be http or https. Neither a shell nor our stdout gets anything. It returns when the
// command has ended, or after browserStartTimeout, which is no error. Then a goroutine waits for the end of the
// command.
func (c browserCommand) Open(addr string) error {
	if !strings.HasPrefix(addr, "https://") && !strings.HasPrefix(addr, "http://") {
		return errors.New("the address is not http or https, and is not opened")
	}
	ended := make(chan error, 1)
	go func() { ended <- c.run(addr) }()
	late := time.NewTimer(browserStartTimeout)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return nil
	}
}

// run runs the command with the address, and returns when it has ended. Without %s in it, the address is its last
// argument.
func (c browserCommand) run(addr string) error {
	if c == nil {
		browser.Stdout, browser.Stderr = nil, nil
		if err := browser.OpenURL(addr); err != nil {
			return fmt.Errorf("no browser could be started: %w", err)
		}
		return nil
	}
	args, given := make([]string, 0, len(c)+1), false
	for _, arg := range c {
		given = given || strings.Contains(arg, "%s")
		args = append(args, strings.ReplaceAll(arg, "%s", addr))
	}
	if !given {
		args = append(args, addr)
	}
	if err := exec.Command(args[0], args[1:]...).Run(); err != nil {
		return fmt.Errorf("the command in $BROWSER failed: %w", err)
	}
	return nil
}
