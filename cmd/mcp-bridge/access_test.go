package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A socket leaves the address to --host and --port, and takes the default's place.
func TestListenAddresses(t *testing.T) {
	for line, want := range map[string][]string{
		"":                                      nil,
		"--port 1":                              {"127.0.0.1:1"},
		"--host ::1":                            {"[::1]:8080"},
		"--listen unix:/x":                      {"unix:/x"},
		"--port 1 --listen unix:/x":             {"unix:/x", "127.0.0.1:1"},
		"--listen unix:/x --listen 127.0.0.1:1": {"unix:/x", "127.0.0.1:1"},
		"--listen unix:/x --listen unix:/y --host h": {"unix:/x", "unix:/y", "h:8080"},
	} {
		fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		var f listenFlags
		f.register(fs)
		if err := fs.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		got, err := f.addresses(fs)
		if err != nil || !slices.Equal(got.given, want) || (got.fallback != "") != (want == nil) {
			t.Errorf("%s: %q, by default %q, %v; want %q", line, got.given, got.fallback, err, want)
		}
	}
}
