package traceview

import "bytes"

// textRange is a part of a text.
type textRange struct {
	From int // index of the first byte
	To   int // index behind the last byte
}

// maxDiffTokens is how many tokens, half of them in each text, may stand between the equal ends of two texts for diff to find
// the exact difference: its time grows with the square of their number.
const maxDiffTokens = 4000

// maxDiffBytes is how long two texts may be together, in bytes, for diff to compare their tokens, and not only their ends.
const maxDiffBytes = 4 << 20

// diff compares two texts of JSON by their tokens, and returns the parts of a (left) and of b (right) that are not in the other one,
// in order. Of texts that are very long or differ very much, it returns one part each: all between what is equal at their
// beginnings and at their ends.
func diff(a, b []byte) (left, right []textRange) {
	if len(a)+len(b) > maxDiffBytes {
		return diffEnds(a, b)
	}
	x, y := tokens(a), tokens(b)
	head := 0
	for head < len(x) && head < len(y) && bytes.Equal(rangeText(a, x[head]), rangeText(b, y[head])) {
		head++
	}
	tail := 0
	for tail < len(x)-head && tail < len(y)-head && bytes.Equal(rangeText(a, x[len(x)-1-tail]), rangeText(b, y[len(y)-1-tail])) {
		tail++
	}
	x, y = x[head:len(x)-tail], y[head:len(y)-tail]
	if len(x) > 0 && len(y) > 0 && len(x)*len(y) <= maxDiffTokens*maxDiffTokens/4 {
		return diffTokens(a, b, x, y)
	}
	return wholeText(x), wholeText(y)
}

// diffEnds returns, as diff does, what differs between two texts, without splitting them into tokens: all between what is equal
// at their beginnings and at their ends.
func diffEnds(a, b []byte) (left, right []textRange) {
	head, tail, least := 0, 0, min(len(a), len(b))
	for head < least && a[head] == b[head] {
		head++
	}
	for tail < least-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	if head+tail < len(a) {
		left = []textRange{{head, len(a) - tail}}
	}
	if head+tail < len(b) {
		right = []textRange{{head, len(b) - tail}}
	}
	return left, right
}

// rangeText returns the part s of text.
func rangeText(text []byte, s textRange) []byte { return text[s.From:s.To] }

// wholeText returns one range from the beginning of the first token to the end of the last; nil: there are no tokens.
func wholeText(t []textRange) []textRange {
	if len(t) == 0 {
		return nil
	}
	return []textRange{{t[0].From, t[len(t)-1].To}}
}

// diffTokens returns the tokens x of text a (left) and the tokens y of text b (right) that do not belong to the longest common
// subsequence of x and y.
func diffTokens(a, b []byte, x, y []textRange) (left, right []textRange) {
	width := len(y) + 1
	longest := make([]uint16, (len(x)+1)*width)
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if bytes.Equal(rangeText(a, x[i]), rangeText(b, y[j])) {
				longest[i*width+j] = longest[(i+1)*width+j+1] + 1
			} else {
				longest[i*width+j] = max(longest[(i+1)*width+j], longest[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch {
		case i < len(x) && j < len(y) && bytes.Equal(rangeText(a, x[i]), rangeText(b, y[j])):
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && longest[(i+1)*width+j] >= longest[i*width+j+1]:
			left = appendRange(left, x[i])
			i++
		default:
			right = appendRange(right, y[j])
			j++
		}
	}
	return left, right
}

// appendRange appends s to all, or makes the last range of all longer if s begins where that ends.
func appendRange(all []textRange, s textRange) []textRange {
	if n := len(all); n > 0 && all[n-1].To == s.From {
		all[n-1].To = s.To
		return all
	}
	return append(all, s)
}

// tokens splits a text, which may be no JSON, into strings, numbers and words, and single bytes of anything else.
func tokens(text []byte) []textRange {
	var all []textRange
	for i := 0; i < len(text); {
		from := i
		switch c := text[i]; {
		case c == '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i = min(i+1, len(text))
		case isWord(c):
			for i < len(text) && isWord(text[i]) {
				i++
			}
		default:
			i++
		}
		all = append(all, textRange{from, i})
	}
	return all
}

// isWord reports whether a byte may belong to a number or word: a letter, digit, one of "-+._", or no ASCII.
func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.' || c == '_' || c >= 0x80
}
