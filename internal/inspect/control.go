package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// controlDir returns the folder of the control sockets, which belongs to this user alone. With
// create, it is made if need be; without, the error of a missing one is fs.ErrNotExist.
func controlDir(create bool) (string, error) {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(dir); dir != "" && filepath.IsAbs(dir) && err == nil && info.IsDir() {
		dir = filepath.Join(dir, "mcp-bridge")
	} else {
		dir = filepath.Join(os.TempDir(), "mcp-bridge-"+userID())
	}
	if create {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() || !isPrivate(info) {
		return "", fmt.Errorf("%s does not belong to this user alone", dir)
	}
	return dir, nil
}

// ListenControl serves h on the control socket of this process until stop is called. stop does what that of Serve does, and removes the
// socket. Nobody but the user of this process can connect. The socket is named by the id of the process. ListenControl removes the
// sockets of bridges that have been killed.
func ListenControl(h http.Handler) (stop func(), err error) {
	dir, err := controlDir(true)
	if err != nil {
		return nil, err
	}
	if unlock, ok := lock(dir, lockTimeout); ok { // otherwise they are left to the next bridge
		defer unlock()
		for _, path := range controlSockets(dir) {
			removeIfDead(path)
		}
	}
	path := filepath.Join(dir, strconv.Itoa(os.Getpid())+".sock")
	// Whatever has the name is of a process that has ended: ids are used again.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path) // Close removes the file
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil { // the folder has let nobody in until now
		_ = l.Close()
		return nil, err
	}
	return Serve(l, h, 0), nil
}

// Serve serves h on a listener until stop is called, with limits that suit the control socket, the page and Prometheus. stop closes
// the listener, waits a second for requests in progress, and then closes their connections. Streams must have been ended before:
// see Inspector.Close. writeTimeout is how long a reply may take; 0, for a Handler that has streams: as long as it likes.
func Serve(l net.Listener, h http.Handler, writeTimeout time.Duration) (stop func()) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // until it is closed
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
		<-done
	}
}

// lockTimeout is how long to wait for the lock of the folder of control sockets, which another process holds for milliseconds at most.
const lockTimeout = time.Second

// controlSockets returns the paths of the control sockets in dir, by their names: those of bridges that run, and of some that have been killed.
func controlSockets(dir string) (paths []string) {
	all, _ := os.ReadDir(dir)
	for _, e := range all {
		pid, is := strings.CutSuffix(e.Name(), ".sock")
		if _, err := strconv.Atoi(pid); is && err == nil && !e.Type().IsRegular() && !e.IsDir() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// removeIfDead removes the socket at path if nobody listens on it. The caller has the folder locked: a bridge
// that starts just now may have made its socket already, but not listen on it yet.
func removeIfDead(path string) {
	c, err := net.DialTimeout("unix", path, aboutTimeout)
	switch {
	case err == nil:
		_ = c.Close()
	case errors.Is(err, connRefused):
		_ = os.Remove(path)
	}
}

// RunningBridge is a bridge of this user that runs, as seen from another process.
type RunningBridge struct {
	About
	path string // the path of its control socket
}

// aboutTimeout is how long another bridge may take to accept a connection at its control socket and to say who it is.
const aboutTimeout = 2 * time.Second

// maxConcurrentChecks is how many bridges List asks at the same time.
const maxConcurrentChecks = 64

// List returns the bridges of this user that run and answer, the oldest first. Those that do not answer cost aboutTimeout
// together, up to maxConcurrentChecks of them. It removes the sockets of bridges that have been killed.
func List(ctx context.Context) ([]RunningBridge, error) {
	dir, err := controlDir(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	paths := controlSockets(dir)
	found := make([]RunningBridge, len(paths))
	errs := make([]error, len(paths))
	turns := make(chan struct{}, maxConcurrentChecks)
	var asked sync.WaitGroup
	for i, path := range paths {
		found[i].path = path
		asked.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			errs[i] = found[i].checkAlive(ctx)
		})
	}
	asked.Wait()
	var all []RunningBridge
	for i, r := range found {
		switch {
		case errs[i] == nil:
			all = append(all, r)
		case errors.Is(errs[i], connRefused):
			if unlock, ok := lock(dir, lockTimeout); ok {
				removeIfDead(r.path)
				unlock()
			}
		}
	}
	slices.SortFunc(all, func(a, b RunningBridge) int { return a.Began.Compare(b.Began) })
	return all, nil
}

// client returns an HTTP client whose requests go to the bridge's control socket, whatever host their URLs name.
func (r *RunningBridge) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", r.path)
		},
	}}
}

// checkAlive asks the bridge for its About, within aboutTimeout, and sets r.About. An error means that it does not answer.
func (r *RunningBridge) checkAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, aboutTimeout)
	defer cancel()
	resp, err := r.Get(ctx, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(&r.About)
}

// Get sends a GET request to the bridge's API. path is what follows "/api/v1/", such as "stream". Any status but 200 is an
// error. The caller closes the body.
func (r *RunningBridge) Get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://mcp-bridge/api/v1/"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := r.client().Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("the bridge %d answers with status %d", r.PID, resp.StatusCode)
	}
	return resp, nil
}
