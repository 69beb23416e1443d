package printable

import "fmt"

// Count returns a number of things with the word for them, of which one and many differ: "1 record is", "2 records are".
func Count[N int | int64 | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
