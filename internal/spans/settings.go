package spans

import (
	"errors"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/sdk/resource"
)

// settingWarner tells of each setting that the SDK does not understand, once: the SDK reads some of them twice. It quotes none, for
// a setting may be a secret. It is not for concurrent use.
type settingWarner struct {
	warn func(error)     // is told in words that name the variable
	told map[string]bool // what warn was told
}

// unclearAttributes says that OTEL_RESOURCE_ATTRIBUTES is not understood as a whole.
const unclearAttributes = "OTEL_RESOURCE_ATTRIBUTES has an entry that is not understood: write key=value,key=value, and %25 for a %"

// handle takes an error of the SDK about a setting: it tells of the setting.
func (w *settingWarner) handle(err error) { w.tell(unclearSetting(err)) }

// tell tells of a setting in these words, unless it was told of in them before.
func (w *settingWarner) tell(words string) {
	if !w.told[words] {
		w.told[words] = true
		w.warn(errors.New(words))
	}
}

// unclearSetting returns words for an error of the SDK about a setting, without what the error quotes.
func unclearSetting(err error) string {
	text := err.Error()
	_, isEscape := errors.AsType[url.EscapeError](err)
	switch { // the other errors of the SDK have no exported type or value
	case isEscape || errors.Is(err, resource.ErrPartialResource):
		return unclearAttributes
	case strings.HasPrefix(text, "unsupported sampler"):
		return "OTEL_TRACES_SAMPLER names no sampler that is known: parentbased_always_on is used"
	case strings.HasPrefix(text, "parsing sampler argument") || strings.HasPrefix(text, "invalid trace ID ratio"):
		return "OTEL_TRACES_SAMPLER_ARG is no number from 0 to 1: 1 is used"
	}
	return "a setting of OTEL_* is not understood"
}
