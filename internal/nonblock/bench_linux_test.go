package nonblock

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// clientVar is an environment variable that makes the test's executable the client of BenchmarkHTTP: its value is the URL to ask.
const clientVar = "NONBLOCK_CLIENT"

const (
	benchClients = 32  // how many requests BenchmarkHTTP has in flight
	benchSize    = 200 // how many bytes a body has
)

// clientMain makes requests until one fails.
func clientMain() {
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchClients}}
	var all sync.WaitGroup
	for range benchClients {
		all.Go(func() {
			for {
				reply, err := client.Post(os.Getenv(clientVar), "application/json", bytes.NewReader(make([]byte, benchSize)))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, reply.Body)
				_ = reply.Body.Close()
			}
		})
	}
	all.Wait()
}

// BenchmarkHTTP answers the requests of another process, each after another one, cat, has sent the body back. The three processes keep two
// processors busy. The ratio is how many requests a second are answered with the reads and writes of this package to how many are
// with those of package net, in turn.
func BenchmarkHTTP(b *testing.B) {
	servers := [2]*server{newServer(b, false), newServer(b, true)}
	var times [2]time.Duration
	for b.Loop() {
		for i, s := range servers {
			times[i] += s.run(2000)
		}
	}
	b.ReportMetric(times[0].Seconds()/times[1].Seconds(), "ratio")
	b.ReportMetric(times[1].Seconds()*1e6/2000/float64(b.N), "µs/request")
}

// server answers requests with what cat has sent back.
type server struct {
	tokens  chan struct{} // one for each request that may be answered now
	replied chan struct{} // one for each request that was
	stdin   io.Writer     // cat's

	mu      sync.Mutex           // held while a body is written to stdin and its place is put into waiting
	waiting chan chan<- struct{} // the requests whose bodies were written and have not come back, in order
}

// newServer starts a server, its client and its cat. All ends with the benchmark.
func newServer(b *testing.B, nonblocking bool) *server {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	bridgetest.Must(b, err)
	s := &server{tokens: make(chan struct{}, 1<<20), replied: make(chan struct{}, 1<<20), waiting: make(chan chan<- struct{}, benchClients)}
	cat := exec.Command("cat")
	stdin, err := cat.StdinPipe()
	bridgetest.Must(b, err)
	stdout, err := cat.StdoutPipe()
	bridgetest.Must(b, err)
	s.stdin = stdin
	if nonblocking {
		l = Listener(l)
	}
	bridgetest.Must(b, cat.Start())
	web := &http.Server{Handler: s}
	served := make(chan struct{})
	go func() { defer close(served); _ = web.Serve(l) }()
	returned := make(chan struct{})
	go func() { defer close(returned); s.passAnswers(stdout) }()
	client := exec.Command(os.Args[0])
	client.Env = append(os.Environ(), clientVar+"=http://"+l.Addr().String())
	bridgetest.Must(b, client.Start())
	b.Cleanup(func() {
		close(s.tokens)
		_ = client.Process.Kill()
		_ = client.Wait()
		_ = web.Close()
		<-served
		_ = stdin.Close()
		<-returned
		_ = cat.Wait()
	})
	return s
}

// passAnswers tells the requests in waiting that their bodies have come back.
func (s *server) passAnswers(fromCat io.Reader) {
	for p := make([]byte, benchSize); ; {
		if _, err := io.ReadFull(fromCat, p); err != nil {
			return
		}
		(<-s.waiting) <- struct{}{}
	}
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if _, ok := <-s.tokens; !ok || err != nil || len(body) != benchSize {
		return
	}
	back := make(chan struct{}, 1)
	s.mu.Lock()
	s.waiting <- back
	_, _ = s.stdin.Write(body)
	s.mu.Unlock()
	<-back
	_, _ = w.Write(body)
	s.replied <- struct{}{}
}

// run lets n requests be answered, and returns how long that took.
func (s *server) run(n int) time.Duration {
	begin := time.Now()
	for range n {
		s.tokens <- struct{}{}
	}
	for range n {
		<-s.replied
	}
	return time.Since(begin)
}
