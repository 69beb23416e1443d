package trace

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func open(t *testing.T, name string, o FileOptions) *File {
	t.Helper()
	f, err := NewFile(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func closed(t *testing.T, f *File) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func saved(t *testing.T, name string) []int {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	var lines [][]byte
	r := NewReader(f)
	for _, err := range r.Records() {
		if err != nil {
			t.Error(name, err)
		}
		lines = append(lines, r.Raw())
	}
	return seqs(t, lines)
}

// A full file gets another name, and so does one of an earlier run; the oldest one goes.
func TestFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace.jsonl")
	for run := range 2 {
		f := open(t, name, FileOptions{MaxBytes: 1000, MaxFiles: 3})
		put(f, 10*run+1, 10*run+1, "")
		put(f, 10*run+2, 10*run+2, strings.Repeat("x", 940))
		put(f, 10*run+3, 10*run+3, strings.Repeat("x", 2000))
		closed(t, f)
		put(f, 1000, 1000, "")
		if f.Lost() != 1 {
			t.Error(f.Lost())
		}
		wants(t, saved(t, name), 10*run+3)
		wants(t, saved(t, name+".1"), 10*run+2)
		wants(t, saved(t, name+".2"), 10*run+1)
	}
	if all, err := os.ReadDir(filepath.Dir(name)); len(all) != 3 || err != nil {
		t.Error(all, err)
	}
	f := open(t, name, FileOptions{MaxBytes: -1})
	put(f, 1, 3, strings.Repeat("x", 2000))
	closed(t, f)
	wants(t, saved(t, name), 1, 2, 3)
	wants(t, saved(t, name+".1"), 13)
	if _, err := NewFile(filepath.Dir(name), FileOptions{}); err == nil {
		t.Error("a folder is no file")
	}
}

// What comes faster than it can be written is left out, counted, and the file says so. Nobody waits.
func TestFileFull(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace.jsonl")
	f := &File{path: name, opts: FileOptions{MaxBytes: -1, MaxFiles: 1}, wake: make(chan struct{}, 1), flushNow: make(chan struct{}, 1), writerDone: make(chan struct{})}
	if err := f.rotate(); err != nil {
		t.Fatal(err)
	}
	put(f, 1, maxQueuedLines+7, "") // nobody writes yet
	if f.Lost() != 7 {
		t.Error(f.Lost())
	}
	go f.run()
	closed(t, f)
	all := saved(t, name)
	wants(t, all[len(all)-2:], maxQueuedLines, -7)

	f = &File{wake: make(chan struct{}, 1), flushNow: make(chan struct{}, 1)}
	long := strings.Repeat("x", maxQueuedBytes+1)
	put(f, 1, 2, long) // one is taken, however long
	if f.Lost() != 1 {
		t.Error(f.Lost())
	}
}

// An error of the file is told once, and what is lost is counted. The file goes on when it can.
func TestFileFails(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace.jsonl")
	var told []error
	f := &File{
		path: name, wake: make(chan struct{}, 1), flushNow: make(chan struct{}, 1),
		opts: FileOptions{MaxBytes: -1, MaxFiles: 1, OnError: func(err error) { told = append(told, err) }},
	}
	if err := f.rotate(); err != nil {
		t.Fatal(err)
	}
	_ = f.file.Close()
	for range 3 {
		f.writeLines([]byte("{}\n"), 1)
	}
	if len(told) != 1 || !errors.Is(told[0], os.ErrClosed) || f.Lost() != 3 {
		t.Error(told, f.Lost())
	}
	if err := f.rotate(); !errors.Is(err, nil) {
		t.Fatal(err)
	}
	put(f, 1, 1, "")
	f.writeLines(f.queuedLines, 1)
	wants(t, saved(t, name), -3, 1)
	_ = f.file.Close()
}

// A full file that cannot be renamed, as on Windows while somebody reads it, goes on, up to the size of all files together.
func TestFileNotRenamed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.MkdirAll(filepath.Join(name+".1", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	var told []error
	f := &File{
		path: name, wake: make(chan struct{}, 1), flushNow: make(chan struct{}, 1),
		opts: FileOptions{MaxBytes: 1000, MaxFiles: 2, OnError: func(err error) { told = append(told, err) }},
	}
	if err := f.rotate(); err != nil {
		t.Fatal(err)
	}
	write := func(seq int) {
		put(f, seq, seq, strings.Repeat("x", 850))
		f.writeLines(f.queuedLines, 1)
		f.queuedLines, f.queuedCount = nil, 0
	}
	for seq := 1; seq <= 3; seq++ {
		write(seq)
	}
	if len(told) != 2 || !errors.Is(told[0], ErrNotRenamed) || f.Lost() != 0 {
		t.Error(told, f.Lost())
	}
	write(4)
	wants(t, saved(t, name), 1, 2, 3)
	if len(told) != 3 || errors.Is(told[2], ErrNotRenamed) || f.Lost() != 1 {
		t.Error(told, f.Lost())
	}
	if err := os.RemoveAll(name + ".1"); err != nil {
		t.Fatal(err)
	}
	write(5)
	wants(t, saved(t, name), -1, 5)
	wants(t, saved(t, name+".1"), 1, 2, 3)
	_ = f.file.Close()
}

// What stands behind a name that is free keeps its name: renaming that fails each time would push the older files out.
func TestFileGap(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace.jsonl")
	for _, end := range []string{"", ".2", ".3"} {
		if err := os.WriteFile(name+end, []byte(end), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, open(t, name, FileOptions{}))
	for end, want := range map[string]string{".1": "", ".2": ".2", ".3": ".3"} {
		if got, err := os.ReadFile(name + end); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v", end, got, err)
		}
	}
}

// All that is put before Close is in the file, from whatever goroutine.
func TestFileConcurrent(t *testing.T) {
	name := filepath.Join(t.TempDir(), "trace.jsonl")
	f := open(t, name, FileOptions{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { put(f, 1, 500, "text") })
	}
	all.Wait()
	closed(t, f)
	if have := saved(t, name); len(have) != 4000 || f.Lost() != 0 {
		t.Error(len(have), f.Lost())
	}
}
