package tests

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A server that hangs, in initialize or in a call, is named in the log without anybody having
// asked for more than the usual lines.
func TestHangInLog(t *testing.T) {
	t.Parallel()
	mute := start(t, nil, bridgeBin, "connect", "--name", "mute", "--stdin-wait", "10ms", "--drain-timeout", "0s", "--grace", "0s", "--", childBin, "-no-read")
	mute.send(initialize("2025-11-25"))
	slow := serve(t, []string{"--name", "slow", "--grace", "0s"})
	s := slow.open("2025-11-25")
	go func() {
		resp, err := s.server.try(t.Context(), http.MethodPost, `{"jsonrpc":"2.0","id":"seven","method":"hang"}`, s.header())
		if err == nil {
			resp.Body.Close()
		}
	}()
	mute.waitLog(regexp.MustCompile(`\[WARN\] .*a request has no answer yet: server=mute session=s1 method=initialize id=\S+ for=1\d`))
	mute.waitLog(regexp.MustCompile(`server=mute session=s1 .*C7.*the server is silent \(initialize has no answer after 1\ds\)`))
	slow.proc.waitLog(regexp.MustCompile(`\[WARN\] .*a request has no answer yet: server=slow session=s1 method=hang id="?\\*"seven\\*""? for=1\d`))
}

// The log says at its usual level who was refused, and by which rule; of many alike it says so
// once.
func TestRefusalsInLog(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	root := s.site()
	for range 5 {
		root.ask(t, "GET", "/nothing?key=s3cret", "", nil)
	}
	root.ask(t, "POST", "/mcp", "{}", http.Header{"Content-Type": {"text/plain"}})
	root.ask(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, http.Header{"Content-Type": {"application/json"}, "Mcp-Session-Id": {"s3cret"}})
	s.proc.waitLog(regexp.MustCompile(`\[WARN\] .*request refused: server=child rule=path status=404 method=GET path=/nothing remote=127\.0\.0\.1:\d+ reason="not found`))
	s.proc.waitLog(regexp.MustCompile(`\[WARN\] .*request refused: server=child rule=LI5 status=415 method=POST path=/mcp`))
	s.proc.waitLog(regexp.MustCompile(`\[WARN\] .*request refused: server=child rule=LI21 status=404 method=POST path=/mcp`))
	s.proc.stop()
	if log := s.Log(); strings.Count(log, "request refused: server=child rule=path") != 1 || !strings.Contains(log, "times=4") || strings.Contains(log, "s3cret") {
		t.Errorf("the log is %s", log)
	}
}

// At a shutdown the log says of each session, whatever its transport, who has ended it.
func TestShutdownInLog(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, transport := range transports {
		c := firstTalker(t, s.site(), transport)
		_, err := c.exchange(t.Context(), initialize("2025-11-25"), nil)
		bridgetest.Must(t, err)
		defer c.close()
	}
	s.proc.stop()
	for _, transport := range []string{"http", "sse", "websocket"} {
		session := regexp.MustCompile(`session opened: server=child session=(s\d+) transport=` + transport).FindStringSubmatch(s.Log())
		if session == nil || !regexp.MustCompile(`session ended: server=child session=`+session[1]+` .*how="the bridge ends it"`).MatchString(s.Log()) {
			t.Errorf("%s: the log does not say that the bridge has ended the session:\n%s", transport, s.Log())
		}
	}
}

// At its lowest level the log has none of the secrets that pass through the bridge, and no
// content.
func TestNoSecretInLog(t *testing.T) {
	t.Parallel()
	const canary = "CANARY4711"
	far := serve(t, []string{"--log-level", "trace", "--env", "KEY=" + canary}, "-record", t.TempDir()+"/"+canary)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://other.example/"+canary, http.StatusFound)
	}))
	defer front.Close()
	near := serveArgv(t, []string{"TOKEN=" + canary, "MCP_BRIDGE_TOKENS=me " + canary + "0123456789abcdef"}, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--log-level", "trace",
		"--header", "Authorization: Bearer ${TOKEN}", "--header", "X-Key: "+canary, far.url+"?key="+canary)
	lost := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--log-level", "trace", "--header", "X-Key: "+canary, front.URL+"/"+canary+"?key="+canary)
	who := []string{"Authorization", "Bearer " + canary + "0123456789abcdef"}
	for _, s := range []*server{near, lost, far} {
		for _, transport := range transports {
			if s == lost && transport != "mcp" {
				continue
			}
			c := firstTalker(t, s.site().as(who...), transport)
			_, _ = c.exchange(t.Context(), initialize("2025-11-25"), nil)
			_, _ = c.exchange(t.Context(), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"password":"`+canary+`"}}}`, nil)
			c.close()
		}
		s.site().ask(t, "GET", "/ws?token="+canary, "", nil)
		s.site().ask(t, "GET", "/mcp", "", http.Header{"Authorization": {"Bearer " + canary}, "Mcp-Session-Id": {canary}, "Last-Event-Id": {canary}})
	}
	for _, s := range []*server{near, lost, far} {
		s.proc.stop()
		if i := strings.Index(s.Log(), canary); i >= 0 {
			t.Errorf("the log has a secret: %s", s.Log()[max(0, i-300):i+20])
		}
	}
	if !strings.Contains(far.Log(), " exchange: server=child session=s1 ") {
		t.Errorf("the log has no exchanges:\n%s", far.Log())
	}
}
