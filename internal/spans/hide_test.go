package spans

import (
	"strings"
	"testing"
)

// A secret that begins with another one is taken out as a whole.
func TestHiderLongestFirst(t *testing.T) {
	h := newSecretHider(func(name string) (string, bool) {
		switch name {
		case "OTEL_EXPORTER_OTLP_HEADERS":
			return "x-team=alpha,x-key=alpha-77c1f0", true
		case "OTEL_EXPORTER_OTLP_ENDPOINT":
			return "https://c.example/ingest?tenant=acme&key=acme-51d0", true
		}
		return "", false
	})
	text := h.hide("no such key alpha-77c1f0, nor acme-51d0, of alpha")
	for _, secret := range []string{"77c1f0", "51d0", "alpha"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is in %q", secret, text)
		}
	}
}
