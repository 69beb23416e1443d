package auth

import (
	"net/url"
	"strings"
	"testing"
)

func TestPKCE(t *testing.T) {
	t.Parallel()
	// RFC 7636, appendix B.
	if got := CodeChallenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"); got != "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" {
		t.Errorf("challenge %q", got)
	}
	if v, w := NewCodeVerifier(), NewCodeVerifier(); len(v) != 43 || v == w {
		t.Errorf("verifiers %q, %q", v, w)
	}
	if s, r := NewState(), NewState(); len(s) != 22 || s == r { // 128 bits
		t.Errorf("states %q, %q", s, r)
	}
}

// request is a complete authorization request to an endpoint.
func request(endpoint string) AuthorizationRequest {
	return AuthorizationRequest{
		Server:   ServerMetadata{Issuer: "https://as", AuthorizationEndpoint: endpoint, CodeChallengeMethods: []string{"plain", "S256"}},
		ClientID: "https://c/x?y=1&z", RedirectURI: "http://127.0.0.1:1/callback", State: "s1", CodeChallenge: "ch",
		Resource: "https://h/mcp", Scopes: []string{"a", "b"},
	}
}

func TestAuthorizationURL(t *testing.T) {
	t.Parallel()
	r := request("https://as/authorize?tenant=a%20b&x")
	r.ExtraParams = []Param{{"access_type", "offline"}}
	got, err := r.URL()
	want := "https://as/authorize?tenant=a%20b&x&response_type=code&client_id=https%3A%2F%2Fc%2Fx%3Fy%3D1%26z&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2Fcallback" +
		"&state=s1&code_challenge=ch&code_challenge_method=S256&resource=https%3A%2F%2Fh%2Fmcp&scope=a+b&access_type=offline"
	if err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	r = request("https://as/authorize")
	r.Resource, r.Scopes = "", nil
	if got, err := r.URL(); err != nil || strings.Contains(got, "scope") || strings.Contains(got, "resource") {
		t.Errorf("%s, %v", got, err)
	}
	r.Scopes = []string{"a", "offline_access"}
	if got, err := r.URL(); err != nil || !strings.HasSuffix(got, "&scope=a+offline_access&prompt=consent") {
		t.Errorf("%s, %v", got, err)
	}
	r.ExtraParams = []Param{{"prompt", "login"}}
	if got, err := r.URL(); err != nil || !strings.HasSuffix(got, "&scope=a+offline_access&prompt=login") {
		t.Errorf("%s, %v", got, err)
	}
	for name, test := range map[string]struct {
		change func(*AuthorizationRequest)
		kind   ErrorKind
	}{
		"no PKCE":           {func(r *AuthorizationRequest) { r.Server.CodeChallengeMethods = nil }, Unsupported},
		"plain only":        {func(r *AuthorizationRequest) { r.Server.CodeChallengeMethods = []string{"plain"} }, Unsupported},
		"no endpoint":       {func(r *AuthorizationRequest) { r.Server.AuthorizationEndpoint = "" }, Unsupported},
		"script":            {func(r *AuthorizationRequest) { r.Server.AuthorizationEndpoint = "javascript:alert(1)" }, Invalid},
		"no TLS":            {func(r *AuthorizationRequest) { r.Server.AuthorizationEndpoint = "http://as/authorize" }, Invalid},
		"replaces state":    {func(r *AuthorizationRequest) { r.ExtraParams = []Param{{"state", "x"}} }, Invalid},
		"endpoint has it":   {func(r *AuthorizationRequest) { r.Server.AuthorizationEndpoint += "?client_id=x" }, Invalid},
		"no state":          {func(r *AuthorizationRequest) { r.State = "" }, Invalid},
		"query not decoded": {func(r *AuthorizationRequest) { r.Server.AuthorizationEndpoint += "?a=%zz" }, Invalid},
	} {
		r := request("https://as/authorize")
		test.change(&r)
		if _, err := r.URL(); !Is(err, test.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCallback(t *testing.T) {
	t.Parallel()
	const issuer = "https://as.example/t"
	iss := "&iss=" + url.QueryEscape(issuer)
	for _, test := range []struct {
		name, query string
		announced   bool
		code        string
		kind        ErrorKind
	}{
		{"plain", "code=c1&state=s1", false, "c1", -1},
		{"with iss", "code=c1&state=s1" + iss, true, "c1", -1},
		{"iss not announced", "code=c1&state=s1" + iss, false, "c1", -1},
		{"unknown parameter", "code=c1&state=s1&session_state=x&session_state=y", false, "c1", -1},
		{"no state", "code=c1", false, "", UnrelatedResponse},
		{"empty state", "code=c1&state=", false, "", UnrelatedResponse},
		{"wrong state", "code=c1&state=s2", false, "", UnrelatedResponse},
		{"state twice", "code=c1&state=s1&state=s1", false, "", UnrelatedResponse},
		{"error of another request", "error=access_denied&state=s2", false, "", UnrelatedResponse},
		{"not a query", "code=%zz&state=s1", false, "", UnrelatedResponse},
		{"semicolon", "code=c1;state=s1", false, "", UnrelatedResponse},
		{"too long", "code=c1&state=s1&x=" + strings.Repeat("x", 20<<10), false, "", UnrelatedResponse},
		{"no code", "state=s1", false, "", Invalid},
		{"code twice", "code=c1&code=c2&state=s1", false, "", Invalid},
		{"iss twice", "code=c1&state=s1" + iss + iss, true, "", Invalid},
		{"code and error", "code=c1&error=x&state=s1", false, "", Invalid},
		{"iss missing", "code=c1&state=s1", true, "", Mismatch},
		{"iss of another", "code=c1&state=s1&iss=https://evil", false, "", Mismatch},
		{"iss with a slash", "code=c1&state=s1" + iss + "/", true, "", Mismatch},
		{"iss in upper case", "code=c1&state=s1&iss=https://AS.example/t", true, "", Mismatch},
		{"iss with a port", "code=c1&state=s1&iss=https://as.example:443/t", true, "", Mismatch},
		{"iss empty", "code=c1&state=s1&iss=", false, "", Mismatch},
		{"denied", "error=access_denied&error_description=no&state=s1" + iss, true, "", AccessDenied},
		{"target", "error=invalid_target&state=s1", false, "", InvalidTarget},
		{"away", "error=temporarily_unavailable&state=s1", false, "", Unavailable},
		{"other error", "error=login_required&state=s1", false, "", Refused},
		{"error without iss", "error=access_denied&error_description=SHOWN&state=s1", true, "", Mismatch},
		{"error of another issuer", "error=access_denied&error_description=SHOWN&state=s1&iss=https://evil", false, "", Mismatch},
	} {
		code, err := ExpectedCallback{State: "s1", Issuer: issuer, RequiresIssParameter: test.announced}.ParseCode(test.query)
		if code != test.code || test.kind < 0 && err != nil || test.kind >= 0 && !Is(err, test.kind) {
			t.Errorf("%s: %q, %v", test.name, code, err)
		}
		if err != nil && (strings.Contains(err.Error(), "SHOWN") || strings.Contains(err.Error(), "evil") || strings.Contains(err.Error(), "c1")) {
			t.Errorf("%s: the error shows too much: %v", test.name, err)
		}
	}
	if _, err := (ExpectedCallback{}).ParseCode("code=c1&state="); !Is(err, UnrelatedResponse) {
		t.Errorf("no state was recorded: %v", err)
	}
}

func FuzzCallback(f *testing.F) {
	f.Add("code=c1&state=s1&iss=https%3A%2F%2Fas")
	f.Add("error=access_denied&state=s1")
	f.Fuzz(func(t *testing.T, query string) {
		code, err := ExpectedCallback{State: "s1", Issuer: "https://as", RequiresIssParameter: true}.ParseCode(query)
		if (code == "") == (err == nil) {
			t.Fatalf("%q: %q, %v", query, code, err)
		}
		if code != "" && (!strings.Contains(query, "state") && !strings.Contains(query, "%") || len(query) > maxCallbackQueryBytes) {
			t.Fatalf("%q gives the code %q", query, code)
		}
	})
}

func FuzzAuthorizationURL(f *testing.F) {
	f.Add("https://as/authorize?x=1", "k", "v")
	f.Fuzz(func(t *testing.T, endpoint, name, value string) {
		r := request(endpoint)
		r.ExtraParams = []Param{{name, value}}
		got, err := r.URL()
		if err != nil {
			return
		}
		u, err := url.Parse(got)
		if err != nil || checkURL(got, false) != nil {
			t.Fatalf("%q becomes %q: %v", endpoint, got, err)
		}
		if q := u.Query(); len(q["state"]) != 1 || q.Get("state") != "s1" || q.Get("client_id") != r.ClientID || len(q["redirect_uri"]) != 1 {
			t.Fatalf("%q becomes %q", endpoint, got)
		}
	})
}
