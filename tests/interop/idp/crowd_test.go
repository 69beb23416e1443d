package idp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/resource"
)

// crowdTime says for how long a crowd uses a server whose tokens live for crowdLife: PROVIDER_TIME=60s
// in place of the 15 seconds of CI.
func crowdTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("PROVIDER_TIME")
	if text == "" {
		return 15 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const (
	crowdLife = 5 // seconds
	crowdSize = 10
)

// newCrowd has somebody signed in, and starts bridges.
func newCrowd(t *testing.T) (*Provider, *home, []*instance) {
	t.Helper()
	p := Start(t, Options{Life: crowdLife})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPOff})
	d := NewDesktop(t)
	d.Approve(t, "alice")
	h := newHome(t, p, s, d)
	h.signIn()
	var all []*instance
	var mu sync.Mutex
	var starting sync.WaitGroup
	for range crowdSize {
		starting.Go(func() {
			i := h.start()
			if err := i.connect(); err != nil {
				t.Errorf("%v\n%s", err, i.tail())
			}
			mu.Lock()
			all = append(all, i)
			mu.Unlock()
		})
	}
	starting.Wait()
	return p, h, all
}

// pause is between two calls of one bridge.
const pause = 100 * time.Millisecond

// use calls until the time is over or the bridge was killed, and returns how many calls were answered, and the
// first error.
func (i *instance) use(until <-chan struct{}, killed <-chan struct{}) (calls int, err error) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-until:
			return calls, nil
		case <-killed:
			return calls, nil
		case <-tick.C:
		}
		if err := i.call("read"); err != nil {
			select {
			case <-killed:
				return calls, nil
			default:
			}
			return calls, fmt.Errorf("call %d: %w", calls+1, err)
		}
		calls++
	}
}

// renewals returns when tokens were renewed since a moment, and what went wrong.
func (p *Provider) renewals(since time.Time) (at []time.Time, errors []Grant) {
	for _, g := range p.Grants() {
		switch {
		case g.Error != "":
			errors = append(errors, g)
		case g.Grant == "refresh_token" && g.Time().After(since):
			at = append(at, g.Time())
		}
	}
	return at, errors
}

// TestCrowd: ten bridges of one user use one credential that ends every five seconds. It is renewed once
// each time, no call fails, and nobody signs in again.
func TestCrowd(t *testing.T) {
	t.Parallel()
	p, h, all := newCrowd(t)
	life := crowdTime(t)
	begun, over := time.Now(), make(chan struct{})
	timer := time.AfterFunc(life, func() { close(over) })
	defer timer.Stop()
	var using sync.WaitGroup
	calls := make([]int, len(all))
	for n, i := range all {
		using.Go(func() {
			var err error
			if calls[n], err = i.use(over, nil); err != nil {
				t.Errorf("%v\n%s", err, i.tail())
			}
		})
	}
	using.Wait()
	took := time.Since(begun)
	renewed, wrong := p.renewals(begun)
	t.Logf("in %v: calls %v, %d renewals, %d refusals", took, calls, len(renewed), h.server.Refused())
	if len(wrong) > 0 {
		t.Errorf("the provider refused %+v", wrong)
	}
	// A token is renewed in the last twelfth of its life: of a minute 13 times.
	if most := int(took*12/11/(crowdLife*time.Second)) + 1; len(renewed) == 0 || len(renewed) > most {
		t.Errorf("the token was renewed %d times in %v, want 1 to %d", len(renewed), took, most)
	}
	p.Want(map[string]int{"authorized": 1, "grant authorization_code": 1, "family revoked": 0, "registration 201": 1})
}

// A victim is a place of the crowd: a bridge, and the next one when it is killed.
type victim struct {
	mu     sync.Mutex
	now    *instance
	killed chan struct{} // closed when it is
}

// kill kills the bridge, in whatever it is doing, if it is not dead already. renewing: it held the lock of the
// credential, or another one.
func (v *victim) kill(t *testing.T) (killed, renewing bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-v.killed:
		return false, false
	default:
	}
	close(v.killed)
	process := v.now.cmd.Process
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	for stopped := false; !stopped; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Pid))
		_, rest, _ := bytes.Cut(stat, []byte(") "))
		stopped = err != nil || bytes.HasPrefix(rest, []byte("T"))
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Error(err)
	}
	renewing = regexp.MustCompile(fmt.Sprintf(`(?m)^\d+: FLOCK +\S+ +\S+ +%d `, process.Pid)).Match(locks)
	_ = process.Kill()
	return true, renewing
}

// live uses bridges until the time is over.
func (v *victim) live(over <-chan struct{}) error {
	for {
		if _, err := v.now.use(over, v.killed); err != nil {
			return fmt.Errorf("%w\n%s", err, v.now.tail())
		}
		select {
		case <-v.killed:
		case <-over:
			return nil
		}
		<-v.now.ended
		next := v.now.h.start()
		if err := next.connect(); err != nil {
			return fmt.Errorf("started again: %w\n%s", err, next.tail())
		}
		v.mu.Lock()
		v.now, v.killed = next, make(chan struct{})
		v.mu.Unlock()
	}
}

// TestCrowdKilled: the same, and every second one of the bridges is killed and started again. Nobody signs in
// again, unless one was killed in a renewal, where it may be between the provider's answer and its write.
func TestCrowdKilled(t *testing.T) {
	t.Parallel()
	p, _, all := newCrowd(t)
	over := make(chan struct{})
	timer := time.AfterFunc(crowdTime(t), func() { close(over) })
	defer timer.Stop()
	victims := make([]*victim, len(all))
	var living sync.WaitGroup
	for n, i := range all {
		v := &victim{now: i, killed: make(chan struct{})}
		victims[n] = v
		living.Go(func() {
			if err := v.live(over); err != nil {
				t.Error(err)
			}
		})
	}
	kills, excused := 0, 0
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-tick.C:
			killed, renewing := victims[rand.IntN(len(victims))].kill(t)
			if killed {
				kills++
			}
			if renewing {
				excused++
			}
			continue
		case <-over:
			tick.Stop()
		}
		break
	}
	living.Wait()
	counts := p.Counts()
	renewed, wrong := p.renewals(time.Time{})
	t.Logf("%d kills, %d of them during a renewal; %d renewals, %d sign-ins; refused: %+v", kills, excused, len(renewed), counts["authorized"], wrong)
	if again := counts["authorized"] - 1; again > excused {
		t.Errorf("%d times somebody signed in again; %d times one was killed while it renewed", again, excused)
	}
}
