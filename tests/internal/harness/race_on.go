//go:build race

package harness

// RaceEnabled says whether the tests have the race detector.
const RaceEnabled = true
