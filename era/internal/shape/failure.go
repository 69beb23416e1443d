package shape

import (
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// WithError returns an error response with another code, and with other data
// unless data is nil. The rest stays.
func WithError(m jsonrpc.Message, code int, data []byte) jsonrpc.Message {
	object := jsonrpc.With(m.ErrorObject(), "code", strconv.AppendInt(nil, int64(code), 10))
	if data != nil {
		object = jsonrpc.With(object, "data", data)
	}
	return WithErrorObject(m, object)
}

// WithErrorObject returns an error response with another error object, which is
// raw JSON. If that makes no valid response, it panics.
func WithErrorObject(m jsonrpc.Message, object []byte) jsonrpc.Message {
	changed, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":` + m.ID().String() + `,"error":` + string(object) + `}`))
	if err != nil {
		panic("era: cannot replace an error: " + err.Error())
	}
	return changed.WithRelated(m.Related()).WithMark(m.Mark())
}

// ErrorCode returns the code of an error response. It is 0 for other messages, and
// if the code is not a number.
func ErrorCode(m jsonrpc.Message) int {
	if !m.IsError() {
		return 0
	}
	code, _ := strconv.Atoi(string(m.Lookup("error", "code")))
	return code
}

// ReasonData returns the data of an error that the bridge itself has made:
// {"reason":word} (C.7).
func ReasonData(word string) []byte { return []byte(`{"reason":"` + word + `"}`) }
