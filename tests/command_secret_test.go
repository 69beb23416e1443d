package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// What the variables in a server's command and working directory hold stands neither in the log nor in what
// clients are told, whatever is wrong with them; the log has the text of the configuration.
func TestCommandSecrets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "s3cret")
	bridgetest.Must(t, os.Mkdir(dir, 0o700))
	writeFile(t, filepath.Join(dir, "plain"), "x")
	servers := map[string]map[string]string{
		"missing":   {"command": "/nonexistent/${SECRET}"},
		"unknown":   {"command": "no-such-${SECRET}"},
		"plain":     {"command": "${SECRET_DIR}/plain"},
		"directory": {"command": childBin, "cwd": "${SECRET_DIR}/none"},
		"relative":  {"command": "./none", "cwd": "${SECRET_DIR}"},
	}
	if runtime.GOOS != "windows" {
		for name, text := range map[string]string{"script": "#!/no/such\n", "binary": "\x00\x01"} {
			writeFile(t, filepath.Join(dir, name), text)
			bridgetest.Must(t, os.Chmod(filepath.Join(dir, name), 0o700))
			servers[name] = map[string]string{"command": "${SECRET_DIR}/" + name}
		}
	}
	text, err := json.Marshal(map[string]any{"mcpServers": servers})
	bridgetest.Must(t, err)
	env := []string{"SECRET=s3cret", "SECRET_DIR=" + dir}
	s := serveArgv(t, env, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--log-level", "trace", "--config", configFile(t, string(text)))
	root := newSite(t, "http://"+s.host())
	for name := range servers {
		for _, transport := range transports {
			c := firstTalker(t, root.at("/servers/"+name), transport)
			if answer := mustAnswer(t, c, initialize("2025-06-18")); strings.Contains(answer, "s3cret") || !strings.Contains(answer, `"error"`) {
				t.Errorf("%s: initialize is answered with %s", name, answer)
			}
			c.close()
		}
		s.proc.waitLog(regexp.MustCompile(`\$\{SECRET`))
	}
	for _, path := range []string{"/readyz", "/servers"} {
		if no := root.ask(t, "GET", path, "", nil); strings.Contains(no.body, "s3cret") {
			t.Errorf("%s says %s", path, no.body)
		}
	}
	log := s.Log()
	for name, keys := range servers {
		for _, written := range keys {
			if strings.Contains(written, "${") && !strings.Contains(log, written) {
				t.Errorf("%s: the log does not say what %s is", name, written)
			}
		}
	}
	if i := strings.Index(log, "s3cret"); i >= 0 {
		t.Errorf("the log has the secret: %s", log[max(0, i-200):min(len(log), i+50)])
	}
}
