//go:build unix

package tests

import (
	"fmt"
	"testing"
)

// TestServePTY: with a terminal as the child's stdout, nothing is echoed,
// cut or changed.
func TestServePTY(t *testing.T) {
	t.Parallel()
	c := serve(t, []string{"--pty"}).open("2025-06-18")
	for i, params := range []string{tricky, big(1 << 20), `{"tab":"a\tb","control":"\u0003\u0004\u001a"}`} {
		got := c.answer(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"echo","params":%s}`, i, params))
		if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, i, params); got != want {
			t.Errorf("got %d bytes %.100q, want %d bytes %.100q", len(got), got, len(want), want)
		}
	}
	checkProgress(t, c.call(progressCall("9", "progress", 2000)), "9", 2000)
}
