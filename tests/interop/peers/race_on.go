//go:build race

package peers

// raceEnabled says whether the tests have the race detector: if so, goBuild puts it into the programs that are to have it, too.
const raceEnabled = true
