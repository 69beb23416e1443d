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
	// settle is how long nothing must happen before the files are looked at:
	// programs write in several steps.
	settle = 200 * time.Millisecond
	// longest bounds that wait in a directory that is never quiet.
	longest = 2 * time.Second
	// pollEvery is how often the files are looked at although nothing is
	// reported. Network and some virtual file systems report nothing, and the
	// kernel's supply of watches can be used up.
	pollEvery = 10 * time.Second
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
	run(ctx, &watcher{notify: notify, poll: pollEvery}, files, changed)
}

func run(ctx context.Context, w *watcher, files func() []string, changed func()) {
	w.adopt(files())
	for w.wait(ctx) {
		if w.haveChanged(files()) {
			changed()
			w.adopt(files())
		}
	}
}

// A watcher remembers what a set of files contained. It belongs to one
// goroutine.
type watcher struct {
	notify      *fsnotify.Watcher // nil: polling only
	poll        time.Duration
	seen        map[string]content
	recheckSoon bool // something may have happened unnoticed: look soon
}

// wait returns true when it is time to look, false when ctx is done.
func (w *watcher) wait(ctx context.Context) bool {
	var events chan fsnotify.Event
	var errs chan error
	if w.notify != nil {
		events, errs = w.notify.Events, w.notify.Errors
	}
	if !w.recheckSoon {
		poll := time.NewTimer(w.poll)
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
	quiet, enough := time.NewTimer(settle), time.NewTimer(longest)
	defer quiet.Stop()
	defer enough.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-events:
			quiet.Reset(settle)
		case <-errs:
		case <-quiet.C:
			return ctx.Err() == nil
		case <-enough.C:
			return ctx.Err() == nil
		}
	}
}

// adopt takes what is new in the set as it is now. What is known already stays
// on record as it was, so that the next look finds what happens meanwhile.
func (w *watcher) adopt(files []string) {
	// What a directory has reported and nobody has read yet is lost when it is
	// no longer watched.
	w.watchFolders(files)
	w.recheckSoon = true
	if w.seen == nil {
		w.seen = map[string]content{}
	}
	for _, f := range files {
		if _, known := w.seen[f]; !known {
			w.seen[f] = read(f)
		}
	}
}

// haveChanged reads the files and reports whether one that was known before has other
// content. The directories are watched first, so that no change falls between.
func (w *watcher) haveChanged(files []string) (changed bool) {
	w.watchFolders(files)
	now := make(map[string]content, len(files))
	for _, f := range files {
		now[f] = read(f)
		if before, known := w.seen[f]; known && before != now[f] {
			changed = true
		}
	}
	w.seen = now
	return changed
}

// watchFolders watches the directories on which files depend, and no others. A failure
// leaves the polling.
func (w *watcher) watchFolders(files []string) {
	if w.notify == nil {
		return
	}
	var want []string
	for _, f := range files {
		want = append(want, places(f)...)
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
