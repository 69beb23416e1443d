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

// browserStartTimeout is how long a browser's command may take before it counts as started: some stay as long as the browser does.
const browserStartTimeout = 2 * time.Second

// A browserCommand opens addresses in a browser. The command is a program with arguments, in which %s is the address; nil: the
// system's browser.
type browserCommand []string

// FindBrowser returns what opens a browser for the person at this machine. nil: there is none, and why says so. $BROWSER
// counts before all else, as where an editor on another machine has set it.
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

// Open opens an address, which is http or https. Nothing reaches a shell, nor our stdout. It returns when the command has
// ended, or browserStartTimeout later. The goroutine that goes on waiting then ends with the command.
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

// run runs the command. It returns when that has ended.
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
