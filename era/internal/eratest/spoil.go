package eratest

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// valuePlace is where a value stands in a text.
type valuePlace struct {
	at, end int    // where the value begins and ends
	object  int    // where the object begins that has the value as a member; -1: no object has
	key     string // the key of that member; "" if object is -1
}

// appendPlaces appends to all where a value and the values in it stand. at is where value begins; object is where the
// object begins that has it as a member, with the given key (-1 and "": no object has).
func appendPlaces(all []valuePlace, value []byte, at, object int, key string) []valuePlace {
	all = append(all, valuePlace{at, at + len(value), object, key})
	for m := range jsonrpc.Members(value) {
		all = appendPlaces(all, m.Value, at+m.At, at, m.Key)
	}
	for i, e := range jsonrpc.Elements(value) {
		all = appendPlaces(all, e, at+i, -1, "")
	}
	return all
}

// oddValues are the values that Spoil puts in the place of others.
var oddValues = []string{
	`null`, `true`, `5`, `-1`, `1.5`, `1e999`, `""`, `"x"`, `[]`, `[{}]`, `["x","x"]`, `{}`, `"2025-11-25"`, `"2026-07-28"`, `"input_required"`, `"task"`,
	`{"_meta":{},"_meta":{}}`, `{"requestId":1,"requestId":2}`, `{"progressToken":1,"progressToken":2}`, `{"method":"roots/list"}`, `{"code":1,"code":"x","message":"m"}`,
	`"` + strings.Repeat("y", 1+jsonrpc.MaxName) + `"`,
}

// Spoil returns a JSON text with a value or two replaced by odd ones or by others of the text, or with members that stand twice.
// A text that is no JSON comes back as it is.
func Spoil(r *rand.Rand, text string) string {
	for range 1 + r.IntN(2) {
		if !jsonrpc.Valid([]byte(text)) {
			return text
		}
		all := appendPlaces(nil, []byte(text), 0, -1, "")
		p, other := all[r.IntN(len(all))], all[r.IntN(len(all))]
		value := oddValues[r.IntN(len(oddValues))]
		if r.IntN(3) == 0 {
			value = text[other.at:other.end]
		}
		if p.object >= 0 && r.IntN(2) == 0 { // the member comes twice
			first := slices.Concat([]byte{'{'}, jsonrpc.Quote(p.key), []byte{':'}, []byte(value), []byte{','})
			text = text[:p.object] + string(first) + text[p.object+1:]
			continue
		}
		text = text[:p.at] + value + text[p.end:]
	}
	return text
}
