package tests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestNginxDoctor: what doctor finds when nginx stands before the bridge: what is wrong
// with the configuration, and nothing with one that is right. The right one is that of
// contrib/nginx in what matters here.
func TestNginxDoctor(t *testing.T) {
	t.Parallel()
	nginxBin(t)
	one, two := serve(t, nil).host(), serve(t, []string{"--trusted-proxy", "127.0.0.1"}).host()
	n := startNginx(t, fmt.Sprintf(`upstream both { server %[1]s; server %[2]s; }
server { listen ADDR; proxy_set_header Host localhost;
	location /buffered/ { proxy_pass http://%[1]s/; proxy_ignore_headers X-Accel-Buffering; }
	location /small/ { proxy_pass http://%[1]s/; client_max_body_size 1m; }
	location /two/ { proxy_pass http://both/; client_max_body_size 64m; }
	location /stripping/ { proxy_pass http://%[1]s/; client_max_body_size 64m; proxy_set_header Host localhost; proxy_set_header Mcp-Session-Id ""; }
	location /down/ { proxy_pass http://127.0.0.1:1/; }
	location /good/ { proxy_pass http://%[2]s/; client_max_body_size 64m; proxy_set_header Host localhost; proxy_set_header X-Forwarded-Prefix /good; }
}`, one, two))
	for _, c := range []struct{ path, code, says string }{
		{"/buffered/mcp", "H11", "nginx"},
		{"/buffered/sse", "H11", "nginx"},
		{"/small/mcp", "H19", "client_max_body_size"},
		{"/two/mcp", "H7", "replicas"},
		{"/stripping/mcp", "H9", "Mcp-Session-Id"},
		{"/down/mcp", "H5", "nginx"},
		{"/small/sse", "H21", "/small/message"},
		{"/elsewhere", "H6", "none at"},
		{"/good/mcp", "", ""},
		{"/good/sse", "", ""},
	} {
		t.Run(c.path, func(t *testing.T) {
			t.Parallel()
			status, findings, text := doctorOf(t, "http://"+n.addr+c.path)
			if c.code == "" {
				if status != 0 || len(findings) > 0 {
					t.Errorf("status %d, want 0 and no findings:\n%s", status, text)
				}
				return
			}
			found := false
			for _, f := range findings {
				found = found || f.Code == c.code && strings.Contains(f.Title+f.Seen+f.Do, c.says)
			}
			if status != 1 || !found {
				t.Errorf("status %d, want 1 and %s with %q:\n%s", status, c.code, c.says, text)
			}
		})
	}
}

// A doctorFinding is one of the report in JSON.
type doctorFinding struct{ Code, Severity, Title, Seen, Means, Do string }

// doctorOf runs doctor for a URL. The proxies of the environment are not for this machine.
func doctorOf(t *testing.T, args ...string) (status int, findings []doctorFinding, text string) {
	t.Helper()
	status, text, errs := runBridge(t, []string{"NO_PROXY=*"}, append([]string{"doctor", "--json"}, args...)...)
	var report struct{ Findings []doctorFinding }
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("status %d, no report: %v\n%s", status, err, errs)
	}
	return status, report.Findings, text
}
