//go:build unix

package tests

import (
	"fmt"
	"os"
	"regexp"
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

// TestServeStopsAtOnce: the second SIGINT ends the bridge at once, also where the
// signal was ignored when it began, as in a background job of a script.
func TestServeStopsAtOnce(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]string{"usual": "", "ignored": `trap "" INT; `} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, nil, "sh", "-c", how+`exec "$0" "$@"`, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--stdin-wait", "10m", "--", "sleep", "600")
			p.waitLog(regexp.MustCompile("listening"))
			p.signal(os.Interrupt)
			p.waitLog(regexp.MustCompile("shutting down"))
			p.signal(os.Interrupt)
			if code := p.wait(); code != 130 {
				t.Errorf("exit status %d, want 130", code)
			}
		})
	}
}
