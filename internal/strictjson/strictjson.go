// Package strictjson reads JSON that says who somebody is, or what he may do: tokens, keys, metadata.
// Two readers must not understand it differently, so a name may occur only once in an object, names
// are compared exactly, and what is not UTF-8 is refused. It keeps no state.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// maxDepth is how deep JSON may be nested; deeper is an error.
const maxDepth = 32

// Fields are the members of a JSON object. Their names are compared exactly: encoding/json would
// take "ISSUER" for "issuer".
type Fields map[string]json.RawMessage

// ParseObject reads a JSON object. It is an error if data is anything else, is not UTF-8 or is nested deeper
// than maxDepth, or if a name occurs twice in it or in an object inside it: two readers could choose different
// ones (RFC 8259, 4; RFC 7519, 4).
func ParseObject(data []byte) (Fields, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8")
	}
	if err := checkUniqueNames(data); err != nil {
		return nil, err
	}
	var f Fields
	if err := json.Unmarshal(data, &f); err != nil || f == nil {
		return nil, errors.New("it is not a JSON object")
	}
	return f, nil
}

// checkUniqueNames returns an error if an object in data has a name twice, data is nested deeper
// than maxDepth, or it is not JSON.
func checkUniqueNames(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	type level struct {
		names map[string]bool // nil in an array
		value bool            // a name was read, and its value comes next
	}
	var openLevels []level
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return errors.New("it is not JSON")
		}
		if n := len(openLevels); n > 0 && openLevels[n-1].names != nil && !openLevels[n-1].value {
			if name, ok := tok.(string); ok {
				if openLevels[n-1].names[name] {
					return fmt.Errorf("the name %.40q occurs twice", name)
				}
				openLevels[n-1].names[name], openLevels[n-1].value = true, true
				continue
			}
		} else if n > 0 {
			openLevels[n-1].value = false
		}
		switch tok {
		case json.Delim('{'):
			openLevels = append(openLevels, level{names: map[string]bool{}})
		case json.Delim('['):
			openLevels = append(openLevels, level{})
		case json.Delim('}'), json.Delim(']'):
			openLevels = openLevels[:len(openLevels)-1]
		}
		if len(openLevels) > maxDepth {
			return errors.New("it is nested too deep")
		}
	}
}

// Has reports whether a member is there and not null.
func (f Fields) Has(name string) bool {
	return len(f[name]) > 0 && string(f[name]) != "null"
}

// A Reader reads members of a JSON object, one call for each, and keeps the first error in Err. A
// member that is missing or null, or is of another type than is asked for, is read as the zero
// value; only the last is an error.
type Reader struct {
	Fields       // the members of the object
	Err    error // the first error of all calls so far; nil: there was none
}

// NewReader returns a Reader of f.
func NewReader(f Fields) *Reader { return &Reader{Fields: f} }

// Member returns the member of this name, decoded into a T. If it is missing or null, or does not
// fit, it returns the zero T. In the last case r.Err says that the member is not what want says, such
// as "a string", unless there was an error before.
func Member[T any](r *Reader, name, want string) (v T) {
	if r.Has(name) {
		if err := json.Unmarshal(r.Fields[name], &v); err != nil {
			if r.Err == nil {
				r.Err = fmt.Errorf("%q is not %s", name, want)
			}
			var none T
			return none
		}
	}
	return v
}

// Text returns a member that is a string. "": it is empty, missing or null, or no string (then Err
// is set).
func (r *Reader) Text(name string) string { return Member[string](r, name, "a string") }

// TextArray returns a member that is an array of strings. nil: it is missing or null, or no such array
// (then Err is set).
func (r *Reader) TextArray(name string) []string {
	return Member[[]string](r, name, "an array of strings")
}

// Bool returns a member that is true or false. false: it is false, missing or null, or neither true
// nor false (then Err is set).
func (r *Reader) Bool(name string) bool { return Member[bool](r, name, "true or false") }

// TextOrArray returns a member that is an array of strings or one string, as an array. nil: it is
// missing or null, or an array of anything else (then Err is set). A member that is neither sets Err,
// too, and is returned as one "".
func (r *Reader) TextOrArray(name string) []string {
	if !r.Has(name) || r.Fields[name][0] == '[' {
		return r.TextArray(name)
	}
	return []string{r.Text(name)}
}

// number returns a member that is a number, or a string with a number in it, as some servers write
// it. false: it is missing or null, or neither, and the number means nothing.
func (f Fields) number(name string) (float64, bool) {
	if !f.Has(name) {
		return 0, false
	}
	var n float64
	if json.Unmarshal(f[name], &n) == nil {
		return n, true
	}
	var s string
	if json.Unmarshal(f[name], &s) != nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// MaxLifetime is the longest duration that Fields.Seconds returns: what a server says beyond ten
// years counts as ten years.
const MaxLifetime = 10 * 365 * 24 * time.Hour

// Seconds returns a member that is a number of seconds, or a string with such a number in it, as a
// duration of at most MaxLifetime. 0: it is missing or null, no number, or not positive.
func (f Fields) Seconds(name string) time.Duration {
	n, ok := f.number(name)
	if !ok || n <= 0 {
		return 0
	}
	if n > MaxLifetime.Seconds() {
		return MaxLifetime
	}
	return time.Duration(n * float64(time.Second))
}

// NumericDate returns a member that is a NumericDate (seconds since 1970; RFC 7519, 2). The zero
// time: it is missing or null, or Err is set, be it by this call, because the member is no number, is
// negative or is too large, or by one before.
func (r *Reader) NumericDate(name string) time.Time {
	if !r.Has(name) {
		return time.Time{}
	}
	n := Member[float64](r, name, "a number")
	if r.Err == nil && (n < 0 || n > 1<<40) {
		r.Err = fmt.Errorf("%q is out of range", name)
	}
	if r.Err != nil {
		return time.Time{}
	}
	whole := math.Floor(n)
	return time.Unix(int64(whole), int64((n-whole)*1e9))
}
