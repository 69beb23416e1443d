package httpserve

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func FuzzAccepts(f *testing.F) {
	for _, s := range []string{
		"", "*/*", "application/json, text/event-stream", "application/json;q=0, */*", "text/*;q=0.000", "a/b;q=\"0\",,;",
		"application/json;q=0.0001", "*/*;q=1;x=\"a,b\"", "text/event-stream ; q = 0", "APPLICATION/JSON;Q=0", "application/json;q=0;q=1",
	} {
		f.Add(s, "")
		f.Add(s, "text/event-stream")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		h := http.Header{"Accept": {a, b}}
		for _, mt := range []string{"application/json", "text/event-stream"} {
			if got, want := Accepts(h, mt), naiveAdmits(a+","+b, mt); got != want {
				t.Errorf("%q, %q: Accepts(%s) = %v, want %v", a, b, mt, got, want)
			}
		}
		if Accepts(h, "application/json", "text/event-stream") != (Accepts(h, "application/json") && Accepts(h, "text/event-stream")) {
			t.Errorf("%q, %q: both is not each", a, b)
		}
		IsJSON(http.Header{"Content-Type": {a}})
	})
}

// naiveAdmits looks for the exact type, then for the half one, then for the whole wildcard.
func naiveAdmits(accept, mediaType string) bool {
	major := strings.Split(mediaType, "/")[0]
	for _, want := range []string{mediaType, major + "/*", "*/*"} {
		for item := range strings.SplitSeq(accept, ",") {
			mt, params, err := mime.ParseMediaType(strings.TrimSpace(item))
			if (err == nil || mt != "") && mt == want {
				q, err := strconv.ParseFloat(params["q"], 64)
				return err != nil || q != 0 || strings.Trim(params["q"], "0.") != ""
			}
		}
	}
	return false
}

// LI5: what is not plain JSON in UTF-8 is refused as such, not misread.
func TestOtherEncodings(t *testing.T) {
	for _, h := range []http.Header{
		{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}},
		{"Content-Type": {"application/json; charset=utf-16"}},
		{"Content-Type": {"application/json", "text/plain"}},
		{"Content-Type": {"application/json"}, "Content-Encoding": {"identity", "gzip"}},
	} {
		if IsJSON(h) {
			t.Errorf("%v was taken for JSON", h)
		}
	}
	for _, h := range []http.Header{
		{"Content-Type": {"application/json; charset=UTF-8"}, "Content-Encoding": {"identity"}},
		{"Content-Type": {"application/json"}},
	} {
		if !IsJSON(h) {
			t.Errorf("%v was refused", h)
		}
	}
}

// Who is refused for the type of the body hears what was sent, and what to send. What is no type or charset is not repeated: it may
// be a secret.
func TestNotJSONReason(t *testing.T) {
	for _, test := range []struct {
		headers http.Header
		want    string
	}{
		{http.Header{"Content-Type": {"text/plain; key=hush"}}, `the Content-Type is "text/plain"; send application/json`},
		{http.Header{"Content-Type": {"text/plain; =hush"}}, `the Content-Type is "text/plain"; send application/json`},
		{http.Header{}, "there is no Content-Type; send application/json"},
		{http.Header{"Content-Type": {""}}, "there is no Content-Type; send application/json"},
		{http.Header{"Content-Type": {"Bearer hush"}}, "the Content-Type is no media type; send application/json"},
		{http.Header{"Content-Type": {"application/json; charset=utf-16"}}, `the charset of the Content-Type is "utf-16"; send application/json in UTF-8`},
		{http.Header{"Content-Type": {"application/json; charset=\"\x1b[31m\u202e\""}}, `the charset of the Content-Type is "\u001b[31m\u202e"; send application/json in UTF-8`},
		{http.Header{"Content-Type": {"a/" + strings.Repeat("b", 100)}}, `the Content-Type is "a/` + strings.Repeat("b", 58) + `..."; send application/json`},
		{http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, `the Content-Encoding is "gzip"; send application/json without one`},
		{http.Header{"Content-Type": {"application/json", "text/plain"}}, "the headers Content-Type and Content-Encoding may be sent once"},
	} {
		if IsJSON(test.headers) {
			t.Errorf("%v is JSON", test.headers)
		}
		if got := NotJSONReason(test.headers); got != test.want {
			t.Errorf("%v: %s; want %s", test.headers, got, test.want)
		}
	}
}
