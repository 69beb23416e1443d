package packaging

import (
	"bytes"
	"cmp"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
	"go.yaml.in/yaml/v3"
)

const version = "1.2.3" // of what the tests build

// release is what the tests need of .goreleaser.yaml: they make of it what goreleaser would, which takes minutes to
// build itself.
type release struct {
	Builds []struct {
		Main                      string
		Env, Tags, Flags, Ldflags []string
	}
	Packages []linuxPackage `yaml:"nfpms"`
}

// linuxPackage has the keys that goreleaser hands to nfpm.
type linuxPackage struct {
	Name        string `yaml:"package_name"`
	Formats     []string
	Vendor      string
	Maintainer  string
	Homepage    string
	License     string
	Section     string
	Priority    string
	Description string
	Bindir      string
	Umask       fs.FileMode
	MTime       time.Time
	Scripts     struct{ PostInstall, PreRemove, PostRemove string }
	Contents    []struct {
		Src, Dst, Type, Packager string
		Info                     struct {
			Mode  fs.FileMode
			MTime time.Time
		} `yaml:"file_info"`
	}
	Overrides map[string]struct{ Dependencies []string }
	RPM       struct{ Summary, Group, BuildHost string }
}

// readRelease reads .goreleaser.yaml with values in the places of its templates.
func readRelease(t *testing.T) release {
	t.Helper()
	text, err := os.ReadFile("../.goreleaser.yaml")
	must(t, err)
	var r release
	filled := strings.NewReplacer("{{ .Version }}", version, "{{ .CommitDate }}", "2026-01-02T03:04:05Z").Replace(string(text))
	must(t, yaml.Unmarshal([]byte(filled), &r))
	if len(r.Builds) != 1 || len(r.Packages) != 1 {
		t.Fatalf(".goreleaser.yaml has %d builds and %d packages, want one of each", len(r.Builds), len(r.Packages))
	}
	return r
}

// build compiles the bridge with the flags of a release.
func (r release) build(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "mcp-bridge")
	b := r.Builds[0]
	args := append([]string{"build", "-tags", strings.Join(b.Tags, ","), "-ldflags", strings.Join(b.Ldflags, " "), "-o", file}, b.Flags...)
	cmd := exec.Command("go", append(args, b.Main)...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), b.Env...)
	output(t, cmd)
	return file
}

// pack makes a package, as goreleaser does with the same library.
func (p linuxPackage) pack(t *testing.T, format, program string) []byte {
	t.Helper()
	manual := t.TempDir()
	script := exec.Command("sh", "packaging/manual.sh", "v"+version, manual)
	script.Dir = ".."
	output(t, script)
	at := func(file string) string {
		if rest, ok := strings.CutPrefix(file, "packaging/manual/"); ok {
			return filepath.Join(manual, rest)
		}
		if file == "" {
			return ""
		}
		return filepath.Join("..", file)
	}
	contents := files.Contents{{Source: program, Destination: p.Bindir + "/mcp-bridge", FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: p.MTime}}}
	for _, c := range p.Contents {
		contents = append(contents, &files.Content{Source: at(c.Src), Destination: c.Dst, Type: c.Type, Packager: c.Packager,
			FileInfo: &files.ContentFileInfo{Mode: c.Info.Mode, MTime: c.Info.MTime}})
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: p.Name, Arch: runtime.GOARCH, Platform: "linux", Version: version, Section: p.Section, Priority: p.Priority,
		Maintainer: p.Maintainer, Description: p.Description, Vendor: p.Vendor, Homepage: p.Homepage, License: p.License, MTime: p.MTime,
		Overridables: nfpm.Overridables{
			Umask: p.Umask, Depends: p.Overrides[format].Dependencies, Contents: contents,
			Scripts: nfpm.Scripts{PostInstall: at(p.Scripts.PostInstall), PreRemove: at(p.Scripts.PreRemove), PostRemove: at(p.Scripts.PostRemove)},
			RPM:     nfpm.RPM{Summary: p.RPM.Summary, Group: p.RPM.Group, BuildHost: p.RPM.BuildHost},
		},
	})
	must(t, nfpm.PrepareForPackager(info, format))
	packager, err := nfpm.Get(format)
	must(t, err)
	var out bytes.Buffer
	must(t, packager.Package(info, &out))
	return out.Bytes()
}

// The deb is installed in a system that has nothing but what it depends on, dpkg and systemd. The program runs, its user
// is there and may read the configuration, the unit and the socket are right, and the service of the unit's user serves.
// What is left when it is removed is the configuration, and when it is purged, nothing.
func TestDeb(t *testing.T) {
	t.Parallel()
	r := readRelease(t)
	root := debian(t, "base-files", "base-passwd", "bash", "coreutils", "dash", "diffutils", "dpkg", "grep", "gzip", "libc-bin", "login", "passwd", "sed", "systemd", "tar")
	must(t, os.WriteFile(filepath.Join(root, "mcp-bridge.deb"), r.Packages[0].pack(t, "deb", r.build(t)), 0o644))
	in := func(args ...string) string {
		return output(t, exec.Command("chroot", append([]string{root}, args...)...))
	}
	in("dpkg", "--install", "/mcp-bridge.deb")

	if got := in("mcp-bridge", "--version"); !strings.HasPrefix(got, "mcp-bridge v"+version+" ") {
		t.Errorf("the program says %q, want the version %s", got, version)
	}
	if got := in("getent", "passwd", "mcp-bridge"); !strings.Contains(got, ":/var/lib/mcp-bridge:/usr/sbin/nologin") {
		t.Errorf("its user is %q", got)
	}
	for file, want := range map[string]string{
		"/etc/mcp-bridge": "750 root:mcp-bridge", "/etc/mcp-bridge/servers.json": "640 root:mcp-bridge",
		"/usr/bin/mcp-bridge": "755 root:root", "/usr/lib/systemd/system/mcp-bridge.service": "644 root:root",
	} {
		if got := strings.TrimSpace(in("stat", "--format", "%a %U:%G", file)); got != want {
			t.Errorf("%s is %s, want %s", file, got, want)
		}
	}
	if got := in("bash", "-c", `source /usr/share/bash-completion/completions/mcp-bridge; COMP_WORDS=(mcp-bridge con) COMP_CWORD=1; _mcp_bridge_complete; echo "${COMPREPLY[@]}"`); got != "connect\n" {
		t.Errorf("bash completes con to %q, want connect", got)
	}
	if got := in("zcat", "/usr/share/man/man1/mcp-bridge.1.gz"); !strings.Contains(got, "v"+version) {
		t.Errorf("the man page is %.200q, and has no version", got)
	}
	if got := in("systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/mcp-bridge.service", "/usr/lib/systemd/system/mcp-bridge.socket"); got != "" {
		t.Errorf("systemd-analyze verify says %s", got)
	}
	serveAs(t, root)

	in("dpkg", "--remove", "mcp-bridge")
	for file, want := range map[string]bool{"/usr/bin/mcp-bridge": false, "/usr/lib/systemd/system/mcp-bridge.socket": false, "/etc/mcp-bridge/servers.json": true} {
		if _, err := os.Stat(root + file); (err == nil) != want {
			t.Errorf("after its removal %s is there: %v, want %v", file, err == nil, want)
		}
	}
	in("dpkg", "--purge", "mcp-bridge")
	if _, err := os.Stat(root + "/etc/mcp-bridge"); err == nil {
		t.Error("after it was purged, /etc/mcp-bridge is there")
	}
}

// The rpm can be made of the same description. It tells nothing of the machine that has made it, so that each makes the
// same, and says what of it is documentation.
func TestRPM(t *testing.T) {
	t.Parallel()
	r := readRelease(t)
	program := filepath.Join(t.TempDir(), "mcp-bridge")
	must(t, os.WriteFile(program, []byte("program"), 0o755))
	if got := r.Packages[0].pack(t, "rpm", program); !bytes.HasPrefix(got, []byte{0xed, 0xab, 0xee, 0xdb}) || !bytes.Contains(got, []byte("shadow-utils")) {
		t.Errorf("%d bytes, which are no rpm that depends on useradd", len(got))
	} else if !bytes.Contains(got, []byte("localhost\x00")) {
		t.Error("the rpm names the machine that has made it")
	} else if _, err := exec.LookPath("rpm"); err == nil {
		file := filepath.Join(t.TempDir(), "mcp-bridge.rpm")
		must(t, os.WriteFile(file, got, 0o644))
		const documents = "/usr/share/doc/mcp-bridge/CHANGELOG.md\n/usr/share/man/man1/mcp-bridge.1.gz\n"
		if got := output(t, exec.Command("rpm", "--query", "--package", "--docfiles", file)); got != documents {
			t.Errorf("its documentation is %q, want %q", got, documents)
		}
		if got := output(t, exec.Command("rpm", "--query", "--package", "--configfiles", file)); got != "/etc/mcp-bridge/servers.json\n" {
			t.Errorf("its configuration is %q", got)
		}
	}
}

// serveAs runs what the unit's ExecStart says as its user, until it answers on a socket, and ends it.
func serveAs(t *testing.T, root string) {
	t.Helper()
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/mcp-bridge.service"))
	must(t, err)
	_, command, _ := strings.Cut(string(unit), "\nExecStart=")
	command, _, _ = strings.Cut(command, "\n")
	argv := append([]string{"--userspec=mcp-bridge:mcp-bridge", root}, strings.Fields(command)...)
	bridge := exec.Command("chroot", append(argv, "--listen", "unix:/tmp/socket")...)
	stderr, err := bridge.StderrPipe()
	must(t, err)
	must(t, bridge.Start())
	answer, err := get(filepath.Join(root, "tmp/socket"), "/readyz", stderr)
	_ = bridge.Process.Signal(os.Interrupt)
	rest, _ := io.ReadAll(stderr)
	if ended := bridge.Wait(); cmp.Or(err, ended) != nil || !strings.Contains(answer, `"ready":true`) {
		t.Errorf("%q, %v, %v; the log: %s", answer, err, ended, rest)
	}
}
