package supervisor

import (
	"os"
	"strings"
)

// Detach starts a process that is not supervised: it outlives this one, the watchdog does not know it, and it
// gets no signal that is meant for our process group or terminal. It is for work that must be finished
// whatever becomes of who has begun it, and that has its own end. Its stderr is the null device; it has
// our environment and our working directory. The caller closes stdin and stdout, its ends of them.
//
// It works beside Subreap, whose stop function leaves the process alone. done is closed when the process has
// ended; a goroutine waits for that as long as we live.
func Detach(path string, args []string, stdin, stdout *os.File) (done <-chan struct{}, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, markerVar+"=") { // by it we would be found and ended
			env = append(env, v)
		}
	}
	wait, err := startDetached(path, args, env, [3]*os.File{stdin, stdout, null})
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		wait()
		close(ended)
	}()
	return ended, nil
}
