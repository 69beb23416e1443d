package inspect

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

const (
	maxBatchRecords   = 2048             // how many records of the Ring a viewer gets in one event at most
	keepAliveInterval = 15 * time.Second // after how long without a record a stream writes something, to show that it is alive
	viewerTimeout     = 30 * time.Second // how long a viewer may take nothing of what is written before it is cut off
	maxViewers        = 32               // how many streams may be open at a time
	maxBatchBytes     = 1 << 20          // about how many bytes of an event are collected before they are written
)

// viewers counts the open streams: those who look at the traffic. While there are any, messages are recorded, and answers counted.
type viewers struct {
	mu        sync.Mutex // guards the fields below
	attached  int        // how many streams are open
	stopFuncs []func()   // end the recording, and the counting of answers; nil while no stream is open
}

// count returns how many streams are open.
func (v *viewers) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.attached
}

// addViewer counts a viewer until release is called. While there are viewers, messages are recorded, and answers counted. ok is false
// if there are maxViewers already, or the Inspector is closed.
func (i *Inspector) addViewer() (release func(), ok bool) {
	v := &i.viewers
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.attached >= maxViewers || i.ctx.Err() != nil {
		return nil, false
	}
	if v.attached++; v.attached == 1 {
		v.stopFuncs = []func(){i.opts.Recorder.AddSink(i.opts.Ring), i.opts.Observer.WatchFor(i.stats, observe.Needs{})}
	}
	return sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.attached--; v.attached == 0 {
			for _, stop := range v.stopFuncs {
				stop()
			}
			v.stopFuncs = nil
			i.stats.clear()
		}
	}), true
}

// records answers a request with the records that the Ring holds: a file that `mcp-bridge trace` reads. They are of the times at which
// somebody had a stream open.
func (i *Inspector) records(w http.ResponseWriter, _ *http.Request, _ caller) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Disposition", `attachment; filename="mcp-bridge.trace.jsonl"`)
	w.Header().Set("Cache-Control", "no-store")
	c := http.NewResponseController(w)
	var f *trace.Follower
	i.opts.Recorder.RunBetween(func() { f = i.opts.Ring.Follow(0) }) // the Ring has all that was told before the request
	for {
		lines := f.Ready(maxBatchRecords)
		_ = c.SetWriteDeadline(time.Now().Add(viewerTimeout))
		for _, line := range lines {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
		if len(lines) < maxBatchRecords {
			return
		}
	}
}

// stream answers with records as they come, until the viewer goes: as events, or as lines
// if its Accept asks for those first.
//
// An event is a batch of records, a line each. Its id says where to go on; a viewer that comes back names it in
// Last-Event-ID. ?from=start begins with the oldest record there is. A viewer that begins anew gets
// the requests that wait already before all else.
func (i *Inspector) stream(w http.ResponseWriter, r *http.Request, _ caller) {
	release, ok := i.addViewer()
	if !ok {
		http.Error(w, "there are too many viewers", http.StatusServiceUnavailable)
		return
	}
	defer release()
	out := &streamWriter{w: w, controller: http.NewResponseController(w), epoch: i.epoch, asJSONLines: strings.HasPrefix(r.Header.Get("Accept"), "application/x-ndjson")}
	var follower *trace.Follower
	var isResumed bool
	began := i.opts.Recorder.RunBetween(func() { follower, isResumed = i.follow(r) })
	kind := "text/event-stream"
	if out.asJSONLines {
		kind = "application/x-ndjson"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(i.ctx, cancel)()
	if out.writeKeepAlive(follower.Position()) != nil {
		return
	}
	if !isResumed {
		if lines := i.waitingLines(began); len(lines) > 0 && out.write(lines, follower.Position()) != nil {
			return
		}
	}
	for {
		lines, err := nextRecords(ctx, follower)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil || len(lines) == 0:
			err = out.writeKeepAlive(follower.Position())
		default:
			err = out.write(lines, follower.Position())
		}
		if err != nil {
			return
		}
	}
}

// waitingLines returns a record, as a line, for each request that waits for an answer. began is when the viewer began to follow: requests
// that came later and were recorded are left out, as the viewer gets their records anyway.
func (i *Inspector) waitingLines(began time.Time) (lines [][]byte) {
	for _, w := range i.opts.WaitingCalls() {
		if !w.Told || !w.Since.After(began) {
			lines = append(lines, i.opts.Recorder.WaitingLine(&w))
		}
	}
	return lines
}

// follow returns a Follower of the Ring that begins where the request wants to: behind its Last-Event-ID (isResumed), with the oldest
// record, or with the next one. A Last-Event-ID that another Inspector has given also means the oldest.
func (i *Inspector) follow(r *http.Request) (f *trace.Follower, isResumed bool) {
	epoch, position, _ := strings.Cut(r.Header.Get("Last-Event-ID"), ".")
	n, err := strconv.ParseUint(position, 10, 64)
	switch {
	case epoch == i.epoch && err == nil:
		return i.opts.Ring.Follow(n), true
	case epoch != "" || r.URL.Query().Get("from") == "start":
		return i.opts.Ring.Follow(0), false
	}
	return i.opts.Ring.FollowNew(), false
}

// nextRecords waits for records and returns them as lines, maxBatchRecords at most. After keepAliveInterval without any it returns an
// error, as when ctx is done.
func nextRecords(ctx context.Context, f *trace.Follower) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keepAliveInterval)
	defer cancel()
	return f.Next(ctx, maxBatchRecords)
}

// streamWriter writes the records of a stream to one viewer.
type streamWriter struct {
	w           http.ResponseWriter      // the reply to the viewer's request
	controller  *http.ResponseController // sets w's deadlines and flushes it
	epoch       string                   // Inspector.epoch, with which the ids of events begin
	asJSONLines bool                     // records are written as JSON Lines; false: as Server-Sent Events
	buf         []byte                   // what flush writes next
}

// writeKeepAlive writes something that is no record, to show that the stream is alive. As an event it has the id of position, where
// the viewer goes on.
func (s *streamWriter) writeKeepAlive(position uint64) error {
	if s.asJSONLines {
		s.buf = append(s.buf[:0], '\n')
	} else {
		s.buf = append(s.appendEventID(s.buf[:0], position), ": \n\n"...)
	}
	return s.flush()
}

// appendEventID appends the line with the id of an event to dst: the epoch and a position in the Ring, where a viewer that names the
// id goes on.
func (s *streamWriter) appendEventID(dst []byte, position uint64) []byte {
	dst = append(append(dst, "id: "...), s.epoch...)
	dst = append(dst, '.')
	return append(strconv.AppendUint(dst, position, 10), '\n')
}

// write writes lines, which are records, as JSON Lines or as one event. position is where the viewer goes on after them.
func (s *streamWriter) write(lines [][]byte, position uint64) error {
	s.buf = s.buf[:0]
	if !s.asJSONLines {
		s.buf = s.appendEventID(s.buf, position)
	}
	for _, line := range lines {
		if !s.asJSONLines {
			s.buf = append(s.buf, "data: "...)
		}
		s.buf = append(s.buf, line...)
		if len(s.buf) > maxBatchBytes {
			if err := s.flush(); err != nil {
				return err
			}
			s.buf = s.buf[:0]
		}
	}
	if !s.asJSONLines {
		s.buf = append(s.buf, '\n')
	}
	return s.flush()
}

// flush writes buf to the viewer, which has viewerTimeout to take it.
func (s *streamWriter) flush() error {
	_ = s.controller.SetWriteDeadline(time.Now().Add(viewerTimeout))
	if _, err := s.w.Write(s.buf); err != nil {
		return err
	}
	return s.controller.Flush()
}
