package eventlog

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// onceInterval is for how long after a warning others about the same server, with the same reason, become lines of the level debug.
const onceInterval = time.Minute

// Once returns a Logger that writes a warning about a server (the field "server") once: what
// is wrong with a server is noticed by each of those who wanted something of it, at the same
// time or in turn. A warning whose error, or reason and status, was told less than a minute ago
// becomes a line of the level debug. When it comes again later, it is a warning, and the field
// "times" says how often it came meanwhile. Warnings without a server, or without a reason, stay as they are.
func Once(log hclog.Logger) hclog.Logger {
	return &onceLogger{log, &toldCauses{causesByServer: make(map[string][]*warningCause)}}
}

// onceLogger is the Logger that Once returns. A warning becomes a line of the level debug if its reason was told
// of the same server less than onceInterval ago. Later it is a warning again.
type onceLogger struct {
	hclog.Logger
	told *toldCauses // what was told lately
}

// toldCauses is what was told of servers. A Logger and all that were made of it (With) share one.
type toldCauses struct {
	mu             sync.Mutex                 // guards causesByServer with all in it
	causesByServer map[string][]*warningCause // by the name of the server: its latest maxCauses reasons
}

// warningCause is a reason for which a warning about a server was written. Within onceInterval of that, further warnings
// about the server for the same reason become lines of the level debug, and are counted.
type warningCause struct {
	text       string    // the reason in words, as causeOf returns it
	toldAt     time.Time // when a warning was written of it last
	timesSince int       // how often it came since then
}

// maxCauses is how many reasons are kept of each server.
const maxCauses = 10

// Warn implements hclog.Logger. It writes a warning, or a line of the level debug if the same was told of the server lately.
func (o *onceLogger) Warn(msg string, args ...any) {
	text, server := causeOf(slices.Concat(o.ImpliedArgs(), args))
	if text == "" || server == "" {
		o.Logger.Warn(msg, args...)
		return
	}
	again, times := o.told.checkRepeat(server, text)
	switch {
	case again:
		o.Logger.Debug(msg, args...)
	case times > 0:
		o.Logger.Warn(msg, append(args[:len(args):len(args)], "times", times)...)
	default:
		o.Logger.Warn(msg, args...)
	}
}

// Log implements hclog.Logger. It writes a warning as Warn does, and a line of another level as it is.
func (o *onceLogger) Log(level hclog.Level, msg string, args ...any) {
	if level == hclog.Warn {
		o.Warn(msg, args...)
		return
	}
	o.Logger.Log(level, msg, args...)
}

// With implements hclog.Logger. The Logger that it returns shares what was told with this one.
func (o *onceLogger) With(args ...any) hclog.Logger {
	return &onceLogger{o.Logger.With(args...), o.told}
}

// causeOf returns the reason that the fields of a line give, in words (text), and the server that the line is about; "": the fields
// do not say it. args are names and values in turn.
func causeOf(args []any) (text, server string) {
	reason, status := "", ""
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "server":
			server = fmt.Sprint(args[i+1])
		case "error":
			text = fmt.Sprint(args[i+1])
		case "reason":
			reason = fmt.Sprint(args[i+1])
		case "status":
			status = fmt.Sprint(args[i+1])
		}
	}
	// What to do about it, and what the bridge does, is not part of the reason.
	text, _, _ = strings.Cut(text, "; ")
	switch {
	case reason == "" || status == "":
		return text, server
	case strings.HasPrefix(reason, "authorization_"): // the words say what is wrong
		return strings.TrimSpace(reason + " " + status + " " + text), server
	}
	return reason + " " + status, server // the words vary with who has noticed it
}

// checkRepeat reports whether a reason, or one whose text contains it or stands in it, was told of a server less than onceInterval ago
// (again). If it was told longer ago, times is how often it came since then without a warning. If again is false, the reason is
// noted as told now.
func (t *toldCauses) checkRepeat(server, text string) (again bool, times int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.causesByServer[server] {
		if !strings.Contains(c.text, text) && !strings.Contains(text, c.text) {
			continue
		}
		if now.Sub(c.toldAt) < onceInterval {
			c.timesSince++
			return true, 0
		}
		times = c.timesSince
		c.toldAt, c.timesSince = now, 0
		return false, times
	}
	all := append(t.causesByServer[server], &warningCause{text: text, toldAt: now})
	t.causesByServer[server] = all[max(0, len(all)-maxCauses):]
	return false, 0
}
