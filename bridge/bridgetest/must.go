package bridgetest

import "testing"

// Must ends the test at once if err is not nil. Like t.Fatal it is for the goroutine of the
// test only.
func Must(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
