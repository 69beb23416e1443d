// Package observe tells what passes through a bridge, and what happens in it beside that:
// to the log, to traces, to metrics and to spans.
//
// There is one Observer. It has any number of Watchers, which it tells of every message at
// both ends of the bridge (Session.Conn), and of events: sessions and processes that begin
// and end, HTTP exchanges, refusals, dropped messages. Nothing else of the bridge knows a
// Watcher. A Watcher works in the goroutines that carry the traffic, so it never waits.
//
// While nobody watches, a message costs one look at an atomic value, and nothing is
// allocated.
package observe
