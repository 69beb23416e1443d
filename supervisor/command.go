package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Check returns the error that Start would return for a command that is not found or not executable, or for a working directory
// that does not exist. It starts nothing. With Check a program can report a bad configuration before the first client comes.
func (s Spec) Check() error {
	if _, err := s.lookPath(); err != nil {
		return fmt.Errorf("start %s: %w", s.name(), err)
	}
	return nil
}

// lookPath returns the file to execute for Path. The error says in our own words what is wrong with the command or
// with Dir, and what to do.
func (s *Spec) lookPath() (string, error) {
	if s.Dir != "" {
		info, err := os.Stat(s.Dir)
		if err == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
		if err != nil {
			return "", fmt.Errorf("working directory %q: %w: name an existing directory", s.shownDir(), bareCause(err))
		}
	}
	switch {
	case s.Path == "":
		return "", errors.New("no command: name the program to run")
	case filepath.Base(s.Path) != s.Path:
		return s.checkedPath()
	}
	list, ok := lookupVar(s.Env, "PATH")
	if !ok {
		list = os.Getenv("PATH")
	}
	var denied error
	for _, dir := range filepath.SplitList(list) {
		if !filepath.IsAbs(dir) {
			continue // which program runs must not depend on our working directory
		}
		// LookPath of a name with a directory checks that one file. On Windows it tries
		// the endings in PATHEXT.
		file, err := exec.LookPath(filepath.Join(dir, s.Path))
		if err == nil {
			return file, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			denied = err
		}
	}
	if denied != nil {
		return "", fmt.Errorf("command %q: %w: make it executable", s.displayName(s.Path), bareCause(denied))
	}
	advice := "install it or give its full path"
	if name, _, set := strings.Cut(s.Path, "="); set && name != "" {
		advice = "no shell sets a variable in front of the command; set it in the environment (--env NAME=VALUE)"
	} else if strings.Contains(s.Path, " ") {
		advice = spacesHint
	}
	return "", fmt.Errorf("command %q: not found in PATH: %s (%w)", s.displayName(s.Path), advice, fs.ErrNotExist)
}

// spacesHint is the end of the error for a command that has spaces and is not found: it may be a whole command line in quotes.
const spacesHint = "this is looked for as one name, for no shell takes it apart; give arguments without quotes around all of them"

// checkedPath returns the file to execute for a Path that has a directory in it, or an error that says what is wrong
// with it and what to do.
func (s *Spec) checkedPath() (string, error) {
	file := s.Path
	if !filepath.IsAbs(file) {
		dir, err := filepath.Abs(s.Dir)
		if err != nil {
			return "", err
		}
		file = filepath.Join(dir, file)
	}
	found, err := exec.LookPath(file)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("command %q: %w: make it executable%s", s.displayName(s.Path), bareCause(err), s.triedFileNote(file))
	case err != nil && strings.Contains(s.Path, " "):
		return "", fmt.Errorf("command %q: %w: %s", s.displayName(s.Path), bareCause(err), spacesHint)
	case err != nil && strings.HasPrefix(s.Path, "~"):
		return "", fmt.Errorf("command %q: %w: no shell expands the ~; write the whole path", s.displayName(s.Path), bareCause(err))
	case err != nil:
		return "", fmt.Errorf("command %q: %w: check the path%s%s", s.displayName(s.Path), bareCause(err), s.startsAtNote(), s.triedFileNote(file))
	}
	return found, nil
}

// triedFileNote returns the part of an error that says which file was looked for; "" if that is what Path says, or if
// ShownPath or ShownDir is set, since the file may be secret then.
func (s *Spec) triedFileNote(file string) string {
	if file == s.Path || s.ShownPath != "" || s.ShownDir != "" {
		return ""
	}
	return fmt.Sprintf(" (tried %s)", file)
}

// startsAtNote returns the part of an error that says that a relative Path begins at Dir, for people who do not expect
// this; "" where it does not.
func (s *Spec) startsAtNote() string {
	if s.Dir == "" || filepath.IsAbs(s.Path) {
		return ""
	}
	return fmt.Sprintf(", which begins at the working directory %q", s.shownDir())
}

// explainStart returns the error of Start for err, with which the system has refused to execute the file at path that
// lookPath has found. It adds what may be the reason.
func (s *Spec) explainStart(err error, path string) error {
	path, err = s.displayName(path), bareCause(err)
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("command %q: %w: a script needs a first line such as #!/bin/sh", path, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("command %q: %w: the interpreter in its first line, or its loader, is missing", path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("command %q: %w: check that it may be executed and %q entered", path, err, strings.TrimSpace(s.shownDir()))
	}
	return fmt.Errorf("command %q: %w", path, err)
}

// displayName returns what errors call the command: ShownPath, or else path, which is Path or the file that was found.
func (s *Spec) displayName(path string) string { return cmp.Or(s.ShownPath, path) }

// shownDir returns what errors call the working directory: ShownDir, or else Dir.
func (s *Spec) shownDir() string { return cmp.Or(s.ShownDir, s.Dir) }

// bareCause returns the cause in err without the operation and the path that it is said with, because our own text has both.
func bareCause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var exe *exec.Error
	if errors.As(err, &exe) {
		return exe.Err
	}
	return err
}
