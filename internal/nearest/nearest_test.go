package nearest

import (
	"strings"
	"testing"
)

func TestTo(t *testing.T) {
	known := []string{"command", "maxMessageSize", "url"}
	for name, want := range map[string]string{
		"comand": "command", "ocmmand": "command", "max-message-size": "maxMessageSize", "MAXMESSAGESIZE": "maxMessageSize", "urls": "url",
		"": "", "weather": "", strings.Repeat("command", 20): "",
	} {
		if got := To(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
