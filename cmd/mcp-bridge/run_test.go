package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/manual"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// The program starts itself again: as its watchdog, as the demo server, and to complete a line.
func TestMain(m *testing.M) {
	if supervisor.WatchdogMain() {
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "demo" {
		main()
	}
	if len(os.Args) > 2 && os.Args[1] == manual.CompleteCommand {
		main()
	}
	if len(os.Args) == 3 && os.Args[1] == "browse" {
		browse(os.Args[2])
	}
	os.Exit(m.Run())
}

// A serve that is told to end while it starts says what is wrong with its file all the same.
func TestMistakeWhileEnding(t *testing.T) {
	file := filepath.Join(t.TempDir(), "servers.json")
	bridgetest.Must(t, os.WriteFile(file, []byte("{"), 0o600))
	out, err := os.Create(file + ".out")
	bridgetest.Must(t, err)
	defer out.Close()
	in, err := os.Open(os.DevNull)
	bridgetest.Must(t, err)
	defer in.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	env := environment{stdin: in, stdout: out, stderr: out, lookup: os.LookupEnv}
	if status := run(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--config", file}, env); status != exitUsage {
		t.Errorf("status %d, want %d", status, exitUsage)
	}
}

// try runs the program with args and returns its exit status and output.
func try(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "stdout"))
	bridgetest.Must(t, err)
	defer out.Close()
	errs, err := os.Create(filepath.Join(dir, "stderr"))
	bridgetest.Must(t, err)
	defer errs.Close()
	in, err := os.Open(os.DevNull)
	bridgetest.Must(t, err)
	defer in.Close()
	lookup := func(name string) (string, bool) {
		if name == "SET_LONG" {
			return "it's hush", true
		}
		return "secret", name == "SET"
	}
	// What is no mistake would go on for ever.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	status = run(ctx, args, environment{stdin: in, stdout: out, stderr: errs, lookup: lookup})
	read := func(f *os.File) string {
		b, err := os.ReadFile(f.Name())
		bridgetest.Must(t, err)
		return string(b)
	}
	return status, read(out), read(errs)
}

func TestMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	bridgetest.Must(t, os.WriteFile(file, []byte("# comment\n\nGood: 1\nno colon here\n"), 0o600))
	tests := []struct {
		args   string
		status int
		says   string // on stderr
	}{
		{"", exitUsage, "nothing to do"},
		{"uvx mcp-server-git", exitUsage, `mcp-bridge -- uvx mcp-server-git`},
		{"serve", exitUsage, `needs a command after "--"`},
		{"serve http://localhost/mcp -- ls", exitUsage, "one of"},
		{"serve http://localhost/mcp http://localhost/sse", exitUsage, "one URL"},
		{"serve --config " + file + " --demo", exitUsage, "one of"},
		{"serve --config /does/not/exist.json", exitUsage, "/does/not/exist.json"},
		{"serve --config " + file, exitUsage, file + ":"},
		{"serve npx -y server", exitUsage, `mcp-bridge serve -- npx -y server`},
		{"connect --name x npx -y server", exitUsage, `mcp-bridge connect -- npx -y server`},
		{"connect --port 9 http://localhost/mcp", exitUsage, "--port is a flag of serve"},
		{"serve --port 99999 --demo", exitUsage, "65535"},
		{"connect /run/x.sock", exitUsage, "unix:/run/x.sock"},
		{"serve 192.0.2.1:8080/mcp", exitUsage, "http://192.0.2.1:8080/mcp"},
		{"serve --isolation all -- ls", exitUsage, "auto, session, principal, shared, request"},
		{"serve --protocol new -- ls", exitUsage, "auto, legacy or modern"},
		{"connect --client-protocol new -- ls", exitUsage, "auto, legacy or modern"},
		{"serve --park-timeout 0s -- ls", exitUsage, "--park-timeout must be more than 0"},
		{"serve --max-children -1 -- ls", exitUsage, "cannot be negative"},
		{"serve --queue-timeout -1s -- ls", exitUsage, "--queue-timeout cannot be negative"},
		{"serve --connect-timeout -1s http://127.0.0.1:1/mcp", exitUsage, "--connect-timeout cannot be negative"},
		{"connect --connect-timeout -1s http://127.0.0.1:1/mcp", exitUsage, "--connect-timeout cannot be negative"},
		{"serve --tls-cert x -- ls", exitUsage, "belong together"},
		{"serve --tls-client-ca x -- ls", exitUsage, "needs --tls-cert"},
		{"serve --listen 127.0.0.1:0 --tls-cert /does/not/exist --tls-key /does/not/exist --demo", exitFail, "/does/not/exist"},
		{"serve --token-file /does/not/exist -- ls", exitUsage, "/does/not/exist"},
		{"serve --token-file " + file + " -- ls", exitUsage, file + ":"},
		{"serve --path-prefix tools -- ls", exitUsage, "--path-prefix"},
		{"serve --trusted-proxy nonsense -- ls", exitUsage, "--trusted-proxy"},
		{"serve --listen unix: -- ls", exitUsage, "unix:PATH"},
		{"serve --unix-mode 9 -- ls", exitUsage, "--unix-mode"},
		{"serve --ignore-tool [ -- ls", exitUsage, "["},
		{"serve --transport quickly http://localhost/mcp", exitUsage, "http-first"},
		{"serve --listen 127.0.0.1:0 unix:/x --header A:b", exitUsage, "headers"},
		{"connect --config x", exitUsage, "the name of one server"},
		{"connect --config x y -- ls", exitUsage, "no command"},
		{"connect --config " + file + " y", exitUsage, file + ":"},
		{"check-config", exitUsage, "one file"},
		{"check-config " + file, exitUsage, file + ":"},
		{"serve ls", exitUsage, `mcp-bridge serve -- ls`},
		{"serve --demo -- ls", exitUsage, "leave the command out"},
		{"serve --nonsense -- ls", exitUsage, "unknown flag: --nonsense"},
		{"serve --port abc -- ls", exitUsage, `--port is "abc" and should be a whole number`},
		{"serve --session-timeout 30 -- ls", exitUsage, `--session-timeout is "30" and should be a time with its unit, such as 30s`},
		{"serve --pty=maybe -- ls", exitUsage, `--pty is "maybe" and should be true or false`},
		{"serve --max-message-size big -- ls", exitUsage, "--max-message-size"},
		{"serve --max-sessions 0 -- ls", exitUsage, "--max-sessions"},
		{"serve --listen 8080 -- ls", exitUsage, "write HOST:PORT"},
		{"serve --listen unix:/x --listen 127.0.0.1:0 --port 1 -- ls", exitUsage, "--listen 127.0.0.1:0 names host and port already; leave --host and --port out"},
		{"serve --listen 0.0.0.0:0 -- ls", exitUsage, "--insecure"},
		{"serve --log-format json --listen 0.0.0.0:0 -- ls", exitUsage, "--insecure"},
		{"serve --max-message-size lots -- ls", exitUsage, "KiB"},
		{"serve --allow-origin nonsense -- ls", exitUsage, "nonsense"},
		{"serve --log-level loud -- ls", exitUsage, "--log-level"},
		{"serve --log-format xml -- ls", exitUsage, "--log-format"},
		{"serve --env UNSET -- ls", exitUsage, "UNSET: the environment variable is not set"},
		{"serve --env =x -- ls", exitUsage, "NAME=value"},
		{"serv --demo", exitUsage, `"serv" is no command`},
		{"--cwd=/ serve --demo", exitUsage, `put "serve" first`},
		{"serve --log-format json --listen 127.0.0.1:0 -- this-command-does-not-exist", exitFail, `"@level":"error"`},
		{"serve --env-file /does/not/exist -- ls", exitUsage, "--env-file: open /does/not/exist"},
		{"serve --pass-env =x -- ls", exitUsage, ""},
		{"serve --listen 127.0.0.1:0 -- this-command-does-not-exist", exitFail, "this-command-does-not-exist"},
		{"serve --listen 127.0.0.1:0 --cwd /does/not/exist -- ls", exitFail, "/does/not/exist"},
		{"connect", exitUsage, "needs a URL"},
		{"connect ftp://x/y", exitUsage, "ftp: the server's URL"},
		{"connect http://a/ http://b/", exitUsage, "one URL"},
		{"connect http://a/ -- ls", exitUsage, "not both"},
		{"connect --header nonsense http://a/", exitUsage, "Name: value"},
		{"connect --header X:${UNSET} http://a/", exitUsage, "UNSET is not set"},
		{"connect --header-file " + file + " http://a/", exitUsage, "line 4"},
		{"connect -- this-command-does-not-exist", exitFail, "this-command-does-not-exist"},
		{"demo now", exitUsage, "no arguments"},
		{"sevre --demo", exitUsage, `"sevre" is no command of mcp-bridge (did you mean "serve"?); to serve`},
		{"check servers.json", exitUsage, `did you mean "check-config"?`},
		{"serve --isolatoin shared -- ls", exitUsage, `unknown flag: --isolatoin (did you mean "--isolation"?)`},
		{"connect --max-message=5 -- ls", exitUsage, `did you mean "--max-message-size"?`},
		{"serve --prot 9000 npx -y server", exitUsage, `did you mean "--port"?`},
		{"connect -H X-A:... http://127.0.0.1:1/mcp", exitUsage, `put the value of X-A in place of "..."`},
		{"connect npx foo", exitUsage, `after "--": mcp-bridge connect -- npx foo`},
		{"doctor python3 hang.py", exitUsage, `after "--": mcp-bridge doctor -- python3 hang.py`},
		{"connect https://host.example/mcp foo", exitUsage, `"foo" is one argument too many`},
		{"--hepl", exitUsage, `unknown flag: --hepl (did you mean "--help"?)`},
		{"serve --hepl", exitUsage, `did you mean "--help"?`},
		{"version -x", exitUsage, "version takes no arguments"},
		{"demo --conformance", exitUsage, "unknown flag: --conformance"},
		{"help foo", exitUsage, `there is no help on "foo"; there is help on serve, connect`},
		{"help isolaton", exitUsage, `there is no help on "isolaton" (did you mean "isolation"?)`},
		{"conenct http://a/", exitUsage, `"conenct" is no command of mcp-bridge (did you mean "connect"?)`},
		{"serve --hots 0.0.0.0 -- ls", exitUsage, `unknown flag: --hots (did you mean "--host"?)`},
		{"connect --porfile x http://a/", exitUsage, `did you mean "--profile"?`},
		{"login --detache http://a/", exitUsage, "unknown flag: --detache; write mcp-bridge login [flags] URL, or mcp-bridge login"},
		{"login --all http://a/", exitUsage, "--all is a flag of logout, not of login; write mcp-bridge login [flags] URL"},
		{"doctor --config missing.json a", exitUsage, "missing.json: no such file"},
		{"doctor missing.json a", exitUsage, "missing.json: no such file"},
		{"doctor missing.json", exitUsage, "doctor --config FILE takes the name of one server in the file"},
		{"doctor --config missing.json a -- ls", exitUsage, "no command"},
		{"doctor --port 80 http://a/", exitUsage, "--port is a flag of serve, not of doctor; write mcp-bridge doctor [flags] URL"},
		{"serve --name node --quickly=1 node server.js", exitUsage, `if "node" is the command to run`},
		{"doctor --quickly=1 uvx x", exitUsage, `if "uvx" is the command to run, write "--" in front of it`},
		{"wrap --file F remote", exitUsage, "unknown flag: --file; write mcp-bridge wrap [flags] NAME\n"},
		{"unwrap --file F remote", exitUsage, "unknown flag: --file; write mcp-bridge unwrap [flags] NAME\n"},
		{"trace --file F x", exitUsage, "unknown flag: --file; write mcp-bridge trace [flags] [PID|NAME|FILE] [WORD...]\n"},
		{"status --file F x", exitUsage, "unknown flag: --file; write mcp-bridge status [flags] [URL], or mcp-bridge status"},
		{"logout --file F x", exitUsage, "unknown flag: --file; write mcp-bridge logout [flags] URL, or"},
		{"logout --all --config missing.json", exitUsage, "logout --config FILE takes the name of one server in the file"},
		{"record f --file F x", exitUsage, "unknown flag: --file; write mcp-bridge record FILE [flags] URL, or"},
		{"connect --lost http://a/", exitUsage, "--lost is a flag of trace, not of connect"},
		{"help conect", exitUsage, `there is no help on "conect" (did you mean "connect"?)`},
		{"help serve foo", exitUsage, `"foo" is one argument too many`},
	}
	for _, tt := range tests {
		args := strings.Fields(tt.args)
		if strings.HasPrefix(tt.args, "serve") && !regexp.MustCompile("--(listen|port|host)").MatchString(tt.args) {
			args = slices.Insert(args, 1, "--listen", "127.0.0.1:0") // somebody may use the default port of this machine
		}
		status, out, errs := try(t, args...)
		if status != tt.status || !strings.Contains(errs, tt.says) || out != "" {
			t.Errorf("mcp-bridge %s\nstatus %d, want %d\nstdout %q\nstderr %q, want it to say %q", tt.args, status, tt.status, out, errs, tt.says)
		}
	}
}

// A command that ends at once is a failure of serve, and says why.
func TestServeReportsACommandThatEndsAtOnce(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("needs /bin/sh")
	}
	status, _, errs := try(t, "serve", "--listen", "127.0.0.1:0", "--", "/bin/sh", "-c", "echo no database >&2; exit 3")
	if status != exitFail || !strings.Contains(errs, "ended at once") || !strings.Contains(errs, "exit status 3") || !strings.Contains(errs, "no database; to find out why: mcp-bridge doctor -- COMMAND") {
		t.Errorf("status %d, stderr %q", status, errs)
	}
}

// The heading of doctor's report can be typed into a shell, and does not have the value of --env, in whatever quotes.
func TestDoctorQuotesTheCommand(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("needs /bin/sh")
	}
	_, out, errs := try(t, "doctor", "--env", "X=it's hush", "--", "/bin/sh", "-c", `echo "Error" >&2; exit 3`, "it's hush")
	if want := `/bin/sh -c 'echo "Error" >&2; exit 3' '(hidden)'` + "\n"; !strings.HasPrefix(out, want) || strings.Contains(out, "hush") {
		t.Errorf("stdout %q, stderr %q; want %q", out, errs, want)
	}
}

// The heading of doctor's report has neither the user nor a value of the URL: either may be a key.
func TestDoctorHidesTheURL(t *testing.T) {
	_, out, errs := try(t, "doctor", "http://hush@127.0.0.1:1/mcp?key=hush")
	if !strings.HasPrefix(out, "http://hidden@127.0.0.1:1/mcp?key=hidden\n") || strings.Contains(out+errs, "hush") {
		t.Errorf("stdout %q, stderr %q", out, errs)
	}
}

// A server of a configuration file is examined as that says: with its arguments, its variables and its headers, which the report
// does not show. A name that is not there is answered with the one that was meant.
func TestDoctorOfFile(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("needs /bin/sh")
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer it's hush" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Error(w, "seen", http.StatusTeapot)
	}))
	defer site.Close()
	t.Setenv("DOCTOR_TEST_OTHER", "1")
	file := filepath.Join(t.TempDir(), "servers.json")
	bridgetest.Must(t, os.WriteFile(file, []byte(`{"mcpServers": {
		"local": {"command": "/bin/sh", "args": ["-c", "echo \"Error $X $DOCTOR_TEST_OTHER.\" >&2; exit 3", "${SET_LONG}"], "env": {"X": "also hush"}},
		"far": {"url": "`+site.URL+`/mcp", "headers": {"Authorization": "Bearer ${SET_LONG}"}}}}`), 0o600))
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--config", file, "local"}, exitFail, "' '(hidden)'\n"},
		{[]string{"--config", file, "local"}, exitFail, "Error (hidden) ."}, // what is safe is passed on, as serve --config does
		{[]string{"--pass-env", "all", file, "local"}, exitFail, "Error (hidden) 1."},
		{[]string{file, "far"}, exitFail, "418"},
		{[]string{file, "Local"}, exitUsage, `there is no server "Local": did you mean "local"?`},
		{[]string{"--config", file, "nope"}, exitUsage, `the file has "local", "far"`},
		{[]string{"--config", file}, exitUsage, "takes the name of one server"},
	} {
		status, out, errs := try(t, append([]string{"doctor"}, c.args...)...)
		if text := strings.Join(strings.Fields(out+errs), " "); status != c.status || !strings.Contains(text, strings.TrimSpace(c.says)) || strings.Contains(text, "hush") {
			t.Errorf("%q: status %d, stdout %q, stderr %q; want %q", c.args, status, out, errs, c.says)
		}
	}
}

func TestHeaders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	bridgetest.Must(t, os.WriteFile(file, []byte("\ufeffX-File: from file\n# a comment\n"), 0o600))
	lookup := func(name string) (string, bool) { return "s3cret", name == "TOKEN" }
	h, err := readHeaders([]string{"Authorization:Bearer ${TOKEN}", "X-Two: a:b", "x-two: c"}, file, []string{"X-Env=TOKEN"}, lookup)
	bridgetest.Must(t, err)
	want := http.Header{"Authorization": {"Bearer s3cret"}, "X-Two": {"a:b", "c"}, "X-File": {"from file"}, "X-Env": {"s3cret"}}
	for k, v := range want {
		if strings.Join(h[k], "|") != strings.Join(v, "|") {
			t.Errorf("%s = %q, want %q", k, h[k], v)
		}
	}
	if len(h) != len(want) {
		t.Errorf("headers = %v", h)
	}
	bridgetest.Must(t, os.WriteFile(file, []byte("\ufeff# a comment\nX-File: 1\n"), 0o600))
	if h, err := readHeaders(nil, file, nil, lookup); err != nil || len(h) != 1 {
		t.Errorf("a comment behind a byte order mark: %v, %v", h, err)
	}
	for _, bad := range []string{"X", "X=", "X Y=TOKEN", "X=UNSET", "=TOKEN"} {
		if _, err := readHeaders(nil, "", []string{bad}, lookup); err == nil {
			t.Errorf("--header-env %q was accepted", bad)
		}
	}
	for _, bad := range []string{"X: ${TOKEN", "X Y: 1", ": 1", "X: a\r\nEvil: 1"} {
		if _, err := readHeaders([]string{bad}, "", nil, lookup); err == nil {
			t.Errorf("header %q was accepted", bad)
		}
	}
}

// --env-file reads what envFile of a configuration reads, also behind a byte order mark.
func TestEnvFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	write := func(text string) *childFlags {
		bridgetest.Must(t, os.WriteFile(file, []byte(text), 0o600))
		return &childFlags{envFile: file, env: []string{"C=last"}}
	}
	got, err := write("A=\"a b\"\n# comment\nexport B='q'\nC=c=d\n").readAddedEnv(os.LookupEnv)
	if want := []string{"A=a b", "B=q", "C=c=d", "C=last"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	got, err = write("\ufeffA=1\n\ufeffB=2\n").readAddedEnv(os.LookupEnv)
	if want := []string{"A=1", "\ufeffB=2", "C=last"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("with a byte order mark: %q, %v; want %q", got, err, want)
	}
	if _, err := write("A=1\nB=\"secret\n").readAddedEnv(os.LookupEnv); err == nil || !strings.Contains(err.Error(), "line 2: the value begins with a quote") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a quote without an end: %v", err)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "100": 100, "4KiB": 4 << 10, "64 MiB": 64 << 20, "1GiB": 1 << 30} {
		var s byteSize
		if err := s.Set(text); err != nil || int(s) != want {
			t.Errorf("%q = %d, %v; want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "MiB", "1TB", "9999999999GiB"} {
		var s byteSize
		if err := s.Set(text); err == nil {
			t.Errorf("%q was accepted as %d", text, s)
		}
	}
}

func TestSplit(t *testing.T) {
	tests := []struct{ args, command string }{
		{"-- npx thing", "serve"},
		{"--port 9 -- npx thing", "serve"},
		{"--demo", "serve"},
		{"https://h/mcp", "connect"},
		{"--header A:b https://h/mcp", "connect"},
		{"serve -- connect", "serve"},
		{"connect -- serve", "connect"},
		{"version", "version"},
		{"--version", "version"},
		{"-V", "version"},
		{"", ""},
	}
	for _, tt := range tests {
		if got, _ := splitCommand(strings.Fields(tt.args)); got != tt.command {
			t.Errorf("%q is %q, want %q", tt.args, got, tt.command)
		}
	}
}

func TestVersion(t *testing.T) {
	status, out, _ := try(t, "version")
	if status != exitOK || !strings.HasPrefix(out, "mcp-bridge ") {
		t.Errorf("status %d, stdout %q", status, out)
	}
}

// What may be secret in a command is not repeated where it is said how to write it: clients keep what is written to stderr.
func TestMistakesWithoutSecrets(t *testing.T) {
	for _, args := range []string{
		"uvx srv --api-key hush", "serve node x.js --token hush", "serve --quickly=1 node x.js --token=hush", "connect -e API_KEY hush https://host/mcp", "trace -- srv --token hush",
	} {
		if status, _, errs := try(t, strings.Fields(args)...); status != exitUsage || strings.Contains(errs, "hush") || !strings.Contains(errs, "...") {
			t.Errorf("%s: status %d, %s", args, status, errs)
		}
	}
}
