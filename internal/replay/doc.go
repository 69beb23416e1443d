// Package replay uses a recording of a conversation, which is a trace without cuts
// (docs/trace.md), in place of one of its two ends.
//
// Load reads the messages of one session at one hop. Play takes the client's part: it says to
// a server what the client has said, in causal order, and compares what the server answers
// with what was recorded. A Fake takes the server's part: it answers calls as they were
// answered in the recording.
//
// A recording may come from anywhere: nothing in it is trusted. What it holds is bounded when
// it is loaded, and what is printed of it is escaped.
package replay
