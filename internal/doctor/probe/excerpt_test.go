package probe

import (
	"strings"
	"testing"
)

// The error of a bridge, whose end has the cause, is shown whole; what is longer is seen to be cut.
func TestExcerpt(t *testing.T) {
	for _, c := range []struct {
		r    Reply
		want string
	}{
		{Reply{Messages: []Message{{Error: &RPCError{Code: -32603, Message: strings.Repeat("x", 500) + " No module named 'é'"}}}}, `No module named 'é'"`},
		{Reply{Messages: []Message{{Error: &RPCError{Code: 1, Message: strings.Repeat("é", 5000)}}}}, `é…"`},
		{Reply{Text: []byte(strings.Repeat("a", 161))}, `a…"`},
		{Reply{Text: []byte("\nnot found\nmore")}, `"not found"`},
		{Reply{}, ""},
	} {
		if got := c.r.BodyExcerpt(); !strings.HasSuffix(got, c.want) || c.want == "" && got != "" || len(got) > 2000 {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
