package wrap

import "testing"

// A name that cannot be told from a flag is refused: Unwrap would not find the command again.
func TestNameLikeFlag(t *testing.T) {
	for _, name := range []string{"--", "--name=x"} {
		if out, err := Wrap([]byte(`{"mcpServers":{"`+name+`":{"command":"x","args":[]}}}`), name, "/bin/mcp-bridge"); err == nil {
			t.Errorf("%s: %s", name, out)
		}
	}
}
