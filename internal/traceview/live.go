package traceview

import (
	"context"
	"io"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Live holds records back to put them into the order of their numbers: for reorderTime at most, and maxReordered of them.
const (
	reorderTime  = 30 * time.Millisecond
	maxReordered = 1000
)

// pendingInterval is how often Live looks for requests that wait for an answer.
const pendingInterval = time.Second

// maxWaitingRequests is how many requests without an answer Live knows. maxWaitingBytes is how long their lines may be together, in
// bytes, where lines are kept.
const (
	maxWaitingRequests = 10_000
	maxWaitingBytes    = 16 << 20
)

// liveView is what a Viewer knows of a bridge that runs.
type liveView struct {
	print        func(v *View, line []byte) error                 // prints a record if it is wanted
	waiting      map[callDirection]map[jsonrpc.ID]*waitingRequest // by where they passed, and by id
	waitingCount int                                              // requests in waiting
	keepLines    bool                                             // lines are printed as they stand there: those of requests that wait may be needed
	waitingBytes int                                              // of the lines that are kept
	printPending bool                                             // a request is printed once it waits, and not when it comes
	reprintLate  bool                                             // a request is printed again when it is late
}

// waitingRequest is a request without an answer.
type waitingRequest struct {
	record         trace.Record // without its Body
	line           []byte       // nil: it is not kept
	pendingPrinted bool         // it has waited for pendingInterval: if printPending wants it, it was printed
	latePrinted    bool         // it has waited for lateThreshold: if reprintLate wants that, it was printed again
}

// Live prints records as they come, until in ends or ctx is done. in must end with ctx. The error is that of in, of ctx or of Out.
// A request that waits longer than lateThreshold is printed again, but not with JSON.
func (s *Viewer) Live(ctx context.Context, in io.Reader) error {
	if s.isUnfiltered() {
		return s.copyLines(in)
	}
	return s.follow(ctx, in)
}

// follow is Live where records have to be parsed.
func (s *Viewer) follow(ctx context.Context, in io.Reader) error {
	l := &liveView{print: s.newPrintFunc(), waiting: make(map[callDirection]map[jsonrpc.ID]*waitingRequest), keepLines: s.JSON, printPending: s.Filter.Has("status"), reprintLate: !s.JSON}
	type item struct {
		record trace.Record
		line   []byte
	}
	items := make(chan item)
	var readErr error
	go func() {
		defer close(items)
		readErr = s.eachRecord(in, true, func(r *trace.Record, line []byte) error {
			select {
			case items <- item{*r, line}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	ticks := time.NewTicker(pendingInterval)
	defer ticks.Stop()
	var err error
	reorder := reorderer{maxItems: maxReordered, emit: l.addRecord}
	if s.JSON {
		reorder.maxItems = 0
	}
	reorderTimer := time.NewTimer(reorderTime)
	defer reorderTimer.Stop()
	for {
		select {
		case i, more := <-items:
			if !more {
				if err = reorder.flush(); err == nil {
					err = readErr
				}
				if flushed := s.Out.Flush(); err == nil {
					err = flushed
				}
				return err
			}
			if len(reorder.items) == 0 {
				reorderTimer.Reset(reorderTime)
			}
			err = reorder.add(&i.record, i.line)
		case <-reorderTimer.C:
			if err = reorder.flush(); err == nil {
				err = s.Out.Flush()
			}
		case now := <-ticks.C:
			if err = l.printWaiting(now); err == nil {
				err = s.Out.Flush()
			}
		}
		if err != nil { // nobody reads: the caller ends in
			return err
		}
	}
}

// addRecord notes which requests wait for an answer, and prints a record. A request is not printed yet if printPending.
func (l *liveView) addRecord(r *trace.Record, line []byte) error {
	v := &View{Record: r}
	switch r.Kind {
	case trace.Request:
		v.Pending = true
		if w := l.beginRequest(r, line); r.Earlier {
			return l.printEarlier(w, line)
		}
	case trace.Response:
		l.endRequest(r, oppositeDir(r.Dir), r.ID)
	case trace.Note:
		if e := r.Event; e != nil && (e.Code == "unanswered" || e.Code == "over") {
			l.endRequest(r, r.Dir, r.ID)
		}
	case trace.Notification:
		if r.Method == "notifications/cancelled" {
			if id, ok := jsonrpc.ParseID(memberAt(r.Body.Text, "params", "requestId")); ok {
				l.endRequest(r, r.Dir, id)
			}
		}
	}
	if r.Kind == trace.Request && l.printPending {
		return nil // it is printed once it waits
	}
	v.Pending = false
	return l.print(v, line)
}

// printEarlier prints a request that came before the viewer did.
func (l *liveView) printEarlier(w *waitingRequest, line []byte) error {
	v := &View{Record: &w.record, Pending: true, Waited: w.record.Duration}
	if l.printPending && v.Waited < pendingInterval {
		return nil // it is printed once it waits
	}
	w.pendingPrinted, w.latePrinted = true, v.Waited >= lateThreshold
	return l.print(v, line)
}

// beginRequest notes a request that waits for its answer, unless there are too many.
func (l *liveView) beginRequest(r *trace.Record, line []byte) *waitingRequest {
	w := &waitingRequest{record: *r}
	dropLongFields(&w.record)
	if l.keepLines && l.printPending { // else it is not needed, and it may be long
		w.line = line
	}
	if l.waitingCount >= maxWaitingRequests || l.waitingBytes+len(w.line) > maxWaitingBytes {
		return w
	}
	key := callDirection{r.Session, r.Hop, r.Dir}
	if l.waiting[key] == nil {
		l.waiting[key] = make(map[jsonrpc.ID]*waitingRequest)
	}
	if before := l.waiting[key][r.ID]; before == nil {
		l.waitingCount++
	} else {
		l.waitingBytes -= len(before.line)
	}
	l.waitingBytes += len(w.line)
	l.waiting[key][r.ID] = w
	return w
}

// endRequest notes that a request waits no more. r ends the request, which went in direction dir.
func (l *liveView) endRequest(r *trace.Record, dir string, id jsonrpc.ID) {
	key := callDirection{r.Session, r.Hop, dir}
	if own, w, ok := findRequest(l.waiting[key], id); ok {
		delete(l.waiting[key], own)
		l.waitingCount--
		l.waitingBytes -= len(w.line)
	}
	if len(l.waiting[key]) == 0 {
		delete(l.waiting, key)
	}
}

// printWaiting prints requests that wait or are late by now, each once for either.
func (l *liveView) printWaiting(now time.Time) error {
	for _, all := range l.waiting {
		for _, w := range all {
			v := &View{Record: &w.record, Pending: true, Waited: now.Sub(w.record.Time)}
			due := !w.pendingPrinted && l.printPending && v.Waited >= pendingInterval || l.reprintLate && !w.latePrinted && v.Waited >= lateThreshold
			w.pendingPrinted = w.pendingPrinted || v.Waited >= pendingInterval
			w.latePrinted = w.latePrinted || v.Waited >= lateThreshold
			if due {
				if err := l.print(v, w.line); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
