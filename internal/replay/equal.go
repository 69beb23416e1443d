package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// volatileMeta are the keys in params._meta and result._meta that belong to one exchange alone: Play does not compare their
// values, and a Fake finds requests without regard to them.
var volatileMeta = []string{
	"progressToken", era.KeyVersion, era.KeyClientInfo, era.KeyCapabilities, era.KeyLogLevel, era.KeySubscription,
	"clientInfo", "clientCapabilities", "traceparent", "tracestate", "baggage",
}

// maxDecodedValues is how many values a JSON value may have inside to be decoded: each takes 50 bytes of memory and more.
const maxDecodedValues = 1 << 20

// isHuge reports whether a JSON value may have more than maxDecodedValues values inside.
func isHuge(raw []byte) bool {
	return len(raw) > maxDecodedValues && bytes.Count(raw, []byte(","))+bytes.Count(raw, []byte("["))+bytes.Count(raw, []byte("{")) > maxDecodedValues
}

// decode returns a JSON value decoded, with numbers as json.Number; nil: raw is nil. A huge value becomes a string, its text
// without _meta, so it equals only what is spelled alike.
func decode(raw []byte) any {
	if raw == nil {
		return nil
	}
	if isHuge(raw) {
		return string(jsonrpc.Without(raw, "_meta"))
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil { // cannot be: it was parsed
		return string(raw)
	}
	return v
}

// paramsOf returns the params of a request or notification, decoded, without volatileMeta, and without the token or id that
// names the request in progress and cancellations. Absent params are an empty object.
func paramsOf(m *jsonrpc.Message) any {
	v := decode(m.Params())
	if v == nil {
		v = map[string]any{}
	}
	if o, ok := v.(map[string]any); ok {
		dropVolatile(o)
		switch m.Method() {
		case "notifications/progress":
			delete(o, "progressToken")
		case "notifications/cancelled":
			delete(o, "requestId")
		}
	}
	return v
}

// answerOf returns a response as an object with the member result or error, decoded and without volatileMeta.
func answerOf(m *jsonrpc.Message) map[string]any {
	if m.IsError() {
		return map[string]any{"error": decode(m.Lookup("error"))}
	}
	v := decode(m.Result())
	if o, ok := v.(map[string]any); ok {
		dropVolatile(o)
	}
	return map[string]any{"result": v}
}

// dropVolatile takes the keys volatileMeta out of the member _meta of o, and _meta itself if nothing is left in it.
func dropVolatile(o map[string]any) {
	meta, ok := o["_meta"].(map[string]any)
	if !ok {
		return
	}
	for _, key := range volatileMeta {
		delete(meta, key)
	}
	if len(meta) == 0 {
		delete(o, "_meta")
	}
}

// appendCanonical appends a text that is the same for equal decoded values: the order of members and the spelling of numbers do
// not matter.
func appendCanonical(dst []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		dst = append(dst, '{')
		for _, key := range slices.Sorted(maps.Keys(v)) {
			dst = append(strconv.AppendQuote(dst, key), ':')
			dst = append(appendCanonical(dst, v[key]), ',')
		}
		return append(dst, '}')
	case []any:
		dst = append(dst, '[')
		for _, e := range v {
			dst = append(appendCanonical(dst, e), ',')
		}
		return append(dst, ']')
	case json.Number:
		return append(dst, plainNumber(string(v))...)
	case string:
		return strconv.AppendQuote(dst, v)
	}
	return fmt.Append(dst, v) // true, false, nil
}

// plainNumber returns the same spelling for all spellings of a number: its digits without
// zeros at either end, and the power of ten. It makes no text that grows with the exponent. A
// number whose exponent needs more than 62 bits is returned as it is spelled.
func plainNumber(text string) string {
	sign := ""
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		sign, text = "-", rest
	}
	mantissa, power := text, int64(0)
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		n, err := strconv.ParseInt(text[at+1:], 10, 62)
		if err != nil {
			return sign + text
		}
		mantissa, power = text[:at], n
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	power -= int64(len(fraction))
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0"
	}
	short := strings.TrimRight(digits, "0")
	power += int64(len(digits) - len(short))
	return sign + short + "e" + strconv.FormatInt(power, 10)
}

// A path leads from the top of a message to a value in it, link by link. The zero path is the top.
type path struct {
	parent    *path  // path of the object or array around the value; nil: this is the top
	key       string // of a member: its key
	index     int    // of an element of an array: its index
	isElement bool   // it is an element of an array; otherwise a member of an object
}

// elements returns the keys and indexes on the way from the top, an index as "[7]".
func (p *path) elements() (all []string) {
	for ; p.parent != nil; p = p.parent {
		switch {
		case p.isElement:
			all = append(all, "["+strconv.Itoa(p.index)+"]")
		case strings.HasPrefix(p.key, "["): // is no index
			all = append(all, strconv.Quote(p.key))
		default:
			all = append(all, p.key)
		}
	}
	slices.Reverse(all)
	return all
}

// pathText returns keys and indexes as one text, such as "result.content[0].text".
func pathText(elements []string) string {
	var b strings.Builder
	for _, e := range elements {
		switch {
		case strings.HasPrefix(e, "["):
			b.WriteString(e)
		case isWord(e):
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(e)
		default:
			b.WriteString("[" + showValue(e) + "]")
		}
	}
	return b.String()
}

// isWord reports whether a key can stand in the text of a path without brackets and quotes.
func isWord(s string) bool {
	return s != "" && len(s) < 100 && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' || r == '$')
	})
}

// A change is a difference at one place between a recorded message and one of this run. One of the two may have no value there.
type change struct {
	path     []string // keys and indexes, as of path.elements
	oldValue any      // the value in the recording, decoded
	newValue any      // the value in this run, decoded
	hasOld   bool     // there is a value in the recording
	hasNew   bool     // there is a value in this run
}

// findChanges calls yield for each difference between two decoded values, want (recorded) and got (of this run) at the path at,
// in the order of the keys, until yield returns false. It returns false if yield has.
func findChanges(at *path, want, got any, yield func(change) bool) bool {
	switch w := want.(type) {
	case map[string]any:
		if i, ok := got.(map[string]any); ok {
			return memberChanges(at, w, i, yield)
		}
	case []any:
		if i, ok := got.([]any); ok {
			return elementChanges(at, w, i, yield)
		}
	case json.Number:
		if i, ok := got.(json.Number); ok && plainNumber(string(w)) == plainNumber(string(i)) {
			return true
		}
	default:
		switch got.(type) {
		case map[string]any, []any, json.Number:
		default:
			if want == got {
				return true
			}
		}
	}
	return yield(change{at.elements(), want, got, true, true})
}

// memberChanges is the part of findChanges for two objects: it compares their members by key, in the order of the keys.
func memberChanges(at *path, want, got map[string]any, yield func(change) bool) bool {
	keys := slices.Collect(maps.Keys(want))
	for key := range got {
		if _, both := want[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		w, inWas := want[key]
		i, inIs := got[key]
		below := &path{parent: at, key: key}
		switch {
		case inWas && inIs:
			if !findChanges(below, w, i, yield) {
				return false
			}
		case !yield(change{below.elements(), w, i, inWas, inIs}):
			return false
		}
	}
	return true
}

// elementChanges is the part of findChanges for two arrays: it compares elements with the same index. If the lengths differ, it
// leaves out equal elements at both ends, so that one element that is new or gone is told as such; deeper than maxAligned it
// does not.
func elementChanges(at *path, want, got []any, yield func(change) bool) bool {
	head, tail := 0, 0
	if len(want) != len(got) && at.depth() <= maxAligned {
		for head < min(len(want), len(got)) && isEqual(want[head], got[head]) {
			head++
		}
		for tail < min(len(want), len(got))-head && isEqual(want[len(want)-1-tail], got[len(got)-1-tail]) {
			tail++
		}
	}
	want, got = want[:len(want)-tail], got[:len(got)-tail]
	for n := head; n < max(len(want), len(got)); n++ {
		below := &path{parent: at, index: n, isElement: true}
		switch {
		case n < len(want) && n < len(got):
			if !findChanges(below, want[n], got[n], yield) {
				return false
			}
		case n < len(want):
			if !yield(change{below.elements(), want[n], nil, true, false}) {
				return false
			}
		default:
			if !yield(change{below.elements(), nil, got[n], false, true}) {
				return false
			}
		}
	}
	return true
}

// maxAligned is the depth of a path up to which elementChanges leaves out equal ends of arrays: at each level that costs
// another comparison of all below.
const maxAligned = 16

// depth returns how many keys and indexes lead from the top to the value.
func (p *path) depth() (n int) {
	for ; p.parent != nil; p = p.parent {
		n++
	}
	return n
}

// isEqual reports whether two decoded values have no difference. It looks at each part once.
func isEqual(want, got any) bool {
	switch w := want.(type) {
	case map[string]any:
		i, ok := got.(map[string]any)
		if !ok || len(w) != len(i) {
			return false
		}
		for key, v := range w {
			if other, both := i[key]; !both || !isEqual(v, other) {
				return false
			}
		}
		return true
	case []any:
		i, ok := got.([]any)
		return ok && slices.EqualFunc(w, i, isEqual)
	}
	return findChanges(&path{}, want, got, func(change) bool { return false })
}
