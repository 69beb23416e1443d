package httpdial

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A path that is in question is shown, and what may be a key in it is not.
func TestFaultShowsPath(t *testing.T) {
	for path, shown := range map[string]string{
		"/":                               "http://h/ answered",
		"":                                "http://h answered",
		"/api/v1/mcp":                     "http://h/api/v1/mcp answered",
		"/@scope/my-server/mcp?key=hush1": "http://h/@scope/my-server/mcp answered",
		"/s/NjA4hush1bXk/mcp":             "http://h/s/.../mcp answered",
		"/s/" + strings.Repeat("hush", 8): "http://h/s/... answered",
		"/my-token-hush/mcp":              "http://h/.../mcp answered",
		"/user%20hush/x":                  "http://h/.../x answered",
	} {
		u, err := ParseURL("http://h"+path, "http")
		bridgetest.Must(t, err)
		for status, has := range map[int]bool{404: true, 405: true, 500: false} {
			text := NewPeer(u, nil, map[int]string{404: "is it the path?"}).StatusFault(&http.Response{StatusCode: status}).Text
			if strings.HasPrefix(text, shown) != has && path != "" || strings.Contains(text, "hush") {
				t.Errorf("%s, %d: %s", path, status, text)
			}
		}
	}
}

// The proxy that refuses is named, without its password, and so is one that cannot be reached.
func TestProxyFaults(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no", map[string]int{"wants.example:443": http.StatusProxyAuthRequired}[r.Host]+map[string]int{"away.example:443": http.StatusBadGateway}[r.Host])
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	bridgetest.Must(t, err)
	at.User = url.UserPassword("me", "hush")
	dead := bridgetest.FreeAddr(t)
	for _, c := range []struct {
		host  string
		proxy *url.URL
		says  []string
	}{
		{"away.example", at, []string{"cannot reach https://away.example: the proxy " + at.Host + " (HTTPS_PROXY)", "502 Bad Gateway"}},
		{"wants.example", at, []string{at.Host, "407", "USER:PASSWORD@HOST"}},
		{"any.example", &url.URL{Scheme: "http", Host: dead}, []string{"cannot reach the proxy for https://any.example", dead, "NO_PROXY"}},
	} {
		transport := NewTransport(TransportOptions{})
		transport.Proxy = http.ProxyURL(c.proxy)
		u := &url.URL{Scheme: "https", Host: c.host, Path: "/mcp"}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.String(), nil)
		bridgetest.Must(t, err)
		resp, fault := NewPeer(u, nil, nil).Do(transport, req)
		transport.CloseIdleConnections()
		if fault == nil {
			resp.Body.Close()
			t.Fatal("the proxy has let it through")
		}
		for _, want := range c.says {
			if !strings.Contains(fault.Text, want) || strings.Contains(fault.Text, "hush") || fault.Reason != ReasonUnreachable {
				t.Errorf("%s: %s: %s; want %q", c.host, fault.Reason, fault.Text, want)
			}
		}
	}
	plain := &http.Request{URL: &url.URL{Scheme: "http", Host: "h"}}
	if text := proxyHint(&http.Response{Request: plain}, http.ProxyURL(at)); !strings.Contains(text, at.Host) || strings.Contains(text, "hush") {
		t.Errorf("over http: %q", text)
	}
	if text := proxyHint(&http.Response{Request: plain}, func(*http.Request) (*url.URL, error) { return nil, errors.New("x") }); text != "" {
		t.Errorf("without a proxy: %q", text)
	}
}

// An http URL of a port that speaks TLS is named as such, whatever that port answers.
func TestPlainToTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	alert, err := net.Listen("tcp", "127.0.0.1:0") // as other programs do it
	bridgetest.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := alert.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 1))
		_, _ = c.Write([]byte("\x15\x03\x01\x00\x02\x02\x0a")) // the alert unexpected_message
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	}()
	defer func() { <-done }()
	defer alert.Close()
	for _, addr := range []string{server.Listener.Addr().String(), alert.Addr().String()} {
		transport := NewTransport(TransportOptions{})
		u := &url.URL{Scheme: "http", Host: addr, Path: "/mcp"}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.String(), strings.NewReader("{}"))
		bridgetest.Must(t, err)
		peer := NewPeer(u, nil, nil)
		resp, fault := peer.Do(transport, req)
		if fault == nil {
			fault = peer.RefusalFault(resp)
			resp.Body.Close()
		}
		transport.CloseIdleConnections()
		if fault.Reason != ReasonTLS || !strings.Contains(fault.Text, "https://") {
			t.Errorf("%s: %s", fault.Reason, fault.Text)
		}
	}
}

// The log has the sentence that the client was told, and at 401 and 403 what the server says of the credentials, without these. Of other
// statuses it repeats nothing of the server: that may be of a message.
func TestAttrs(t *testing.T) {
	const secret = "hunter22-hunter22"
	rpc := func(text string) string {
		return `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"` + text + `"}}`
	}
	for name, c := range map[string]struct {
		status     int
		header     http.Header
		body       string
		wants, not []string
	}{
		"no credentials":          {401, nil, "", []string{"http://h answered 401 Unauthorized", "--header-env"}, []string{"refused"}},
		"refused, in JSON":        {401, http.Header{"Authorization": {"Bearer " + secret}}, rpc("the token " + secret + " is not valid"), []string{`it says: "the token [withheld] is not valid"`, "were sent are refused"}, []string{"give credentials", secret}},
		"refused, in words":       {401, http.Header{"X-Api-Key": {secret}}, "no such key: " + secret, []string{`it says: "no such key: [withheld]"`, "were sent are refused"}, []string{"give credentials", secret}},
		"refused, no scheme":      {401, http.Header{"Authorization": {secret}}, "", []string{"has no scheme"}, []string{"give credentials", secret}},
		"refused, no token":       {401, http.Header{"Authorization": {"Bearer "}}, "", []string{"is the variable with the token empty?"}, []string{"give credentials", "has no scheme"}},
		"forbidden":               {403, nil, "not for you", []string{"access is denied", `it says: "not for you"`}, nil},
		"a long text":             {403, nil, rpc(strings.Repeat("no ", 1000)), []string{"it says"}, []string{strings.Repeat("no ", 100)}},
		"TLS":                     {400, nil, "Client sent an HTTP request to an HTTPS server.", []string{"it speaks TLS at this port"}, nil},
		"another path":            {404, nil, "", []string{"http://h/x answered 404 Not Found: is the path right?"}, nil},
		"a message, in words":     {400, nil, "bad argument 4711", []string{"http://h answered 400 Bad Request"}, []string{"4711"}},
		"a message, in JSON":      {400, nil, rpc("bad argument 4711"), []string{"http://h answered 400 Bad Request"}, []string{"4711"}},
		"a failure of the server": {500, nil, "argument 4711", []string{"http://h answered 500 Internal Server Error"}, []string{"4711"}},
	} {
		t.Run(name, func(t *testing.T) {
			u := &url.URL{Scheme: "http", Host: "h", Path: "/x"}
			kind := "text/plain"
			if strings.HasPrefix(c.body, "{") {
				kind = "application/json"
			}
			resp := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(c.body)), Request: &http.Request{URL: u, Header: c.header}}
			got := fmt.Sprintln(NewPeer(u, c.header, map[int]string{404: "is the path right?"}).RefusalFault(resp).LogAttrs()...)
			for _, text := range c.wants {
				if strings.Count(got, text) != 1 {
					t.Errorf("want %q once in %s", text, got)
				}
			}
			for _, text := range c.not {
				if strings.Contains(got, text) {
					t.Errorf("%q is in %s", text, got)
				}
			}
		})
	}
}
