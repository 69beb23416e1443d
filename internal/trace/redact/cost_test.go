package redact

import (
	"strings"
	"testing"
	"time"
)

// A peer chooses what is looked at, in the goroutines that carry the traffic.
func TestCostIsLinear(t *testing.T) {
	const n = 1 << 20
	nested := func(open string) string {
		return `{"params":` + strings.Repeat(open, 900) + `[` + strings.Repeat("1,", n/2) + `1]` + strings.Repeat("}", 900) + `}`
	}
	for name, text := range map[string]string{
		"assignments in assignments": `{"params":{"x":"\"token\":1 ` + strings.Repeat("token=", n/6) + `"}}`,
		"many schemas":               `{"params":{` + strings.Repeat(`"requestedSchema":1,`, n/20) + `"a":1},"method":"m"}`,
		"values in values":           nested(`{"value":`),
		"named values in values":     nested(`{"name":"token","value":`),
	} {
		t.Run(name, func(t *testing.T) {
			d := redactor(t, Options{})
			began := time.Now()
			d.Message([]byte(text), nil)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("1 MiB take %v", took)
			}
		})
	}
}

func TestNamedValuesAreTakenOut(t *testing.T) {
	d := redactor(t, Options{})
	for text, want := range map[string]string{
		`{"a":{"name":"token","value":{"b":["geheim-1"]}},"c":1}`:                  `{"a":{"name":"token","value":"[redacted]"},"c":1}`,
		`{"a":{"value":[1,2,3],"name":"token"}}`:                                   `{"a":{"value":"[redacted]","name":"token"}}`,
		`{"value":{"value":{"name":"token","value":"geheim-1"}}}`:                  `{"value":{"value":{"name":"token","value":"[redacted]"}}}`,
		`[{"name":"token","value":12345},{"name":"x","value":{"token":"geheim"}}]`: `[{"name":"token","value":"[redacted]"},{"name":"x","value":{"token":"[redacted]"}}]`,
		`{"x":"\"token\":1 token=password=\"a b c\" d"}`:                           `{"x":"\"token\":[redacted] token=[redacted]\"[redacted]\" d"}`,
	} {
		if out, _, _ := d.Message([]byte(text), nil); string(out) != want {
			t.Errorf("%s\n is %s\nnot %s", text, out, want)
		}
	}
}
