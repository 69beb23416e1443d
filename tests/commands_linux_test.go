package tests

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A command is one line of a document's code, with those that continue it.
type command struct {
	file string // from the root of the repository
	line int
	text string
}

// A rule says how a line is run, and how it is judged.
type rule struct {
	line  string // a regular expression at the start of the line
	judge func(w *world, c command)
}

// rules has the lines that run. The first one that fits a line judges it.
var rules = []rule{
	{`(OTEL_\w+=\S+ )?mcp-bridge serve `, serves},
	{`mcp-bridge -- `, serves},
	{`npx mcp-bridge serve `, serves},
	{`go run \./cmd/mcp-bridge serve `, serves},
	{`(?s)docker run --rm .*-p 127\.0\.0\.1:8080:8080 `, serves},
	{`mcp-bridge replay --serve `, serves},
	{`(AUTH=\S+ \S+ )?(AUTH=".*" )?mcp-bridge connect `, converses},
	{`docker run --rm -i mcp-bridge `, converses},
	{`mkdir -m 700 auth`, prints(`^$`)},
	{`mcp-bridge (record|replay --stdio) `, converses},
	{`mcp-bridge replay `, prints(`\d messages sent, \d compared: no difference`)},
	{`mcp-bridge doctor -- node `, finds(`warning C3: `)},
	{`mcp-bridge doctor (https:|--bundle|--config)`, prints(`(?s)server +\S.*nothing wrong was found|note H18: `)},
	{`mcp-bridge trace FILE --lost`, prints(`no message was lost`)},
	{`mcp-bridge trace FILE`, prints(`initialize`)},
	{`mcp-bridge trace (--http )?(status|method):`, looks},
	{`mcp-bridge trace`, watches},
	{`mcp-bridge check-config `, prints(`.`)},
	{`mcp-bridge (wrap|unwrap) `, prints(`.`)},
	{`mcp-bridge login --callback - `, paste},
	{`mcp-bridge login --no-browser `, elsewhereSigned},
	{`mcp-bridge login --cancel `, cancels},
	{`mcp-bridge login `, prints(`(?i)signed in`)},
	{`mcp-bridge status`, prints(`mcp\.example\.com`)},
	{`mcp-bridge logout `, prints(`(?i)signed out|nobody is signed in`)},
	{`docker run --rm mcp-bridge version`, prints(`^mcp-bridge `)},
	{`source <\(mcp-bridge completion bash\)`, completes},
	{`curl -sN -o events `, follows},
	{`curl -si? `, prints(`"result"|^$`)},
	{`SESSION=|STATE=|export AUTH=|ENDPOINT=|TOKEN=`, sets},
	{`hash\(\) `, prints(`^$`)},
	{`hash https://id\.example\.com ann c1`, prints(`^T4dHnNMVp7rvLTmIU6cHIY3ULRHHL1v-DLzeR-10_0U\n$`)}, // as TestPrincipalInDocs has it
	{`cat events`, prints(`"result"`)},
	{`ask\(\) `, prints(`^$`)},
	{`ask 1`, prints(`"input_required"`)},
	{`ask 2 `, prints(`the user's answer: .*Ann`)},
	{`\(umask 077; echo "ann \$\(openssl`, prints(`^$`)},
	{`openssl (req|x509) `, prints(``)},
	{`tar xzf `, prints(``)},
	{`sudo install mcp-bridge `, prints(``)},
	{`sha256sum --check `, prints(`: OK`)},
	{`rm "\$\(go env GOPATH\)/bin/mcp-bridge"`, prints(``)},
}

// elsewhere has the lines that do not run here, and why.
var elsewhere = []struct{ line, why string }{
	{`go test \./\.\.\.`, "is what runs now"},
	{`go (install|get) `, "asks the module proxy for a release"},
	{`docker (build|image rm) `, "needs a registry for the bases; packaging/images_test.go builds and runs the images with podman"},
	{`docker (run --rm -i --user|exec -i bridge) `, "tests/interop/idp/container_linux_test.go signs in from real containers"},
	{`sudo (apt|dnf) `, "packaging/linux_test.go installs, uses and removes the packages"},
	{`npm (un)?install --global `, "packaging/npm_test.go installs the package"},
	{`npx -y @modelcontextprotocol/inspector-cli`, "tests/interop/sdk runs these lines with the Inspector"},
	{`sudo systemctl `, "needs systemd as process 1; systemd_linux_test.go does what it does"},
	{`(brew|scoop) `, "for macOS and Windows"},
	{`gh attestation `, "asks GitHub"},
	{`claude mcp `, "is the command of a client"},
	{`mcp-bridge doctor --slow `, "takes minutes; internal/doctor/remote has its tests"},
}

// TestDocumentedCommands runs what README.md, docs and contrib say to type, as it is written: the lines of a page one after the
// other, in a shell, and then what clients do with the entries for their configuration; on a machine of their own (network and mount namespaces) that has the servers, hosts and files of the examples.
func TestDocumentedCommands(t *testing.T) {
	if page := os.Getenv("TEST_PAGE"); page != "" {
		runPage(t, page)
		return
	}
	t.Parallel()
	used := map[string]bool{}
	for _, file := range documents(t) {
		runs := len(snippetsOf(t, file)) > 0
		for _, c := range commandsOf(t, file) {
			r, why := ruleFor(c.text)
			used[r.line], used[why] = true, true
			if runs = runs || r.judge != nil; r.judge == nil && why == "" {
				t.Errorf("%s:%d: no rule of this test says how to judge %q", c.file, c.line, c.text)
			}
		}
		if runs {
			t.Run(file, func(t *testing.T) {
				t.Parallel()
				onOwnMachine(t, file)
			})
		}
	}
	for _, r := range rules {
		if !used[r.line] {
			t.Errorf("no document has a line for the rule %s", r.line)
		}
	}
	for _, e := range elsewhere {
		if !used[e.why] {
			t.Errorf("no document has the line %s any more", e.line)
		}
	}
}

// ruleFor returns the rule for a line, or why there is none.
func ruleFor(line string) (rule, string) {
	for _, r := range rules {
		if regexp.MustCompile("^(?:" + r.line + ")").MatchString(line) {
			return r, ""
		}
	}
	for _, e := range elsewhere {
		if regexp.MustCompile("^(?:" + e.line + ")").MatchString(line) {
			return rule{}, e.why
		}
	}
	return rule{}, ""
}

// documents returns the documents for users, from the root of the repository.
func documents(t *testing.T) (files []string) {
	t.Helper()
	files = []string{"README.md"}
	for _, dir := range []string{"docs", "contrib"} {
		bridgetest.Must(t, filepath.WalkDir(filepath.Join("..", dir), func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".md") {
				files = append(files, strings.TrimPrefix(path, "../"))
			}
			return err
		}))
	}
	return files
}

var (
	lineComment = regexp.MustCompile(` +# .*$`)
	inSentence  = regexp.MustCompile("`(mcp-bridge [^`]* [^`]*|mcp-bridge (?:https?:|trace|status)[^`]*)`")
	placeholder = regexp.MustCompile(`\b(COMMAND|FILE|NAME|PID|VERSION)\b|\.\.\.`)
)

// commandsOf returns the lines in a document's blocks of sh, those of console that begin with a $, and the commands in its sentences that leave
// nothing to fill in but a URL.
func commandsOf(t *testing.T, file string) (all []command) {
	t.Helper()
	lang, more := "", false
	for i, line := range strings.Split(readDoc(t, filepath.Join("..", file)), "\n") {
		if fence, ok := strings.CutPrefix(line, "```"); ok {
			lang = fence
			continue
		}
		if lang == "" {
			for _, code := range inSentence.FindAllStringSubmatch(line, -1) {
				c := command{file, i + 1, strings.ReplaceAll(code[1], "URL", "https://mcp.example.com/mcp")}
				again := slices.ContainsFunc(all, func(other command) bool { return other.text == c.text })
				if !again && !placeholder.MatchString(c.text) {
					all = append(all, c)
				}
			}
			continue
		}
		line, prompt := strings.CutPrefix(line, "$ ")
		switch {
		case lang != "sh" && (lang != "console" || !prompt):
			continue
		case more:
			all[len(all)-1].text += "\n" + line
		default:
			all = append(all, command{file, i + 1, line})
		}
		if more = strings.HasSuffix(line, `\`) || strings.HasSuffix(line, "|"); !more {
			c := &all[len(all)-1]
			c.text = lineComment.ReplaceAllString(c.text, "")
		}
	}
	return all
}

// onOwnMachine starts this test again for one page, in new namespaces.
func onOwnMachine(t *testing.T, page string) {
	for _, program := range []string{"bash", "curl", "openssl", "tar", "awk"} {
		if _, err := exec.LookPath(program); err != nil {
			skipNamespaces(t, program, err)
		}
	}
	exe, err := os.Executable()
	bridgetest.Must(t, err)
	cmd := exec.Command(exe, "-test.run=^TestDocumentedCommands$", "-test.v")
	cmd.Env = append(os.Environ(), "TEST_PAGE="+page, "TEST_BRIDGE="+bridgeBin, "TEST_CHILD="+childBin, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &failed):
		skipNamespaces(t, "the right to make namespaces", err)
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	case !strings.Contains(string(out), "--- PASS: TestDocumentedCommands"):
		t.Errorf("the test was not run:\n%s", out)
	default:
		t.Logf("%s", out)
	}
}

// skipNamespaces skips a test that needs what this system does not give, or fails it if TEST_NAMESPACES, which CI sets, says
// that it should.
func skipNamespaces(t *testing.T, needs string, why any) {
	t.Helper()
	if os.Getenv("TEST_NAMESPACES") != "" {
		t.Fatalf("needs %s, which TEST_NAMESPACES says is there: %v", needs, why)
	}
	t.Skipf("needs %s: %v", needs, why)
}
