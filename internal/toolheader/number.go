package toolheader

import (
	"strconv"
	"strings"
)

// maxExpandedZeros is how many zeros a number may need to be written without an exponent:
// more than any that a float64 can hold.
const maxExpandedZeros = 350

// plainNumber returns a JSON number without an exponent and without needless digits:
// 42.0 and 4.2e1 are both 42. One that would be very long stays as it is.
func plainNumber(number string) string {
	digits, exponent, ok := splitDecimal(number)
	switch {
	case !ok, exponent > maxExpandedZeros, exponent < -maxExpandedZeros:
		return number
	case digits == "":
		return "0"
	case exponent >= 0:
		return digits + strings.Repeat("0", exponent)
	}
	digits, negative := strings.CutPrefix(digits, "-")
	digits = strings.Repeat("0", max(0, 1-exponent-len(digits))) + digits
	at := len(digits) + exponent
	digits = digits[:at] + "." + digits[at:]
	if negative {
		return "-" + digits
	}
	return digits
}

// sameNumber reports whether two texts are JSON numbers of the same value, however they are
// written. It is false if one of them is no number.
func sameNumber(a, b string) bool {
	digitsA, exponentA, okA := splitDecimal(a)
	digitsB, exponentB, okB := splitDecimal(b)
	return okA && okB && digitsA == digitsB && exponentA == exponentB
}

// splitDecimal takes a JSON number apart: it is digits (with its sign) times ten to the power of
// exponent. digits have no zero at either end; they are "" for 0. ok is false if it is no number,
// or its exponent is too large. Leading zeros, which JSON does not allow, do no harm.
func splitDecimal(number string) (digits string, exponent int, ok bool) {
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

// allDigits reports whether s is one decimal digit or more, and nothing else.
func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
