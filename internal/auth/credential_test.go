package auth

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCredential(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 20<<10)
	for _, test := range []struct {
		name, query   string
		headers       []string
		scheme, token string
		bad           bool
	}{
		{"none", "", nil, "", "", false},
		{"bearer", "?x=access_token", []string{"bearer  a.b-c_d~e+f/g=="}, "Bearer", "a.b-c_d~e+f/g==", false},
		{"DPoP", "", []string{"DPoP t1"}, "DPoP", "t1", false},
		{"other scheme", "", []string{"Basic eDp5"}, "", "", false},
		{"two headers", "", []string{"Bearer a", "Bearer a"}, "", "", true},
		{"two tokens", "", []string{"Bearer a, Bearer b"}, "", "", true},
		{"no token", "", []string{"Bearer"}, "", "", true},
		{"only padding", "", []string{"Bearer =="}, "", "", true},
		{"not ASCII", "", []string{"Bearer tö"}, "", "", true},
		{"wide character", "", []string{"Bearer \u0161"}, "", "", true},
		{"20 KB", "", []string{"Bearer " + long}, "", "", true},
		{"in the query", "?access_token=t1", nil, "", "", true},
		{"in both", "?a=b&access_token=", []string{"Bearer a"}, "", "", true},
		{"in the query, encoded", "?%61ccess_toke%6e=t1", nil, "", "", true},
		{"in a query that is not valid", "?access_token=t1&x=%zz", nil, "", "", true},
	} {
		r := httptest.NewRequest(http.MethodPost, "/mcp"+test.query, nil)
		r.Header["Authorization"] = test.headers
		scheme, token, err := ReadAccessToken(r)
		if scheme != test.scheme || token != test.token || test.bad != Is(err, InvalidToken) {
			t.Errorf("%s: %q, %.40q, %v", test.name, scheme, token, err)
		}
		if err != nil && strings.Contains(err.Error(), "t1") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func FuzzCredential(f *testing.F) {
	f.Add("Bearer abc", "x=1")
	f.Fuzz(func(t *testing.T, value, query string) {
		r := &http.Request{Header: http.Header{"Authorization": {value}}}
		r.URL = httptest.NewRequest(http.MethodGet, "/", nil).URL
		r.URL.RawQuery = query
		scheme, token, err := ReadAccessToken(r)
		if err == nil && (scheme == "") != (token == "") || len(token) > maxJWTBytes || strings.ContainsAny(token, " ,\r\n\"") {
			t.Fatalf("%q: %q, %q, %v", value, scheme, token, err)
		}
	})
}
