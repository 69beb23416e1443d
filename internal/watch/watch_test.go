package watch

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func TestMain(m *testing.M) { bridgetest.CheckLeaks(m) }

const patience = 20 * time.Second

// start watches files, by events alone, and returns a channel of the calls. What
// they contain when it returns is the base.
func start(t *testing.T, files func() []string) <-chan struct{} {
	t.Helper()
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, &watcher{notify: notify, pollInterval: time.Hour}, files)
}

func startWith(t *testing.T, w *watcher, files func() []string) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	calls := make(chan struct{}, 100)
	var wg sync.WaitGroup
	w.recordNew(files())
	wg.Go(func() { run(ctx, w, files, func() { calls <- struct{}{} }) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if w.notify != nil {
			_ = w.notify.Close()
		}
	})
	return calls
}

func awaitCall(t *testing.T, calls <-chan struct{}, after string) {
	t.Helper()
	select {
	case <-calls:
	case <-time.After(patience):
		t.Fatalf("not called after %s", after)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func only(files ...string) func() []string { return func() []string { return files } }

func TestWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.json")
	write(t, file, "1")
	calls := start(t, only(file))

	write(t, file, "2")
	awaitCall(t, calls, "a write")

	// Most editors write a new file and rename it over the old one.
	write(t, filepath.Join(dir, "tmp"), "3")
	must(t, os.Rename(filepath.Join(dir, "tmp"), file))
	awaitCall(t, calls, "a rename over the file")

	must(t, os.Remove(file))
	awaitCall(t, calls, "the deletion")
	write(t, file, "3")
	awaitCall(t, calls, "the re-creation")
}

// The directory of a file goes away with it, and comes back.
func TestDirectoryReplaced(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "conf")
	file := filepath.Join(dir, "a.json")
	must(t, os.Mkdir(dir, 0o700))
	write(t, file, "1")
	calls := start(t, only(file))

	must(t, os.RemoveAll(dir))
	awaitCall(t, calls, "the deletion of the directory")
	must(t, os.Mkdir(dir, 0o700))
	write(t, file, "2")
	awaitCall(t, calls, "the re-creation of the directory")
	write(t, file, "3")
	awaitCall(t, calls, "a write in the new directory")
}

// A release is switched by a link somewhere in the path, and Kubernetes
// switches the link ..data beside the file.
func TestLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"v1", "v2", "v3"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		write(t, filepath.Join(dir, name, "a.json"), name)
	}
	must(t, os.Mkdir(filepath.Join(dir, "mount"), 0o700))
	if err := os.Symlink("../v1", filepath.Join(dir, "mount", "..data")); err != nil {
		t.Skip("no symbolic links here: ", err)
	}
	file := filepath.Join(dir, "mount", "a.json")
	must(t, os.Symlink("..data/a.json", file))
	calls := start(t, only(file))

	swap := func(target string) {
		t.Helper()
		must(t, os.Symlink(target, filepath.Join(dir, "mount", "..tmp")))
		must(t, os.Rename(filepath.Join(dir, "mount", "..tmp"), filepath.Join(dir, "mount", "..data")))
	}
	swap("../v2")
	awaitCall(t, calls, "the exchange of the link")
	write(t, filepath.Join(dir, "v2", "a.json"), "other")
	awaitCall(t, calls, "a write where the new link leads")
	swap(filepath.Join(dir, "v3"))
	awaitCall(t, calls, "the exchange for an absolute link")
	write(t, filepath.Join(dir, "v3", "a.json"), "other 3")
	awaitCall(t, calls, "a write behind the absolute link")
}

// What the set of files is, is asked again; a name that is new is no change.
func TestSetGrows(t *testing.T) {
	t.Parallel()
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	write(t, a, "1")
	write(t, b, "1")
	var mu sync.Mutex
	files := []string{a}
	calls := start(t, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(files)
	})
	mu.Lock()
	files = []string{a, b}
	mu.Unlock()
	write(t, a, "2")
	awaitCall(t, calls, "a write to the first file")
	// The look that follows the call may still be to come, and takes b as it
	// is then: so b is written until that is noticed.
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for text := "2"; ; text += "2" {
		write(t, b, text)
		select {
		case <-calls:
			return
		case <-tick.C:
		}
		if len(text) > 40 {
			t.Fatal("not called after writes to the second file")
		}
	}
}

// Other files of the directory, and writing what is there already, are no
// change.
func TestNoChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.json")
	write(t, file, "1")
	w := &watcher{}
	if w.checkChanged([]string{file}) {
		t.Error("the first look found a change")
	}
	write(t, filepath.Join(dir, "b.json"), "1")
	write(t, file, "1")
	must(t, os.Chtimes(file, time.Now(), time.Now().Add(time.Hour)))
	if w.checkChanged([]string{file}) {
		t.Error("found a change although the bytes are the same")
	}
	write(t, file, "2")
	if !w.checkChanged([]string{file}) || w.checkChanged([]string{file}) {
		t.Error("a change is to be found once")
	}
	// A pipe in place of the file must not be opened: that would block.
	must(t, os.Remove(file))
	must(t, os.Mkdir(file, 0o700))
	if !w.checkChanged([]string{file}) {
		t.Error("a directory in place of the file was not noticed")
	}
}

// Where the system reports nothing, the files are looked at all the same.
func TestPolling(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.json")
	write(t, file, "1")
	calls := startWith(t, &watcher{pollInterval: 10 * time.Millisecond}, only(file))
	write(t, file, "2")
	awaitCall(t, calls, "a write")
}

// What happens before the directories are watched is found, although nothing
// reports it.
func TestChangeBeforeWatch(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.json")
	write(t, file, "1")
	w := &watcher{pollInterval: time.Hour}
	w.recordNew([]string{file})
	write(t, file, "2")
	awaitCall(t, startWith(t, w, only(file)), "a write that nothing reported")
}

// What happens while changed is at work is a change of its own.
func TestChangeDuringCall(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.json")
	write(t, file, "1")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := time.AfterFunc(patience, cancel)
	defer timer.Stop()
	w := &watcher{pollInterval: 10 * time.Millisecond}
	w.recordNew([]string{file})
	write(t, file, "2")
	calls := 0
	run(ctx, w, only(file), func() {
		if calls++; calls == 1 {
			write(t, file, "3")
		} else {
			cancel()
		}
	})
	if calls != 2 {
		t.Errorf("called %d times, want 2", calls)
	}
}

// Nobody is called when the context is done, and Files returns.
func TestEnd(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.json")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	Files(ctx, only(file), func() { t.Error("called although the context is done") })
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(dir, "real", "deep"), 0o700))
	write(t, filepath.Join(dir, "real", "deep", "f"), "1")
	if err := os.Symlink("real", filepath.Join(dir, "current")); err != nil {
		t.Skip("no symbolic links here: ", err)
	}
	must(t, os.Symlink("circle", filepath.Join(dir, "circle")))
	for _, tt := range []struct {
		file string
		want []string
	}{
		{"real/deep/f", []string{"real/deep"}},
		{"real/deep/none", []string{"real/deep"}},
		{"real/none/none", []string{"real"}},
		{"current/deep/f", []string{"", "real/deep"}},
		{"current/../current/deep/f", []string{"", "real/deep"}}, // cleaned, as the system of names has it
		{"circle", []string{""}},
	} {
		var got []string
		for _, p := range directoriesOf(filepath.Join(dir, tt.file)) {
			rel, err := filepath.Rel(dir, p)
			must(t, err)
			if rel == "." {
				rel = ""
			}
			if rel = filepath.ToSlash(rel); !slices.Contains(got, rel) {
				got = append(got, rel)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: watched %q, want %q", tt.file, got, tt.want)
		}
	}
}
