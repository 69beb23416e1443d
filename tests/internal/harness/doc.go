// Package harness is what the tests that look at the real binary from outside
// share: it builds the programs under test, starts them, and waits for what
// they do.
//
// A package of tests has this in its TestMain:
//
//	func TestMain(m *testing.M) {
//		harness.Main(m, harness.Bridge(&bridgeBin), harness.Program{Bin: &childBin, Package: "tests/fixtures/child"})
//	}
//
// Main builds the programs into a folder that is gone afterwards, the bridge with the race
// detector if the tests have it. It also sees to it that several tests run at a time (AtOnce),
// however few processors there are, because these tests mostly wait for one another.
//
// Start runs a program. The program is stopped when the test ends, and a data race
// or a panic that it reports fails the test. What it logs is kept (Log, WaitLog).
//
// When all tests have run, all that bridges have written, but for messages to their clients, is searched for every secret of
// the run (secrets.go); a hit fails the run. For that, bridges that have to do with credentials log at the level trace, of which
// Log and WaitLog have only what the test has asked for, and write traces.
//
// Every wait is bounded by Patience, which is long: a loaded machine may stall, and no test
// relies on it passing. WaitUntil looks again and again at what another process changes;
// where a test can wait for an event, it does that instead.
package harness
