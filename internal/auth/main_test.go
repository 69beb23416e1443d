package auth

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func TestMain(m *testing.M) { bridgetest.CheckLeaks(m) }

// serve starts a server on loopback that ends with the test, and returns its address and a Caller for it.
func serve(t *testing.T, h http.HandlerFunc) (string, *EndpointCaller) {
	t.Helper()
	return serveWith(t, h, (*httptest.Server).Start)
}

// serveWith starts it with TLS, or without.
func serveWith(t *testing.T, h http.HandlerFunc, start func(*httptest.Server)) (string, *EndpointCaller) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ReadTimeout, s.Config.WriteTimeout = time.Minute, time.Minute
	start(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL, &EndpointCaller{HTTP: s.Client()}
}

// within bounds what a test waits for.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// reply answers a request with JSON.
func reply(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// wantKind fails the test unless err is an Error of this kind, and returns it.
func wantKind(t *testing.T, err error, kind ErrorKind) *Error {
	t.Helper()
	if !Is(err, kind) {
		t.Fatalf("error %v, want one of kind %d", err, kind)
	}
	return err.(*Error)
}
