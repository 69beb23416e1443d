//go:build race

package redact

// raced says that the race detector is on: a sync.Pool forgets at random then.
const raced = true
