package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// --metrics answers on its own address, to programs and not to pages in a browser.
func TestMetrics(t *testing.T) {
	var log strings.Builder
	f := metricsFlags{addr: "0"}
	if err := f.check(); err != nil || f.addr != "127.0.0.1:0" {
		t.Fatal(f.addr, err)
	}
	var seen observe.Observer
	stop, err := f.serve(&seen, nil, nil, hclog.New(&hclog.LoggerOptions{Output: &log}))
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := strings.Cut(strings.TrimSpace(log.String()), "url=")
	seen.Event(observe.Dropped{Server: "files"})
	for _, c := range []struct {
		header, value string
		status        int
	}{
		{"User-Agent", "Prometheus", 200}, {"Sec-Fetch-Site", "none", 200},
		{"Sec-Fetch-Site", "cross-site", 403}, {"Sec-Fetch-Site", "same-origin", 403},
		{"Origin", "https://evil.example", 403}, {"Host", "evil.example", 403}, {"Host", "localhost:99", 200}, {"Host", "[::1]:99", 200},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(c.header, c.value)
		if c.header == "Host" {
			r.Host = c.value
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || strings.Contains(string(body), `mcp_bridge_dropped_total{server="files"} 1`) != (c.status == 200) {
			t.Errorf("%s %s: %s", c.header, c.value, resp.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if seen.IsWatched() {
		t.Error("the messages are still watched")
	}
	for _, bad := range []string{"x:y:z", "host:"} {
		if (&metricsFlags{addr: bad}).check() == nil {
			t.Errorf("--metrics %s is taken", bad)
		}
	}
}
