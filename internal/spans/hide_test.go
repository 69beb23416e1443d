package spans

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

// A setting that the SDK does not understand is told once, by its name and without its text, which may be a secret. The first
// failure after that is told at once.
func TestUnclearSettings(t *testing.T) {
	const secret = "hush-hush"
	for _, c := range []struct{ attributes, sampler, ratio, want string }{
		{"team=a," + secret, "", "", "OTEL_RESOURCE_ATTRIBUTES"},
		{"team=a," + secret + ",key=%zz" + secret, "", "", "OTEL_RESOURCE_ATTRIBUTES"},
		{"key=%zz" + secret, "", "", "OTEL_RESOURCE_ATTRIBUTES"},
		{"", secret, "", "OTEL_TRACES_SAMPLER"},
		{"", "traceidratio", secret, "OTEL_TRACES_SAMPLER_ARG"},
		{"", "traceidratio", "17", "OTEL_TRACES_SAMPLER_ARG"},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", c.attributes)
		t.Setenv("OTEL_TRACES_SAMPLER", c.sampler)
		t.Setenv("OTEL_TRACES_SAMPLER_ARG", c.ratio)
		var warnings []string
		var counts []int
		s, err := New(t.Context(), os.LookupEnv, func(err error, failed int) {
			warnings, counts = append(warnings, err.Error()), append(counts, failed)
		})
		if err != nil {
			t.Fatal(err)
		}
		s.exporter.reportFailure(errors.New("refused"))
		s.Close()
		if !slices.Equal(counts, []int{0, 1}) || !strings.HasPrefix(warnings[0], c.want+" ") || warnings[1] != "refused" || strings.Contains(warnings[0], "hush") {
			t.Errorf("%+v: warnings %q of %d failures", c, warnings, counts)
		}
	}
}

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
