package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// fake is a server with faults; see play.
func fake(t *testing.T, faults string, env ...string) supervisor.Spec {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return supervisor.Spec{
		Name: "fake", Path: exe,
		Env: append([]string{"PATH=" + os.Getenv("PATH"), roleVar + "=" + faults, "GORACE=atexit_sleep_ms=0"}, env...),
	}
}

// examine runs Diagnose until the report is as wanted, but three times at most: the doctor measures
// time, and on a machine that is busy a healthy server is slow, too.
func examine(t *testing.T, spec supervisor.Spec, o Options, wanted func(*doctor.Report) bool) *doctor.Report {
	t.Helper()
	for range 2 {
		if r := examineOnce(t, spec, o); wanted(r) {
			return r
		}
	}
	return examineOnce(t, spec, o)
}

// healthy: nothing is found.
func healthy(r *doctor.Report) bool { return len(r.Findings()) == 0 }

// only returns whether one finding is all, and has the code.
func only(code string) func(*doctor.Report) bool {
	return func(r *doctor.Report) bool { return len(r.Findings()) == 1 && r.HasFinding(code) }
}

// shows returns whether the report has the text, its spaces and line feeds aside.
func shows(t *testing.T, want string) func(*doctor.Report) bool {
	return func(r *doctor.Report) bool {
		return strings.Contains(strings.Join(strings.Fields(text(t, r)), " "), want)
	}
}

// examineOnce runs Diagnose, and sees to it that no process is left.
func examineOnce(t *testing.T, spec supervisor.Spec, o Options) *doctor.Report {
	t.Helper()
	r := doctor.NewReport("fake")
	mark := "DOCTOR_TEST_NAME=" + t.Name() + strconv.FormatInt(time.Now().UnixNano(), 10)
	mark = strings.ReplaceAll(mark, " ", "_")
	began := time.Now()
	spec.Env = append(slices.Clone(spec.Env), mark)
	if err := Diagnose(t.Context(), spec, o, r); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*totalTimeout && !o.AllowSlow {
		t.Errorf("it took %v", took)
	}
	if left := left(mark); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	return r
}

// impatient is for servers that will not answer.
var impatient = Options{FirstAnswerTimeout: 2 * time.Second, EndTimeout: 3 * time.Second}

// quick is for servers that answer, and end when they are to.
var quick = Options{EndTimeout: 3 * time.Second}

// hasty is for servers that do not end.
var hasty = Options{EndTimeout: 300 * time.Millisecond}

var diagnoses = []struct {
	faults  string
	code    string
	want    string // in the finding's title, evidence or remedy
	options Options
	healthy string // a server without the fault, if it is another than "healthy"
}{
	{"exits", "C2", "fastmcp is missing", quick, ""},
	{"wants-variable", "C2", "DOCTOR_TEST_KEY is missing", quick, ""},
	{"noise", "C3", `Server \u001b[1mrunning`, quick, ""},
	{"buffers", "C4", "terminal", impatient, ""},
	{"slow", "C5", "itself takes so long", Options{SlowStartThreshold: 300 * time.Millisecond}, ""},
	{"http", "C6", "/mcp", impatient, ""},
	{"echo", "C7", "what it is sent", quick, ""},
	{"silent", "C7", "subcommand", impatient, ""},
	{"login", "C7", "log in", impatient, ""},
	{"exits-on-discover", "C8", "server/discover: exit status 4", quick, ""},
	{"ignores-discover", "C8", "no answer", quick, ""},
	{"exits-on-older", "C8", "2024-11-05", quick, ""},
	{"refuses-older", "C8", "Unsupported protocol version", quick, ""},
	{"echoes", "C8", "2099-01-01", quick, ""},
	{"no-info", "C8", "lacks something", quick, ""},
	{"retypes", "C9", `asked with "1", answered with 1`, quick, ""},
	{"rounds", "C9", "answered with 9007199254740992", quick, ""},
	{"numbers-only", "C9", `id "x": no answer`, Options{FirstAnswerTimeout: time.Second}, ""},
	{"crlf", "C10", "0D 0A", quick, ""},
	{"bom", "C10", "EF BB BF", quick, ""},
	{"several-lines", "C10", "several lines", quick, ""},
	{"headers", "C10", "Content-Length", impatient, ""},
	{"no-line-feed", "C10", "line feed", impatient, ""},
	{"bad-utf8", "C10", `caf\xe9`, quick, ""},
	{"long", "C10", `bytes, beginning {"jsonrpc"`, Options{MaxMessageSize: 50000}, "long"},
	{"deaf", "C11", "SIGKILL", hasty, ""},
	{"leaves", "C11", "still running", quick, ""},
	{"circle", "C13", "circle", quick, "pages"},
	{"null-cursor", "C13", "nextCursor", quick, "pages"},
	{"prompts", "C13", "prompts/list", quick, ""},
	{"undeclared", "C13", "without the capability", quick, ""},
	{"twice", "C13", `"one"`, quick, "pages"},
	{"no-schema", "C13", `tool "one": inputSchema is missing`, quick, ""},
	{"bad-schema", "C13", "has another type", quick, ""},
	{"bad-header", "C13", "x-mcp-header", quick, ""},
}

// TestEveryFaultIsNamed, and nothing else is. What has the fault of one code may show
// others with it: a server whose framing is wrong is silent.
func TestEveryFaultIsNamed(t *testing.T) {
	for _, d := range diagnoses {
		t.Run(d.faults, func(t *testing.T) {
			t.Parallel()
			if runtime.GOOS == "windows" && (d.code == "C6" || d.code == "C11") {
				t.Skip("Windows does not tell")
			}
			var wrong []string
			examine(t, fake(t, d.faults), d.options, func(r *doctor.Report) bool {
				wrong = nil
				found := false
				for _, f := range r.Findings() {
					text := strings.Join([]string{f.Title, f.Evidence, f.Advice}, "\n")
					found = found || f.Code == d.code && strings.Contains(text, d.want)
					if f.Code != d.code {
						wrong = append(wrong, fmt.Sprintf("a finding that was not asked for: %+v", f))
					}
					if f.Severity == "" || f.Title == "" || f.Evidence == "" || f.Consequence == "" || f.Advice == "" {
						wrong = append(wrong, fmt.Sprintf("a finding lacks something: %+v", f))
					}
				}
				if !found {
					wrong = append(wrong, fmt.Sprintf("no %s with %q in\n%s", d.code, d.want, text(t, r)))
				}
				return wrong == nil
			})
			if wrong != nil {
				t.Error(strings.Join(wrong, "\n"))
			}
		})
	}
}

// TestNothingIsFoundInHealthyServers.
func TestNothingIsFoundInHealthyServers(t *testing.T) {
	for _, role := range []string{"healthy", "pages", "long"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			spec := fake(t, role, "DOCTOR_TEST_MORE=1")
			r := examine(t, spec, Options{SafeEnv: spec.Env[:3], FullEnv: spec.Env}, healthy)
			if len(r.Findings()) > 0 {
				t.Error(text(t, r))
			}
			for _, name := range []string{"transport", "revision", "server", "tools", "timings"} {
				if !strings.Contains(text(t, r), "\n"+name+" ") {
					t.Errorf("the report does not say %s:\n%s", name, text(t, r))
				}
			}
		})
	}
}

// left returns the processes that have this in their environment.
func left(mark string) (found []systemProcess) {
	for _, p := range listProcesses() {
		environ, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
		if !p.isZombie && p.pid != os.Getpid() && strings.Contains(string(environ), mark) {
			found = append(found, p)
		}
	}
	return found
}

func TestCommandIsNotFound(t *testing.T) {
	r := examine(t, supervisor.Spec{Path: "no-such-program", Env: []string{"PATH=/nowhere:/elsewhere"}}, quick, only("C1"))
	if f := one(t, r, "C1"); !strings.Contains(f.Evidence, "/nowhere, /elsewhere") {
		t.Errorf("the folders are not named: %+v", f)
	}
	r = examine(t, supervisor.Spec{Path: filepath.Join(t.TempDir(), "none")}, quick, only("C1"))
	one(t, r, "C1")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// It is where clients started from a desktop would find it, but not in the server's PATH.
	if file := findProgram("sh", desktopPathFolders()); file != "" {
		r = examine(t, supervisor.Spec{Path: "sh", Env: []string{"PATH=" + filepath.Dir(exe)}}, quick, only("C1"))
		if f := one(t, r, "C1"); !strings.Contains(f.Advice, file) {
			t.Errorf("the remedy does not name %s: %+v", file, f)
		}
	}
}

func TestSlowFirstStart(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	r := examine(t, fake(t, "slow-once", "DOCTOR_TEST_FILE="+once), Options{SlowStartThreshold: 500 * time.Millisecond}, func(r *doctor.Report) bool {
		done := only("C5")(r) && strings.Contains(r.Findings()[0].Advice, "Only the first start")
		return done || os.Remove(once) != nil // a further examination has a first start, too
	})
	if f := one(t, r, "C5"); !strings.Contains(f.Advice, "Only the first start") {
		t.Errorf("%+v", f)
	}
}

// A server that has one revision only is asked for each, and the report says so once.
func TestOnlyOneRevision(t *testing.T) {
	said := shows(t, "revision 2025-06-18 (asked for 2025-11-25, 2025-03-26, 2024-11-05, it answers 2025-06-18) server")
	if r := examine(t, fake(t, "one-revision"), quick, said); !said(r) {
		t.Error(text(t, r))
	}
}

// A server that has answered behind a prompt is not called silent.
func TestTextBeforeAnAnswer(t *testing.T) {
	right := func(r *doctor.Report) bool {
		all := r.Findings()
		return len(all) > 0 && all[0].Code == "C10" && !r.HasFinding("C7") && strings.Contains(all[0].Evidence, `on stdout: ready> {"jsonrpc"`)
	}
	if r := examine(t, fake(t, "prompt"), impatient, right); !right(r) {
		t.Error(text(t, r))
	}
}

// A server that cannot run twice at a time has no fault for that.
func TestServerThatRunsAlone(t *testing.T) {
	spec := fake(t, "alone", "DOCTOR_TEST_FILE="+filepath.Join(t.TempDir(), "lock"), "DOCTOR_TEST_MORE=1")
	if r := examine(t, spec, Options{SafeEnv: spec.Env[:4]}, healthy); len(r.Findings()) > 0 {
		t.Error(text(t, r))
	}
}

// What a server tells of its credentials is not shown.
func TestSecretsOnStderr(t *testing.T) {
	spec := fake(t, "tells", "DOCTOR_TEST_KEY=sesame-sesame-1")
	spec.Args = []string{"--password", "sesame-sesame-2"}
	r := examine(t, spec, quick, func(r *doctor.Report) bool { return len(r.Findings()) > 0 })
	if out := text(t, r); strings.Contains(out, "sesame") || !strings.Contains(r.Findings()[0].Evidence, "bad key (hidden), bad argument (hidden)") {
		t.Error(out)
	}
}

// A variable that the server needs is found among many, whether it ends without it or waits,
// and whether the server had it at first or not.
func TestMissingVariable(t *testing.T) {
	const value = "sesame-sesame-7"
	many := []string{"DOCTOR_TEST_A=1", "DOCTOR_TEST_B=2", "DOCTOR_TEST_KEY=" + value, "DOCTOR_TEST_C=3", "DOCTOR_TEST_D=4"}
	for _, role := range []string{"wants-variable", "waits-variable"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			few, full := fake(t, role), fake(t, role, many...)
			works := examine(t, full, Options{SafeEnv: few.Env, FullEnv: full.Env}, shows(t, "needs: DOCTOR_TEST_KEY"))
			if f := one(t, works, "C12"); f.Severity != doctor.Warning || !strings.HasSuffix(f.Evidence, "needs: DOCTOR_TEST_KEY") {
				t.Errorf("a server that works here: %+v", f)
			}
			fails := examine(t, few, Options{SafeEnv: few.Env, FullEnv: full.Env, FirstAnswerTimeout: 2 * time.Second}, shows(t, "needs: DOCTOR_TEST_KEY"))
			if !strings.Contains(text(t, fails), "needs: DOCTOR_TEST_KEY") {
				t.Errorf("a server that fails here:\n%s", text(t, fails))
			}
			for _, r := range []*doctor.Report{works, fails} {
				if strings.Contains(text(t, r), value) {
					t.Errorf("the value is shown:\n%s", text(t, r))
				}
			}
		})
	}
}

func TestToolIsCalledOnlyIfAsked(t *testing.T) {
	r := examine(t, fake(t, "healthy"), Options{ToolToCall: "one", Arguments: []byte(`{"a":1}`)}, shows(t, "one: succeeded after"))
	if out := text(t, r); !strings.Contains(out, "one: succeeded after") {
		t.Error(out)
	}
}

// A server of both eras gets the call once, and one that speaks only 2026-07-28 gets it, too. Each timing is noted once, in the order of a
// conversation.
func TestToolIsCalledInOneEra(t *testing.T) {
	timings := regexp.MustCompile(`^first answer after \S+, lists \S+, \S+ \S+, end after \S+$`)
	for _, role := range []string{"modern", "both-eras"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			calls := filepath.Join(t.TempDir(), "calls")
			var r *doctor.Report
			var made []byte
			for range 3 { // as examine does
				os.Remove(calls)
				r = examineOnce(t, fake(t, role, "DOCTOR_TEST_CALLS="+calls), Options{ToolToCall: "one", EndTimeout: quick.EndTimeout})
				facts := map[string]string{}
				for _, f := range r.Facts() {
					facts[f.Name] = f.Value
				}
				made, _ = os.ReadFile(calls)
				if healthy(r) && string(made) == "x" && strings.HasPrefix(facts["call"], "one: succeeded after") && timings.MatchString(facts["timings"]) {
					return
				}
			}
			t.Errorf("calls: %q\n%s", made, text(t, r))
		})
	}
}

// What a server that speaks only 2026-07-28 leaves behind each time is said once.
func TestModernServerLeavesProcesses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not tell")
	}
	one(t, examine(t, fake(t, "modern leaves"), quick, only("C11")), "C11")
}

// A tool that the server does not have, whether it says so in an error or in a result, and one whose call hangs.
func TestToolThatIsCalledFails(t *testing.T) {
	for _, c := range []struct{ faults, tool, code, says string }{
		{"refuses-calls", "nosuch", "C15", `"nosuch" is not in tools/list`},
		{"tool-error", "nosuch", "C15", `"nosuch" is not in tools/list`},
		{"refuses-calls", "one", "C15", "the tool call is refused"},
		{"hangs", "one", "C7", "the tool call is not answered"},
		{"modern refuses-calls", "nosuch", "C15", `"nosuch" is not in tools/list`},
		{"modern hangs", "one", "C7", "the tool call is not answered"},
	} {
		t.Run(c.faults+" "+c.tool, func(t *testing.T) {
			t.Parallel()
			f := one(t, examine(t, fake(t, c.faults), Options{ToolToCall: c.tool, EndTimeout: quick.EndTimeout}, only(c.code)), c.code)
			if !strings.Contains(f.Title+" "+f.Evidence, c.says) {
				t.Errorf("%+v", f)
			}
		})
	}
	if r := examine(t, fake(t, "tool-error"), Options{ToolToCall: "one", EndTimeout: quick.EndTimeout}, healthy); len(r.Findings()) > 0 {
		t.Errorf("a tool that says what is wrong with its arguments:\n%s", text(t, r))
	}
}

// A Python program whose stdout is a pipe keeps what it prints, unless it flushes.
func TestPythonBuffers(t *testing.T) {
	python := os.Getenv("TEST_PYTHON")
	if python == "" {
		var err error
		if python, err = exec.LookPath("python3"); err != nil {
			t.Skip("no python3")
		}
	}
	const program = `
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    a = {"jsonrpc": "2.0", "id": m["id"]}
    if m["method"] == "initialize":
        a["result"] = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "p", "version": "1"}}
    elif m["method"] == "ping":
        a["result"] = {}
    else:
        a["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(a)%s)
`
	run := func(how string, options Options, wanted func(*doctor.Report) bool) *doctor.Report {
		spec := supervisor.Spec{Path: python, Args: []string{"-c", strings.Replace(program, "%s", how, 1)}, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}}
		return examine(t, spec, options, wanted)
	}
	if f := one(t, run("", impatient, only("C4")), "C4"); !strings.Contains(f.Advice, "python -u") {
		t.Errorf("%+v", f)
	}
	if r := run(", flush=True", Options{}, healthy); len(r.Findings()) > 0 {
		t.Errorf("one that flushes:\n%s", text(t, r))
	}
}

// TestEndOfContext: the diagnosis says that it could not be made, and leaves nothing.
func TestEndOfContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r := doctor.NewReport("x")
	if err := Diagnose(ctx, fake(t, "silent"), quick, r); err == nil {
		t.Errorf("no error; %s", text(t, r))
	}
}

// one returns the only finding, which has this code.
func one(t *testing.T, r *doctor.Report, code string) doctor.Finding {
	t.Helper()
	all := r.Findings()
	if len(all) != 1 || all[0].Code != code {
		t.Fatalf("want %s and nothing else, have\n%s", code, text(t, r))
	}
	return all[0]
}

func text(t *testing.T, r *doctor.Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
