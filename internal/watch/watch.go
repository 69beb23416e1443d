// Package watch tells when files change: configuration, tokens, certificates.
// It knows nothing of what is in them.
package watch

import (
	"context"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settleTime is how long nothing must happen after a change until the files are read: programs
	// write in several steps.
	settleTime = 200 * time.Millisecond
	// maxSettleTime is how long after the first sign of a change the files are read at the latest,
	// also in a directory that is never quiet.
	maxSettleTime = 2 * time.Second
	// pollInterval is how long the system may report no change until the files
	// are read all the same. Network and some virtual file systems report none,
	// and the kernel's supply of watches can be used up.
	pollInterval = 10 * time.Second
)

// Files calls changed when the content of one of files is no longer what it
// was, also when a file appears or goes away: 200 ms after the last sign of
// it, and 2 s after the first at the latest. Where the system gives no sign,
// it takes up to 10 s. It returns when ctx is done.
//
// What counts is the content behind each name: a rename over it (editors), an
// exchange of a symbolic link at any place in its path (Kubernetes, releases),
// and the deletion and re-creation of its directory are seen; a write of the
// same bytes is no change.
//
// files is asked again after each look, so the set may change; a name that is
// new in it is no change. changed is called by the goroutine that called
// Files, and never when ctx is done. What files contain when Files begins is what
// later contents are compared with; who has read them earlier than that may
// have read something older.
func Files(ctx context.Context, files func() []string, changed func()) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		notify = nil // polling remains
	} else {
		defer notify.Close()
	}
	run(ctx, &watcher{notify: notify, pollInterval: pollInterval}, files, changed)
}

// run calls changed whenever w finds that the content of one of files has changed, as Files does, until ctx
// is done.
func run(ctx context.Context, w *watcher, files func() []string, changed func()) {
	w.recordNew(files())
	for w.wait(ctx) {
		if w.checkChanged(files()) {
			changed()
			w.recordNew(files())
		}
	}
}

// A watcher remembers what a set of files contained. It belongs to one
// goroutine.
type watcher struct {
	notify       *fsnotify.Watcher  // tells of changes; nil: polling only
	pollInterval time.Duration      // how often the files are read though nothing was reported
	lastContents map[string]content // what each file contained when it was last read, by file name
	recheckSoon  bool               // something may have happened unnoticed: wait does not wait for an event, only for settleTime
}

// wait returns true when it is time to look, false when ctx is done.
func (w *watcher) wait(ctx context.Context) bool {
	var events chan fsnotify.Event
	var errs chan error
	if w.notify != nil {
		events, errs = w.notify.Events, w.notify.Errors
	}
	if !w.recheckSoon {
		poll := time.NewTimer(w.pollInterval)
		defer poll.Stop()
		select {
		case <-ctx.Done():
			return false
		case <-poll.C:
			return ctx.Err() == nil
		case <-events:
		case <-errs: // events were lost: look
		}
	}
	w.recheckSoon = false
	quiet, timeout := time.NewTimer(settleTime), time.NewTimer(maxSettleTime)
	defer quiet.Stop()
	defer timeout.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-events:
			quiet.Reset(settleTime)
		case <-errs:
		case <-quiet.C:
			return ctx.Err() == nil
		case <-timeout.C:
			return ctx.Err() == nil
		}
	}
}

// recordNew records the contents of the files that are new in the set. What is known already stays
// on record as it was, so that the next look finds what happens meanwhile.
func (w *watcher) recordNew(files []string) {
	// What a directory has reported and nobody has read yet is lost when it is
	// no longer watched.
	w.watchDirectories(files)
	w.recheckSoon = true
	if w.lastContents == nil {
		w.lastContents = map[string]content{}
	}
	for _, f := range files {
		if _, known := w.lastContents[f]; !known {
			w.lastContents[f] = readContent(f)
		}
	}
}

// checkChanged reads the files, remembers what they contain, and reports whether one that was known
// before has other content; a file that is new in the set is no change. The directories are watched
// first, so that no change falls between.
func (w *watcher) checkChanged(files []string) (changed bool) {
	w.watchDirectories(files)
	now := make(map[string]content, len(files))
	for _, f := range files {
		now[f] = readContent(f)
		if before, known := w.lastContents[f]; known && before != now[f] {
			changed = true
		}
	}
	w.lastContents = now
	return changed
}

// watchDirectories watches the directories on which files depend (directoriesOf), and no others.
// One that cannot be watched is left to the polling.
func (w *watcher) watchDirectories(files []string) {
	if w.notify == nil {
		return
	}
	var want []string
	for _, f := range files {
		want = append(want, directoriesOf(f)...)
	}
	have := w.notify.WatchList()
	for _, dir := range have {
		if !slices.Contains(want, dir) {
			_ = w.notify.Remove(dir)
		}
	}
	for _, dir := range want {
		if !slices.Contains(have, dir) {
			_ = w.notify.Add(dir)
		}
	}
}
