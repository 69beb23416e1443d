package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// health asks a bridge at each kind of address, and its exit status is what the bridge says.
func TestHealth(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz", "/tools/healthz":
			_, _ = w.Write([]byte(`{"ready":true}` + "\n"))
		case "/moved":
			http.Redirect(w, r, "/readyz", http.StatusFound)
		default:
			http.Error(w, `{"ready":false}`, http.StatusServiceUnavailable)
		}
	})
	plain := httptest.NewServer(handler)
	defer plain.Close()
	encrypted := httptest.NewTLSServer(handler)
	defer encrypted.Close()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skip(err)
	}
	local := httptest.NewUnstartedServer(handler)
	local.Listener = l
	local.Start()
	defer local.Close()
	gone := "http://" + bridgetest.FreeAddr(t)

	for address, want := range map[string]int{
		plain.URL: exitOK, plain.URL + "/": exitOK, strings.TrimPrefix(plain.URL, "http://"): exitOK, plain.URL + "/tools/healthz": exitOK,
		encrypted.URL: exitOK, "unix:" + path: exitOK,
		plain.URL + "/tools": exitFail, plain.URL + "/moved": exitFail, gone: exitFail, "unix:" + path + "2": exitFail,
		"ftp://127.0.0.1": exitUsage, "unix:": exitUsage, plain.URL + " again": exitUsage,
	} {
		status, out, errs := try(t, append([]string{"health"}, strings.Fields(address)...)...)
		if status != want || (out == `{"ready":true}`+"\n") != (want == exitOK) || (errs == "") != (want == exitOK) {
			t.Errorf("%s: exit status %d, want %d; it says %q, %q", address, status, want, out, errs)
		}
	}
}
