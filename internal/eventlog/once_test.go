package eventlog

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// What is wrong with a server is told once, whoever notices it.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(page)
		log := Once(hclog.New(&hclog.LoggerOptions{Output: p, Level: hclog.Info, DisableTime: true}))
		far, near := log.With("server", "far"), log.With("server", "near")
		down := errors.New("cannot reach http://a: connection refused; is the server running?")
		far.With("reason", "unreachable", "error", down).Warn("request failed", "method", "initialize")
		far.Warn("cannot connect", "reason", "unreachable", "error", "cannot reach http://a: connection refused; it is tried again")
		far.Warn("request not served", "error", errors.New("no server: "+down.Error()))
		far.Warn("cannot connect", "reason", "authorization_required", "status", 401, "error", "http://a answered 401 Unauthorized")
		far.With("reason", "authorization_required", "status", 401).Warn("request failed")
		for _, failed := range []string{"no client", "no client", "no scope"} { // the words tell two of them apart
			far.Warn("no credential", "reason", "authorization_failed", "status", 401, "error", failed)
			far.Warn("request failed", "reason", "authorization_failed", "status", 401, "error", failed)
			far.Warn("cannot connect", "reason", "authorization_failed", "status", 401)
		}
		near.Warn("cannot connect", "error", down)
		log.Warn("cannot connect", "server", "near", "error", down)
		far.Warn("something else")
		far.Warn("something else")
		far.Log(hclog.Warn, "request failed", "error", down)
		p.wants(t, `\[WARN\]  request failed: .*server=far method=initialize`, `\[WARN\]  cannot connect: server=far reason=authorization_required status=401 error=.*`,
			`\[WARN\]  no credential: .* error="no client"`, `\[WARN\]  no credential: .* error="no scope"`,
			`\[WARN\]  cannot connect: server=near .*`, `\[WARN\]  something else: server=far`, `\[WARN\]  something else: server=far`)
		time.Sleep(time.Minute)
		far.Warn("cannot connect", "error", down)
		far.Warn("cannot connect", "error", down)
		p.wants(t, `\[WARN\]  cannot connect: server=far error="cannot reach .*" times=3`)
		time.Sleep(time.Minute)
		far.With("error", down).Warn("request failed")
		p.wants(t, `\[WARN\]  request failed: .* server=far times=1`)
	})
}
