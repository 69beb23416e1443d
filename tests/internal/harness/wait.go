package harness

import (
	"os"
	"testing"
	"time"
)

// WaitUntil waits until ok returns true. It asks again and again, as ok looks at what another process
// changes: a file, its open descriptors, its children. what says, for the error, what is waited for;
// after Patience, t ends.
func WaitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(Patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// ReadFile returns what is in a file; "": it is empty, or does not exist. Another error ends t.
func ReadFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}
