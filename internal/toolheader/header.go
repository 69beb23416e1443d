package toolheader

import (
	"fmt"
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Headers returns the headers for a call with these arguments (raw; nil: none):
// one for each parameter whose value is a string, a boolean or a number; nil:
// there is none. null, objects and arrays have no header. A value that does not
// suit the schema has its header all the same: the header says what the body
// says, and it is for the server to refuse both (ME3).
//
// An empty text makes an empty value (ME2).
func Headers(params []Param, arguments []byte) http.Header {
	var header http.Header
	for _, p := range params {
		value, _ := valueAtPath(arguments, p.Path)
		text, ok := headerText(value)
		if !ok {
			continue
		}
		if header == nil {
			header = make(http.Header, len(params))
		}
		header[p.Header] = []string{EncodeValue(text)}
	}
	return header
}

// CheckHeaders compares the headers of a call with its arguments (MI22). The error is
// a sentence for the client; it names the header, and repeats no value. A
// header for what is absent or null is one too many: somebody may have routed
// the call by it. An argument that stands twice has no header that fits: two
// readers could differ about it. Headers that belong to no parameter are not
// looked at.
func CheckHeaders(params []Param, arguments []byte, header http.Header) error {
	for _, p := range params {
		value, twice := valueAtPath(arguments, p.Path)
		if twice {
			return fmt.Errorf("header mismatch: the argument for the %s header stands twice", p.Header)
		}
		if err := p.check(value, header[p.Header]); err != nil {
			return err
		}
	}
	return nil
}

// check compares headers, the values of the parameter's header in a request, with value, its raw argument; nil: the
// argument is missing. The error says what does not fit, for the client.
func (p Param) check(value []byte, headers []string) error {
	text, needsHeader := headerText(value)
	switch {
	case len(headers) > 1:
		return fmt.Errorf("header mismatch: there is more than one %s header", p.Header)
	case len(headers) == 0 && needsHeader:
		return fmt.Errorf("header mismatch: the %s header is missing", p.Header)
	case len(headers) == 0:
		return nil
	case isAbsentOrNull(value):
		return fmt.Errorf("header mismatch: there is a %s header, but no such argument", p.Header)
	}
	got, err := DecodeValue(headers[0])
	if err != nil {
		return fmt.Errorf("header mismatch: the %s header is invalid: %w", p.Header, err)
	}
	isSame := needsHeader && got == text
	if isNumber(value) {
		isSame = isSame || sameNumber(got, string(value))
	}
	if !isSame {
		return fmt.Errorf("header mismatch: the %s header is not what the argument is", p.Header)
	}
	return nil
}

// valueAtPath returns the raw value to which a path of object keys leads in value; nil: there is none. Of
// several equal keys the last counts, and isDuplicate says that there are such on the
// path.
func valueAtPath(value []byte, path []string) (found []byte, isDuplicate bool) {
	for _, key := range path {
		found = nil
		for m := range jsonrpc.Members(value) {
			if m.Key == key {
				isDuplicate = isDuplicate || found != nil
				found = m.Value
			}
		}
		value = found
	}
	return value, isDuplicate
}

// isAbsentOrNull reports whether a raw JSON value is missing (nil) or null.
func isAbsentOrNull(value []byte) bool { return len(value) == 0 || value[0] == 'n' }

// isNumber reports whether a raw JSON value is a number.
func isNumber(value []byte) bool {
	return len(value) > 0 && (value[0] == '-' || '0' <= value[0] && value[0] <= '9')
}

// headerText returns the text that the header of an argument has, before EncodeValue; value is raw.
// ok is false if it gets no header: it is missing, null, an object or an array. Values go by what
// they are, whatever the schema says they should be.
func headerText(value []byte) (text string, ok bool) {
	switch {
	case isAbsentOrNull(value):
		return "", false
	case value[0] == '"':
		return jsonrpc.Text(value)
	case value[0] == 't':
		return "true", true
	case value[0] == 'f':
		return "false", true
	case isNumber(value):
		return plainNumber(string(value)), true
	}
	return "", false
}
