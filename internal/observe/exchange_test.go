package observe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// exchanges are what a Watcher is told of HTTP exchanges.
type exchanges chan *Exchange

func (exchanges) Message(*Passed) {}
func (w exchanges) Event(e Event) {
	if e, ok := e.(*Exchange); ok {
		w <- e
	}
}

// A request that is refused before its body has come is answered at once, also while somebody watches.
func TestRefusalWaitsForNoBody(t *testing.T) {
	var o Observer
	told := make(exchanges, 2)
	defer o.Watch(told)()
	refuse := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Refuse(w, r, "LI1", http.StatusForbidden, "why")
		w.WriteHeader(http.StatusForbidden)
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.ServeHTTP(refuse, w, r) }))
	server.Config.BaseContext = func(net.Listener) context.Context { return NewContext(context.Background(), &o) }
	server.Start()
	defer server.Close()
	for name, header := range map[string]string{
		"a long one":                     "Content-Length: 10000000",
		"the client waits to be told so": "Expect: 100-continue\r\nContent-Length: 10",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", header)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal("no reply: ", err)
			}
			defer resp.Body.Close()
			if e := <-told; resp.StatusCode != http.StatusForbidden || e.Status != http.StatusForbidden || e.Rule != "LI1" || e.Reason != "why" {
				t.Errorf("the client got %d, Watchers were told of %d, rule %q, %q", resp.StatusCode, e.Status, e.Rule, e.Reason)
			}
		})
	}
}

// Watchers are told how many bytes the body of a request had, of those that were read, and the caller's request keeps its own Body.
func TestRequestBytes(t *testing.T) {
	var o Observer
	told := make(exchanges, 2)
	defer o.Watch(told)()
	r := httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody)
	body := io.NopCloser(io.LimitReader(endless{}, 1000))
	r.Body = body
	o.ServeHTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.CopyN(io.Discard, r.Body, 700) }), httptest.NewRecorder(), r)
	if e := <-told; e.RequestBytes != 700 || r.Body != body {
		t.Errorf("%d bytes, want 700; the Body is %v", e.RequestBytes, r.Body)
	}
}

// endless is a Reader that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
