package traceview

import (
	"context"
	"io"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	reorderTime  = 30 * time.Millisecond // how long Live holds records back, to put them into the order of their numbers
	maxReordered = 1000                  // how many records Live holds back at most, to put them into the order of their numbers
)

// pendingInterval is how often Live looks for requests that wait for an answer. A request counts as one that waits
// (status:pending) at the first look after it has waited this long.
const pendingInterval = time.Second

const (
	maxWaitingRequests = 10_000   // how many requests without an answer a liveView keeps at most
	maxWaitingBytes    = 16 << 20 // how many bytes the lines that a liveView keeps of requests without an answer, to print them later, may have together
)

// liveView is what Viewer.Live knows of a bridge that runs: the requests that wait for an answer.
type liveView struct {
	print        func(v *View, line []byte) error                 // prints a record, with its line in the trace, if it is wanted
	waiting      map[callDirection]map[jsonrpc.ID]*waitingRequest // the requests without an answer, by where they passed, and by id
	waitingCount int                                              // how many requests are in waiting
	keepLines    bool                                             // with printPending, the lines of the requests in waiting are kept: records are printed as they stand in the trace
	waitingBytes int                                              // how many bytes the kept lines have together
	printPending bool                                             // a request is printed not when it comes, but once it has waited for pendingInterval: the filter asks for a status
	reprintLate  bool                                             // a request is printed again once it has waited for lateThreshold
}

// waitingRequest is a request without an answer.
type waitingRequest struct {
	record         trace.Record // without its Body
	line           []byte       // its line in the trace, for printWaiting to print as it stands there; nil: it is not kept (keepLines)
	pendingPrinted bool         // it has waited for pendingInterval, or was printed when it came (Earlier): printPending prints it no more
	latePrinted    bool         // it has waited for lateThreshold: reprintLate prints it no more
}

// Live prints records as they come, until in ends or ctx is done. in must end with ctx. The error is that of in, of ctx or of Out.
// A request that waits longer than lateThreshold is printed again, but not with JSON.
func (s *Viewer) Live(ctx context.Context, in io.Reader) error {
	if s.isUnfiltered() {
		return s.copyLines(in)
	}
	return s.follow(ctx, in)
}

// follow prints records as they come, as Live does, and parses each of them.
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

// addRecord takes the next record: it notes a request that waits for its answer, or that one waits no more, and prints the
// record. With printPending, a request is printed later.
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

// printEarlier prints w, a request that came before the viewer did (Earlier), whose line is line. With printPending, one that
// has not waited for pendingInterval is printed later, if there was room to keep it (beginRequest).
func (l *liveView) printEarlier(w *waitingRequest, line []byte) error {
	v := &View{Record: &w.record, Pending: true, Waited: w.record.Duration}
	if l.printPending && v.Waited < pendingInterval {
		return nil // it is printed once it waits
	}
	w.pendingPrinted, w.latePrinted = true, v.Waited >= lateThreshold
	return l.print(v, line)
}

// beginRequest adds a request that waits for its answer to waiting, and returns it. It does not add one that is too many
// (maxWaitingRequests) or too long (maxWaitingBytes). line is its line in the trace.
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

// endRequest takes the request with an id out of waiting: it waits no more. r is the record that ends it, and passed where the
// request did; dir is the direction of the request.
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

// printWaiting prints the requests that have waited for pendingInterval (with printPending) or lateThreshold (with reprintLate)
// by now, each once for either.
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
