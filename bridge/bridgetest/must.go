package bridgetest

import "testing"

// Must fails the test, and ends it at once, if err is not nil. Like t.Fatal it is for the test's own goroutine only.
func Must(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
