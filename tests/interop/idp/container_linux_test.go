package idp

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/resource"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/podman"
	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// contain has the bridges of the home run in containers, one at a time, in which there is nothing but the program. They
// share the network of this machine, where the servers are, and the folder of credentials.
func (h *home) contain() {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "mcp-bridge")
	build := exec.Command("go", "build", "-o", file, "./cmd/mcp-bridge")
	build.Dir, build.Env = peers.Root(), append(os.Environ(), "CGO_ENABLED=0") // it needs no library
	if out, err := build.CombinedOutput(); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	engine := podman.New(h.t, file, "version")
	const name = "bridge"
	flags := []string{"--name", name, "--network", "host", "--volume", h.traces + ":" + h.traces}
	for _, v := range h.env {
		if !strings.HasPrefix(v, "SSH_") { // it is the container that has no browser
			flags = append(flags, "--env", v)
		}
	}
	h.command = func(beside bool, args ...string) []string {
		if beside {
			return slices.Concat(engine.Argv, []string{"exec", "-i", name, "/mcp-bridge"}, args)
		}
		return slices.Concat(engine.Argv, engine.RunArgs(flags...), args)
	}
}

// TestContainerDevice: in a container, login shows a code, which a person types in elsewhere; connect in the next container
// uses the sign-in.
func TestContainerDevice(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{})
	h := newHome(t, p, p.Serve(t, ServerOptions{DPoP: resource.DPoPOff}), nil)
	h.contain()
	h.loginDevice()
	h.begin().mustCall("read")
	p.Want(map[string]int{"grant urn:ietf:params:oauth:grant-type:device_code": 1, "authorized": 1, "error invalid_grant": 0})
}

// TestContainerByHand: connect in a container shows the address, which a person opens elsewhere; where the browser ended is
// brought back by a second program in that container.
func TestContainerByHand(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{Device: new(bool)})
	h := newHome(t, p, p.Serve(t, ServerOptions{DPoP: resource.DPoPOff}), nil)
	h.contain()
	i := h.start()
	var person sync.WaitGroup
	person.Go(func() {
		if err := h.deliver(i.err); err != nil {
			t.Error(err)
		}
	})
	err := i.connect()
	person.Wait()
	if err != nil {
		t.Fatalf("%v\n%s", err, i.tail())
	}
	i.mustCall("read")
	p.Want(map[string]int{"grant authorization_code": 1, "authorized": 1, "error invalid_grant": 0})
}
