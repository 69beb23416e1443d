package toolheader

import (
	"strconv"
	"strings"
)

// safest is the largest integer that every reader of JSON can tell from its
// neighbours: 2^53 - 1.
const safest = 1<<53 - 1

// integer returns the value of a JSON number, if it is an integer and safe:
// 42, 42.0 and 4.2e1 are all 42.
func integer(number string) (n int64, ok bool) {
	digits, exponent, ok := decimal(number)
	if !ok || digits == "" {
		return 0, ok
	}
	if exponent < 0 || len(strings.TrimPrefix(digits, "-"))+exponent > len("9007199254740991") {
		return 0, false
	}
	n, err := strconv.ParseInt(digits+strings.Repeat("0", exponent), 10, 64)
	return n, err == nil && -safest <= n && n <= safest
}

// sameNumber reports whether two texts are JSON numbers and equal, however
// they are written.
func sameNumber(a, b string) bool {
	digitsA, exponentA, okA := decimal(a)
	digitsB, exponentB, okB := decimal(b)
	return okA && okB && digitsA == digitsB && exponentA == exponentB
}

// decimal takes a JSON number apart: it is digits times ten to the power of
// exponent, and digits have no zero at either end; they are "" for 0. Leading
// zeros, which JSON does not allow, do no harm.
func decimal(number string) (digits string, exponent int, ok bool) {
	mantissa, power := number, ""
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		mantissa, power = number[:i], number[i+1:]
		var err error
		// What is beyond these bounds is as good as infinite, or as zero.
		if exponent, err = strconv.Atoi(power); err != nil || exponent > 1<<30 || exponent < -1<<30 {
			return "", 0, false
		}
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, point := strings.Cut(mantissa, ".")
	if !allDigits(whole) || point && !allDigits(fraction) {
		return "", 0, false
	}
	digits = strings.TrimLeft(whole+fraction, "0")
	exponent -= len(fraction)
	short := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(short)
	switch {
	case short == "":
		return "", 0, true
	case negative:
		return "-" + short, exponent, true
	}
	return short, exponent, true
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
