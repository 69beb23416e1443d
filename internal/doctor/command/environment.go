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

// fullEnvAddsVariables reports whether Options.FullEnv has variables that the server is not given.
func (d *diagnosis) fullEnvAddsVariables() bool {
	return len(addedVariables(d.options.FullEnv, d.spec.Env)) > 0
}

// addedVariables returns the variables (NAME=VALUE) of env whose names are not in less.
func addedVariables(env, less []string) []string {
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

// checkMissingVariable tries a server that fails with Options.FullEnv. If it works then, it adds C12 with the variables that it
// needs.
func (d *diagnosis) checkMissingVariable(ctx context.Context) {
	if !d.fullEnvAddsVariables() {
		return
	}
	r := d.requestWithEnv(ctx, d.options.FullEnv, d.firstAnswerWait())
	if r.outcome != outcomeAnswered {
		return
	}
	seen := "the server fails with the variables that it is given, and answers with the whole environment"
	names := d.findNeededVariables(ctx, d.spec.Env, addedVariables(d.options.FullEnv, d.spec.Env), separateCheckTimeout(r.duration))
	d.addNeededVariables(doctor.Error, "the server needs a variable that it is not given", seen, names)
}

// checkSafeEnvironment is a separateCheck: it tries a server that works with Options.SafeEnv, the variables that clients pass
// on. If the server fails then, it returns a mere C12, for which explainSafeEnvironment finds the variables.
func (d *diagnosis) checkSafeEnvironment(ctx context.Context, wait time.Duration) []doctor.Finding {
	more := addedVariables(d.spec.Env, d.options.SafeEnv)
	if d.options.SafeEnv == nil || len(more) == 0 {
		return nil
	}
	if r := d.requestWithEnv(ctx, d.options.SafeEnv, wait); r.outcome == outcomeAnswered || ctx.Err() != nil || d.timeLeft() <= 0 {
		return nil
	}
	return []doctor.Finding{{Code: "C12"}} // explainSafeEnvironment looks for the variable once this is certain
}

// explainSafeEnvironment finds out which variables are missing when the server fails with Options.SafeEnv, and adds C12, unless
// the server fails by now with its own environment, too. start is how long the server took until its first answer.
func (d *diagnosis) explainSafeEnvironment(ctx context.Context, start time.Duration) {
	if r := d.requestWithEnv(ctx, d.spec.Env, d.firstAnswerWait()); r.outcome != outcomeAnswered {
		return // it cannot be started again at all, so that the variables need not be the cause
	}
	names := d.findNeededVariables(ctx, d.options.SafeEnv, addedVariables(d.spec.Env, d.options.SafeEnv), separateCheckTimeout(start))
	d.addNeededVariables(doctor.Warning, "the server needs a variable that clients do not pass on",
		"the server answers with the environment of this shell, and fails with the few variables that clients pass on (HOME, PATH and the like)", names)
}

// separateCheckTimeout returns how long the first answer of a further process may take, where that of another one took so long.
func separateCheckTimeout(took time.Duration) time.Duration { return 2*took + 1500*time.Millisecond }

// requestWithEnv sends initialize to a new process with the environment env, waits for the answer, for wait at most, and ends
// the process. If no process can be started, the outcome is outcomeExited.
func (d *diagnosis) requestWithEnv(ctx context.Context, env []string, wait time.Duration) reply {
	p, err := d.startWithEnv(ctx, env)
	if err != nil {
		return reply{outcome: outcomeExited}
	}
	defer d.stopProcess(p)
	return p.request(ctx, firstRequestID, "initialize", initializeParams(era.NewestLegacy), max(0, min(wait, d.timeLeft())))
}

// findNeededVariables returns the names of the variables of more without which the server fails, up to three: it fails with
// env, and works with env and all of more. If there is no more time, it returns those that it has found so far. wait is how
// long the first answer of a process may take.
func (d *diagnosis) findNeededVariables(ctx context.Context, env, more []string, wait time.Duration) (names []string) {
	env = slices.Clip(env)
	works := func(vars []string) bool {
		return d.requestWithEnv(ctx, append(env, vars...), wait).outcome == outcomeAnswered
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

// addNeededVariables adds C12: the server needs the variables names; none: it is not known which.
func (d *diagnosis) addNeededVariables(severity doctor.Severity, title, seen string, names []string) {
	do := "There was no time to find out which; --slow takes it. Or pass all on: --pass-env all."
	if len(names) > 0 {
		seen += fmt.Sprintf("; what it needs: %s", strings.Join(names, ", "))
		do = "Pass it on: --env " + strings.Join(names, " --env ") + ". In a client's configuration it stands in \"env\", with its value."
	}
	d.addFinding("C12", severity, title, seen,
		"Desktop clients, the SDKs' clients and servers of a configuration file pass on a few variables only. The server works in this terminal and fails there.", do)
}
