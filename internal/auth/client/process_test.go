//go:build unix

package client

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

func init() { roles["use"] = roleUse }

// epoch is how far the clock goes on with each line: more than the life of a token.
const epoch = 10 * time.Second

// roleUse uses the token once for each line of its input, at the time that the line says, and says
// which one it was.
func roleUse(args []string) error {
	ctx := context.Background()
	store, err := tokenstore.Open(ctx, tokenstore.Options{Dir: args[0]})
	if err != nil {
		return err
	}
	now := time.Unix(0, 0)
	header := http.Header{"User-Agent": {strconv.Itoa(os.Getpid())}}
	c, err := New(Options{Store: store, Server: args[1] + "/mcp", ClientID: "c1", Now: func() time.Time { return now },
		HTTPClient: &http.Client{Transport: named{header}}})
	if err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n, err := strconv.Atoi(in.Text())
		if err != nil {
			return err
		}
		now = time.Unix(0, 0).Add(time.Duration(n) * epoch)
		token, err := c.Token(ctx)
		fmt.Println(token.AccessToken, err)
	}
	c.Close(ctx)
	return nil
}

// named says which process a request is of.
type named struct{ header http.Header }

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", n.header.Get("User-Agent"))
	return http.DefaultTransport.RoundTrip(r)
}

// A user is a process in roleUse.
type user struct {
	*exec.Cmd
	in    *os.File
	lines *bufio.Scanner
}

func startUser(t *testing.T, dir, server string) *user {
	t.Helper()
	exe, err := os.Executable()
	bridgetest.Must(t, err)
	cmd := exec.Command(exe, dir, server)
	cmd.Env = append(os.Environ(), roleVar+"=use", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	r, in, err := os.Pipe()
	bridgetest.Must(t, err)
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	bridgetest.Must(t, err)
	bridgetest.Must(t, cmd.Start())
	_ = r.Close()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &user{cmd, in, bufio.NewScanner(out)}
}

// serveWorld is a world on loopback, with tokens of 8 seconds.
func serveWorld(t *testing.T) *world {
	w := newWorld(t)
	s := httptest.NewServer(w.fake)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	w.issuer, w.server, w.resource, w.life = s.URL, s.URL+"/mcp", s.URL+"/mcp", "8"
	o := w.options()
	o.Now = func() time.Time { return time.Unix(0, 0) }
	w.sign(t, w.credential(t, o), 8*time.Second)
	return w
}

// tell sends a line to each process, and returns what they answer; "" of one that has ended.
func tell(users []*user, n int) []string {
	for _, u := range users {
		_, _ = fmt.Fprintln(u.in, n)
	}
	said := make([]string, len(users))
	for i, u := range users {
		if u.lines.Scan() {
			said[i] = u.lines.Text()
		}
	}
	return said
}

// TestProcesses: processes that find the token at its end at the same time ask for a new one once.
func TestProcesses(t *testing.T) {
	t.Parallel()
	const epochs = 12
	w := serveWorld(t)
	var users []*user
	for range 5 {
		users = append(users, startUser(t, w.store.Dir(), w.issuer))
	}
	for n := 1; n <= epochs; n++ {
		said := tell(users, n)
		for _, s := range said {
			if s != said[0] || !strings.HasSuffix(s, "<nil>") || !w.access[strings.Fields(s)[0]] {
				t.Errorf("in epoch %d they said %q", n, said)
			}
		}
		w.wantCount(t, "/token", n)
	}
}

// TestKilled: a process is killed with the server's answer on its way. The others wait for nobody, send what
// was replaced at most once, and after the server's no never again.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, rotated := range []bool{false, true} {
		t.Run(fmt.Sprintf("rotated=%v", rotated), func(t *testing.T) {
			t.Parallel()
			w := serveWorld(t)
			var users []*user
			for range 4 {
				users = append(users, startUser(t, w.store.Dir(), w.issuer))
			}
			tell(users, 1)
			w.then("/token", func(rw http.ResponseWriter, r *http.Request) bool {
				pid, err := strconv.Atoi(r.Header.Get("User-Agent"))
				if err == nil {
					err = syscall.Kill(pid, syscall.SIGKILL)
				}
				if err != nil {
					t.Error(err)
				}
				return !rotated // else it rotates as usual, and nobody gets the answer
			})
			gone := 0
			for _, s := range tell(users, 2) {
				if s == "" {
					gone++
				} else if !strings.HasSuffix(s, "<nil>") {
					t.Errorf("a process said %q", s)
				}
			}
			if gone != 1 {
				t.Errorf("%d processes have ended", gone)
			}
			w.wantCount(t, "/token", 3)
			tell(users, 3)
			want := 4
			if rotated {
				want = 3 // the family is revoked: only a person helps
			}
			w.wantCount(t, "/token", want)
		})
	}
}
