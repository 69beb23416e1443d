package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/httpguard"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// broken is a server that has died with something private on its stderr.
type broken struct{}

func (broken) Recv(context.Context) (jsonrpc.Message, error) {
	return jsonrpc.Message{}, &stdio.ExitError{Name: "x", Err: errors.New("exit status 3"), Stderr: []string{"password at /home/me/key"}}
}
func (broken) Send(context.Context, jsonrpc.Message) error { return nil }
func (broken) Close() error                                { return nil }

// /readyz is for everybody who reaches the port, but not for other sites'
// pages (LI1, LI2), and says nothing private.
func TestHealth(t *testing.T) {
	c := newChildren(supervisor.Spec{Name: "x", Path: "no-such-command"}, 1, hclog.NewNullLogger())
	server := &child{Conn: broken{}, of: c}
	c.running = 1
	var _ bridge.Conn = server
	_, _ = server.Recv(t.Context())
	mcp := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) })
	h := routes(mcp, c, &httpguard.Policy{Loopback: true})
	get := func(path, host, origin string) (int, string) {
		r := httptest.NewRequest(http.MethodGet, "http://"+host+path, nil)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if code, body := get("/readyz", "localhost", ""); code != 200 || body != `{"ready":true,"running":1,"lastError":"the server ended: exit status 3"}`+"\n" {
		t.Errorf("/readyz with a server: %d %s", code, body)
	}
	_ = server.Close()
	if code, body := get("/readyz", "localhost", ""); code != 503 || strings.Contains(body, "no-such-command") || !strings.Contains(body, `"lastError"`) {
		t.Errorf("/readyz without one: %d %s", code, body)
	}
	if code, _ := get("/healthz", "localhost", ""); code != 200 {
		t.Errorf("/healthz: %d", code)
	}
	for _, path := range []string{"/healthz", "/readyz", "/other"} {
		if code, _ := get(path, "evil.example", ""); code != 403 {
			t.Errorf("%s for a foreign Host: %d", path, code)
		}
		if code, _ := get(path, "localhost", "https://evil.example"); code != 403 {
			t.Errorf("%s for a foreign Origin: %d", path, code)
		}
	}
	if code, _ := get("/other", "localhost", ""); code != 404 {
		t.Errorf("an unknown path: %d", code)
	}
	if code, _ := get("/mcp", "localhost", ""); code != http.StatusTeapot {
		t.Errorf("the endpoint: %d", code)
	}
}
