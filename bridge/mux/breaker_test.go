package mux

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

type exit bool

func (e exit) Error() string { return "exit" }
func (e exit) Success() bool { return bool(e) }

// ST9: which ends of a server are its own choice.
func TestOrderlyEnds(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, true},
		{io.EOF, true},
		{exit(true), true},
		{fmt.Errorf("x: %w", exit(true)), true},
		{exit(false), false},
		{errors.Join(exit(false), io.EOF), false},
		{io.ErrUnexpectedEOF, false},
		{errors.New("x"), false},
	} {
		if got := IsOrderly(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
