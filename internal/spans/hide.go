package spans

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-logr/logr"
)

// secretHider takes secrets out of errors about the collector: those that the OTEL_* variables have in its URL (all but
// scheme, host and port) and in the values of headers.
type secretHider struct {
	secrets    []string       // the longest first: one may begin with another
	urlPattern *regexp.Regexp // matches a URL in a text
}

// minSecretBytes is the length of the shortest value that is looked for. Shorter ones occur by chance.
const minSecretBytes = 4

// newSecretHider returns a hider of the secrets that the OTEL_* variables of env have.
func newSecretHider(env LookupEnv) *secretHider {
	h := &secretHider{urlPattern: regexp.MustCompile(`(?i)\bhttps?://[^\s"'<>]*`)}
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		h.addURLSecrets(env.get(prefix + "ENDPOINT"))
		for _, pair := range strings.Split(env.get(prefix+"HEADERS"), ",") {
			_, value, ok := strings.Cut(pair, "=")
			if !ok {
				value = pair
			}
			h.addSecret(value)
			if plain, err := url.PathUnescape(value); err == nil {
				value = plain
			}
			h.addSecret(value)
			if _, token, ok := strings.Cut(strings.TrimSpace(value), " "); ok { // Bearer TOKEN
				h.addSecret(token)
			}
		}
	}
	slices.SortStableFunc(h.secrets, func(a, b string) int { return len(b) - len(a) })
	return h
}

// addURLSecrets has hide take out a URL, and the parts of it that may be secrets: a collector's reply may have them alone.
func (h *secretHider) addURLSecrets(text string) {
	h.addSecret(text)
	u, err := url.Parse(text)
	if err != nil {
		return
	}
	password, _ := u.User.Password()
	for _, part := range []string{password, u.User.Username(), u.RawQuery} {
		h.addSecret(part)
	}
	for _, all := range u.Query() {
		for _, v := range all {
			h.addSecret(v)
		}
	}
	if path := strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/v1/traces"); len(path) > minSecretBytes {
		h.addSecret(path)
		h.addSecret(u.EscapedPath())
	}
}

// addSecret has hide take out a value, without the spaces around it, unless it is shorter than minSecretBytes.
func (h *secretHider) addSecret(value string) {
	if value = strings.TrimSpace(value); len(value) >= minSecretBytes {
		h.secrets = append(h.secrets, value)
	}
}

// hide returns a text without secrets. Of each URL in it there is only scheme, host and port.
func (h *secretHider) hide(text string) string {
	text = h.urlPattern.ReplaceAllStringFunc(text, func(s string) string {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" {
			scheme, _, _ := strings.Cut(s, "://")
			return scheme + "://..."
		}
		return u.Scheme + "://" + u.Host
	})
	for _, v := range h.secrets {
		text = strings.ReplaceAll(text, v, "(hidden)")
	}
	return text
}

// sdkLog takes the log of the OpenTelemetry SDK, which otherwise goes to stderr and quotes settings that the SDK does
// not understand. It passes on that there was an error, without its values, and drops all else.
type sdkLog struct {
	warn func(error) // is told that the SDK does not understand a setting
}

// Init implements logr.LogSink. It does nothing.
func (sdkLog) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink. It returns false: only errors are wanted.
func (sdkLog) Enabled(int) bool { return false }

// Info implements logr.LogSink. It drops the line.
func (sdkLog) Info(int, string, ...any) {}

// WithValues implements logr.LogSink. It drops the values, in which there may be a setting.
func (l sdkLog) WithValues(...any) logr.LogSink { return l }

// WithName implements logr.LogSink. It drops the name.
func (l sdkLog) WithName(string) logr.LogSink { return l }

// Error implements logr.LogSink. It passes on only msg: the error and the values have the setting in them.
func (l sdkLog) Error(_ error, msg string, _ ...any) {
	l.warn(errors.New("a setting of OTEL_* is not understood: " + msg))
}
