//go:build race

package metrics

// raced says that the race detector is on: a sync.Pool forgets at random then.
const raced = true
