//go:build race

package peers

// raceEnabled says whether the tests have the race detector: then goBuild builds programs with it, too.
const raceEnabled = true
