package shape

import "testing"

func TestCanonical(t *testing.T) {
	for _, test := range []struct{ raw, want string }{
		{` { "b" : 1 , "a" : [ 1.0 , 2e3 , null ] } `[1:], `{"a":[1.0,2e3,null],"b":1}`},
		{`{"\u0061":"\u000a\/"}`, `{"a":"\n/"}`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`[]`, `[]`},
		{`"x"`, `"x"`},
	} {
		if got := string(AppendCanonical(nil, []byte(test.raw), MaxCanonicalDepth)); got != test.want {
			t.Errorf("%s is %s, not %s", test.raw, got, test.want)
		}
	}
}
