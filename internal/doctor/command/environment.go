package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// addsVariables reports whether the full environment has variables that the server's has not.
func (d *diagnosis) addsVariables() bool { return len(added(d.options.FullEnv, d.spec.Env)) > 0 }

// added returns the variables of env whose names are not in less.
func added(env, less []string) []string {
	has := map[string]bool{}
	for _, v := range less {
		name, _, _ := strings.Cut(v, "=")
		has[name] = true
	}
	var more []string
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); name != "" && !has[name] {
			more = append(more, v)
		}
	}
	return more
}

// missingVariable is C12 of a server that fails: does it work with the full environment?
func (d *diagnosis) missingVariable(ctx context.Context) {
	if !d.addsVariables() {
		return
	}
	r := d.withEnvironment(ctx, d.options.FullEnv, d.firstWait())
	if r.outcome != answered {
		return
	}
	seen := "the server fails with the variables that it is given, and answers with the whole environment"
	names := d.needed(ctx, d.spec.Env, added(d.options.FullEnv, d.spec.Env), patience(r.took))
	d.needs(doctor.Error, "the server needs a variable that it is not given", seen, names)
}

// safeEnvironment is C12 of a server that works: does it work with what clients pass to servers?
func (d *diagnosis) safeEnvironment(ctx context.Context, wait time.Duration) []doctor.Finding {
	more := added(d.spec.Env, d.options.SafeEnv)
	if d.options.SafeEnv == nil || len(more) == 0 {
		return nil
	}
	if r := d.withEnvironment(ctx, d.options.SafeEnv, wait); r.outcome == answered || ctx.Err() != nil || d.timeLeft() <= 0 {
		return nil
	}
	return []doctor.Finding{{Code: "C12"}} // tryTwins looks for the variable once this is certain
}

// needsMore tells which variable safeEnvironment has missed.
func (d *diagnosis) needsMore(ctx context.Context, start time.Duration) {
	if r := d.withEnvironment(ctx, d.spec.Env, d.firstWait()); r.outcome != answered {
		return // it cannot be started again at all, so that the variables need not be the cause
	}
	names := d.needed(ctx, d.options.SafeEnv, added(d.spec.Env, d.options.SafeEnv), patience(start))
	d.needs(doctor.Warning, "the server needs a variable that clients do not pass on",
		"the server answers with the environment of this shell, and fails with the few variables that clients pass on (HOME, PATH and the like)", names)
}

// patience is how long a separate check may take that should be as fast as another one.
func patience(took time.Duration) time.Duration { return 2*took + 1500*time.Millisecond }

// withEnvironment asks a process with another environment for its first answer.
func (d *diagnosis) withEnvironment(ctx context.Context, env []string, wait time.Duration) reply {
	p, err := d.start(ctx, env)
	if err != nil {
		return reply{outcome: exited}
	}
	defer d.stop(p)
	return p.call(ctx, firstID, "initialize", initializeParams(era.NewestLegacy), max(0, min(wait, d.timeLeft())))
}

// needed finds the variables without which the server fails: it fails with env, and works
// with env and more. It returns those it has found when there is no more time.
func (d *diagnosis) needed(ctx context.Context, env, more []string, wait time.Duration) (names []string) {
	env = slices.Clip(env)
	works := func(vars []string) bool {
		return d.withEnvironment(ctx, append(env, vars...), wait).outcome == answered
	}
	const most = 3
	for range most {
		// It fails with the first low of more, and works with the first high.
		low, high := 0, len(more)
		for high-low > 1 {
			if d.timeLeft() <= wait || ctx.Err() != nil {
				return names
			}
			if middle := (low + high) / 2; works(more[:middle]) {
				high = middle
			} else {
				low = middle
			}
		}
		if high == 0 {
			return names
		}
		last := more[high-1]
		name, _, _ := strings.Cut(last, "=")
		names = append(names, name)
		env, more = append(env, last), more[:high-1]
		if works(nil) {
			return names
		}
	}
	return names
}

// needs adds the finding of C12.
func (d *diagnosis) needs(severity doctor.Severity, title, seen string, names []string) {
	do := "There was no time to find out which; --slow takes it. Or pass all on: --pass-env all."
	if len(names) > 0 {
		seen += fmt.Sprintf("; what it needs: %s", strings.Join(names, ", "))
		do = "Pass it on: --env " + strings.Join(names, " --env ") + ". In a client's configuration it stands in \"env\", with its value."
	}
	d.add("C12", severity, title, seen,
		"Desktop clients, the SDKs' clients and servers of a configuration file pass on a few variables only. The server works in this terminal and fails there.", do)
}
