package command

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// isBadProgram reports whether err says that a file is no program that the system can run.
func isBadProgram(err error) bool { return errors.Is(err, syscall.ENOEXEC) }

// desktopPathFolders returns the folders of PATH of programs that are started from a desktop's menu, and not from a shell with
// its own settings; nil: they have the user's PATH.
func desktopPathFolders() []string {
	switch runtime.GOOS {
	case "darwin":
		return []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"}
	case "windows":
		return nil // it is the user's everywhere
	}
	return []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/snap/bin"}
}

// usualFolders returns folders into which package managers put programs, perhaps outside of PATH.
func usualFolders() []string {
	folders := []string{"/usr/local/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/opt/local/bin", "/usr/local/go/bin", "/snap/bin"}
	home, err := os.UserHomeDir()
	if err != nil {
		return folders
	}
	for _, f := range []string{".local/bin", "bin", ".cargo/bin", "go/bin", ".bun/bin", ".deno/bin", ".volta/bin", ".asdf/shims", ".pyenv/shims", ".npm-global/bin", "AppData/Roaming/npm"} {
		folders = append(folders, filepath.Join(home, f))
	}
	for _, pattern := range []string{".nvm/versions/node/*/bin", ".local/share/fnm/node-versions/*/installation/bin", ".rbenv/versions/*/bin"} {
		found, _ := filepath.Glob(filepath.Join(home, pattern))
		folders = append(folders, found...)
	}
	return folders
}

// findProgram returns the path of a program in the first of folders that has it; "": none has. Relative folders are left out.
func findProgram(program string, folders []string) string {
	for _, dir := range folders {
		if !filepath.IsAbs(dir) {
			continue
		}
		if file, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return file
		}
	}
	return ""
}

// searchedFolders returns the folders of the PATH with which the server is started.
func (d *diagnosis) searchedFolders() []string {
	list := os.Getenv("PATH")
	for _, v := range d.spec.Env {
		if name, value, _ := strings.Cut(v, "="); name == "PATH" || runtime.GOOS == "windows" && strings.EqualFold(name, "PATH") {
			list = value
		}
	}
	return filepath.SplitList(list)
}

// isLookedUpInPath reports whether the command is a mere name, which is looked for in PATH.
func (d *diagnosis) isLookedUpInPath() bool { return filepath.Base(d.spec.Path) == d.spec.Path }

// checkDesktopPath notes, as the fact "command", where in PATH the command is, and that clients started from a desktop may not
// find it there; on macOS that is C1.
func (d *diagnosis) checkDesktopPath() {
	if !d.isLookedUpInPath() {
		return
	}
	file := findProgram(d.spec.Path, d.searchedFolders())
	if file == "" {
		return
	}
	desktop := desktopPathFolders()
	if desktop == nil || findProgram(d.spec.Path, desktop) != "" {
		d.report.SetFact("command", "%s", file)
		return
	}
	if runtime.GOOS != "darwin" {
		d.report.SetFact("command", "%s (clients that are started from a desktop's menu may lack this folder in PATH; give them the full path)", file)
		return
	}
	d.report.SetFact("command", "%s", file)
	d.addFinding("C1", doctor.Note, "desktop clients will not find the command",
		fmt.Sprintf("%s is in %s, which is not in the PATH of programs started from the Dock or Finder: %s", d.spec.Path, filepath.Dir(file), strings.Join(desktop, ", ")),
		"Clients that are started from a terminal can start the server; those that are started otherwise report ENOENT.",
		"Write the full path into the client's configuration: "+file)
}

// addCommandNotFound adds C1: the command cannot be started at all, because of err.
func (d *diagnosis) addCommandNotFound(err error) {
	const means = "Nothing was started. Every client fails in the same way, most with \"spawn ... ENOENT\"."
	if !d.isLookedUpInPath() || !strings.Contains(err.Error(), "not found in PATH") {
		d.addFinding("C1", doctor.Error, "the command cannot be started", err.Error(), means, "Give the path of a program that exists and may be executed.")
		return
	}
	folders := d.searchedFolders()
	seen := fmt.Sprintf("%q is in no folder of PATH, which has %d: %s", d.spec.Path, len(folders), strings.Join(folders, ", "))
	do := "Install it, or give its full path: \"which " + d.spec.Path + "\" in a terminal where it works prints that."
	if file := findProgram(d.spec.Path, slices.Concat(desktopPathFolders(), usualFolders())); file != "" {
		do = "It is here, in a folder that is not in PATH: " + file + ". Give this full path."
	}
	if strings.Contains(d.spec.Path, " ") {
		do = "No shell takes the command apart: write its arguments without quotes around all of them."
	}
	if runtime.GOOS == "windows" {
		do += " On Windows npx is npx.cmd, and npm is npm.cmd."
	}
	d.addFinding("C1", doctor.Error, "the command is not found", seen, means, do)
}
