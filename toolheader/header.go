package toolheader

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Headers returns the headers for a call with these arguments (raw; nil: none):
// one for each parameter whose value is a string, a boolean, or an integer that
// is safe. There is none for null, nor for values that a header cannot carry:
// that they do not suit the schema is for the server to say (ME3). nil: none at
// all.
//
// An empty text is written as the base64 of nothing. That means the same, and
// there are servers that take an empty header for a missing one.
func Headers(params []Param, arguments []byte) http.Header {
	var header http.Header
	for _, p := range params {
		text, ok := mirrored(find(arguments, p.Path))
		if !ok {
			continue
		}
		value := Encode(text)
		if value == "" {
			value = encoded("")
		}
		if header == nil {
			header = make(http.Header, len(params))
		}
		header[p.Header] = []string{value}
	}
	return header
}

// Check compares the headers of a call with its arguments (MI22). The error is
// a sentence for the client; it names the header, and repeats no value. A
// header for what is absent or null is one too many: somebody may have routed
// the call by it. Headers that belong to no parameter are not looked at.
func Check(params []Param, arguments []byte, header http.Header) error {
	for _, p := range params {
		if err := p.check(find(arguments, p.Path), header[p.Header]); err != nil {
			return err
		}
	}
	return nil
}

func (p Param) check(value []byte, headers []string) error {
	text, mirrors := mirrored(value)
	switch {
	case len(headers) > 1:
		return fmt.Errorf("header mismatch: there is more than one %s header", p.Header)
	case len(headers) == 0 && mirrors:
		return fmt.Errorf("header mismatch: the %s header is missing", p.Header)
	case len(headers) == 0:
		return nil
	case isNull(value):
		return fmt.Errorf("header mismatch: there is a %s header, but no such argument", p.Header)
	}
	got, err := Decode(headers[0])
	if err != nil {
		return fmt.Errorf("header mismatch: the %s header is invalid: %w", p.Header, err)
	}
	same := mirrors && got == text
	if isNumber(value) {
		same = sameNumber(got, string(value))
	}
	if !same {
		return fmt.Errorf("header mismatch: the %s header is not what the argument is", p.Header)
	}
	return nil
}

// find returns the value at the path of object keys; nil: there is none. Of
// several equal keys the last counts.
func find(value []byte, path []string) []byte {
	for _, key := range path {
		var found []byte
		for m := range jsonrpc.Members(value) {
			if m.Key == key {
				found = m.Value
			}
		}
		value = found
	}
	return value
}

func isNull(value []byte) bool { return len(value) == 0 || value[0] == 'n' }

func isNumber(value []byte) bool {
	return len(value) > 0 && (value[0] == '-' || '0' <= value[0] && value[0] <= '9')
}

// mirrored returns what the header of a value says, before it is encoded.
// Values go by what they are, whatever the schema says they should be.
func mirrored(value []byte) (text string, ok bool) {
	switch {
	case isNull(value):
		return "", false
	case value[0] == '"':
		return jsonrpc.Text(value)
	case value[0] == 't':
		return "true", true
	case value[0] == 'f':
		return "false", true
	case isNumber(value):
		n, ok := integer(string(value))
		return strconv.FormatInt(n, 10), ok
	}
	return "", false
}
