package httpdial

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func TestURL(t *testing.T) {
	u, err := ParseURL("https://user:pass@h:1/p?q=1#frag", "http", "https")
	bridgetest.Must(t, err)
	if u.String() != "https://user:pass@h:1/p?q=1" {
		t.Errorf("URL = %s", u)
	}
	for text, word := range map[string]string{
		"":                     "http:// or https://",
		"ftp://h/":             `"ftp:"`,
		"http://":              "no host",
		"http:///secret":       "no host",
		"http://:80/":          "no host",
		"http://h\x7f/":        "not valid",
		"http://u:secret@[::1": "not valid",
	} {
		if _, err := ParseURL(text, "http", "https"); err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "secret") {
			t.Errorf("URL(%q) = %v, want %q", text, err, word)
		}
	}
}

func TestHeader(t *testing.T) {
	from := http.Header{
		"x-key": {" a ", "b"}, "Accept-Encoding": {"gzip"}, "connection": {"close"}, "Upgrade": {"x"}, "Host": {"other"},
	}
	got, err := RequestHeader(from, url.UserPassword("u", "p"), "Upgrade")
	bridgetest.Must(t, err)
	want := http.Header{
		"X-Key": {"a", "b"}, "Host": {"other"}, "User-Agent": {"mcp-bridge"}, "Authorization": {"Basic dTpw"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("Header = %v, want %v", got, want)
	}
	got, err = RequestHeader(http.Header{"Authorization": {"Bearer x"}, "User-Agent": {"me"}}, url.UserPassword("u", "p"))
	if err != nil || got.Get("Authorization") != "Bearer x" || got.Get("User-Agent") != "me" {
		t.Errorf("Header = %v, %v: what is given counts", got, err)
	}
}

// Whatever goes in, what comes out is fit for the wire and holds nothing reserved.
func FuzzHeader(f *testing.F) {
	f.Add("Authorization", "Bearer x")
	f.Add("accept", "x\r\ny: z")
	f.Add("content-length", "1")
	f.Fuzz(func(t *testing.T, name, value string) {
		header, err := RequestHeader(http.Header{name: {value}}, nil, "Accept")
		if err != nil {
			return
		}
		for _, reserved := range append([]string{"Accept"}, alwaysReservedHeaders...) {
			if header.Get(reserved) != "" {
				t.Errorf("%q came through as %s", name, reserved)
			}
		}
		var b strings.Builder
		bridgetest.Must(t, header.Write(&b))
		for line := range strings.SplitSeq(strings.TrimSuffix(b.String(), "\r\n"), "\r\n") {
			if key, _, ok := strings.Cut(line, ": "); !ok || !isToken(key) || strings.ContainsFunc(line, isControl) {
				t.Errorf("%q: %q makes the line %q", name, value, line)
			}
		}
	})
}

// LE14: what is followed keeps method, body and headers; nothing goes to another origin.
func TestDoRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the other origin got a %s with %v", r.Method, r.Header)
	}))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/same307", "/same308":
			http.Redirect(w, r, "/end?x=1", map[string]int{"/same307": 307, "/same308": 308}[r.URL.Path])
		case "/same302":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/other":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		case "/nowhere":
			w.WriteHeader(http.StatusTemporaryRedirect)
		default:
			fmt.Fprint(w, r.Method, " ", r.URL, " ", string(body), " ", r.Header.Get("Authorization"))
		}
	}))
	defer server.Close()
	transport := NewTransport(TransportOptions{})
	defer transport.CloseIdleConnections()
	for path, want := range map[string]string{
		"/same307": "POST /end?x=1 body Bearer x", "/same308": "POST /end?x=1 body Bearer x",
		"/same302": "", "/other": "", "/loop": "", "/nowhere": "",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader("body"))
		bridgetest.Must(t, err)
		req.Header.Set("Authorization", "Bearer x")
		peer := NewPeer(req.URL, nil, nil)
		resp, fault := peer.Do(transport, req)
		if want == "" {
			if fault == nil || fault.Reason != ReasonRedirect || strings.Contains(fault.Text, path) {
				t.Errorf("%s: %v", path, fault)
			}
			continue
		}
		if fault != nil {
			t.Errorf("%s: %v", path, fault)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != want {
			t.Errorf("%s: %q, want %q", path, body, want)
		}
	}
}

// A refusal says what the server says, as far as that is for people or programs.
func TestRefusalFault(t *testing.T) {
	u, err := ParseURL("http://h/path?key=secret", "http")
	bridgetest.Must(t, err)
	peer := NewPeer(u, nil, map[int]string{404: "is it the path?"})
	for _, c := range []struct {
		status            int
		mediaType, body   string
		reason, text, own string
	}{
		{404, "text/html", "<p>no", ReasonHTTPStatus, "http://h/path answered 404 Not Found: is it the path?", ""},
		{400, "text/plain", "no such key\nat x.go:1", ReasonHTTPStatus, `http://h answered 400 Bad Request; it says: "no such key"`, ""},
		{400, "text/plain", "bad key=secret", ReasonHTTPStatus, "http://h answered 400 Bad Request", ""},
		{400, "", "HTTP on a port of HTTPS", ReasonHTTPStatus, `http://h answered 400 Bad Request; it says: "HTTP on a port of HTTPS"`, ""},
		{400, "application/json", `{"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}`, ReasonHTTPStatus, "http://h answered 400 Bad Request",
			`{"id":7,"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}`},
		{401, "", "", ReasonAuthRequired, `http://h answered 401 Unauthorized: authentication is needed; give credentials with --header "Authorization: Bearer ...", or with --header-env Authorization=NAME from a variable`, ""},
		{401, "text/plain", "the token is not valid", ReasonAuthRequired, `http://h answered 401 Unauthorized: authentication is needed; give credentials with --header "Authorization: Bearer ...", or with --header-env Authorization=NAME from a variable; it says: "the token is not valid"`, ""},
		{413, "", "", ReasonTooLarge, "http://h answered 413 Request Entity Too Large: the message is too large for the server", ""},
	} {
		resp := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.mediaType}}, Body: io.NopCloser(strings.NewReader(c.body))}
		f := peer.RefusalFault(resp)
		if f.Reason != c.reason || f.Text != c.text || f.Status != c.status {
			t.Errorf("%d %s: %+v", c.status, c.body, f)
		}
		m := f.Response(jsonrpc.IntID(7))
		if c.own != "" && string(m.Bytes()) != c.own || m.ID() != jsonrpc.IntID(7) || !m.IsError() {
			t.Errorf("%d %s: the response is %s", c.status, c.body, m.Bytes())
		}
	}
}
