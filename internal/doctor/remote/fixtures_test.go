package remote

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// A fixture is a server with a fault, and its twin without.
type fixture struct {
	name     string
	code     string
	severity doctor.Severity
	says     string // in the finding, evidence or title
	fault    func(t *testing.T) site
	twin     func(t *testing.T) site // nil: the bridge itself, see TestHealthy
	notes    []string                // codes that the twin may have as notes
}

func respond(w http.ResponseWriter, status int, mediaType, body string) bool {
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	return true
}

// isGet reports whether a request opens a new stream.
func isGet(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/mcp" && r.Header.Get("Last-Event-Id") == ""
}

func isPost(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Path == "/mcp" }

// replicas are two bridges of which each gets every second request; cookies: a cookie
// says which, if the client sends it back.
func replicas(t *testing.T, cookies bool) http.Handler {
	t.Helper()
	two := []http.Handler{newBridge(t, access.Policy{}), newBridge(t, access.Policy{})}
	var turn atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := int(turn.Add(1)) % 2
		if cookies {
			if c, err := r.Cookie("replica"); err == nil {
				i = int(c.Value[len(c.Value)-1] - '0')
			} else {
				http.SetCookie(w, &http.Cookie{Name: "replica", Value: fmt.Sprintf("replica-number-%d", i)})
			}
		}
		two[i].ServeHTTP(w, r)
	})
}

// only fails requests of 2026-07-28, as a server does that does not know it.
func only(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") != "" {
			respond(w, 400, typeJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Bad Request"}}`)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// asEvents has replies of JSON come as event streams, as form makes them of the message.
func asEvents(t *testing.T, form func(request, message string) string) http.Handler {
	return after(t, func(_ *http.Request, request string, rec *httptest.ResponseRecorder) {
		if rec.Code == 200 && strings.HasPrefix(rec.Header().Get("Content-Type"), typeJSON) {
			setBody(rec, typeSSE, form(request, strings.TrimSpace(rec.Body.String())))
		}
	})
}

// proxy is a reverse proxy before the bridge that changes replies.
func proxy(t *testing.T, change func(*http.Response)) http.Handler {
	t.Helper()
	back, err := url.Parse(serve(t, newBridge(t, access.Policy{})).URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(back) }, Transport: transport, FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error { change(r); return nil }, ErrorLog: quiet}
}

// rewriting replaces a text in what is read.
type rewriting struct {
	io.ReadCloser
	old, new string
}

func (r rewriting) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b[:len(b)/2])
	return copy(b, bytes.ReplaceAll(b[:n:n], []byte(r.old), []byte(r.new))), err
}

// endpointAs has the endpoint event of HTTP+SSE name another URL; moved: messages are
// taken below /tools only.
func endpointAs(t *testing.T, url string, moved bool) site {
	h := proxy(t, func(r *http.Response) {
		if strings.HasPrefix(r.Header.Get("Content-Type"), typeSSE) {
			r.Body = rewriting{r.Body, "data: /message", "data: " + url}
		}
	})
	if moved {
		mux := http.NewServeMux()
		mux.Handle("/tools/", http.StripPrefix("/tools", h))
		return at(t, "/tools/sse", mux)
	}
	return at(t, "/sse", h)
}

// jwt is a token that nobody has signed.
func jwt(claims map[string]any) string {
	part := func(v any) string { b, _ := json.Marshal(v); return base64.RawURLEncoding.EncodeToString(b) }
	return part(map[string]string{"alg": "none"}) + "." + part(claims) + ".c2lnbmF0dXJl"
}

func withToken(t *testing.T, token string) site {
	tokens, err := access.ParseTokens("ann a-token-that-is-good-0123456789\n")
	if err != nil {
		t.Fatal(err)
	}
	h := newBridge(t, access.Policy{Tokens: tokens})
	if token == "" {
		return at(t, "/mcp", h)
	}
	return at(t, "/mcp", h, "Authorization", "Bearer "+token)
}

// protected is a server that wants a token, with metadata as change leaves them.
func protected(change func(resource, issuer map[string]any)) func(t *testing.T) site {
	return func(t *testing.T) site {
		t.Helper()
		var self string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			resource := map[string]any{"resource": self + "/mcp", "authorization_servers": []string{self + "/auth"}}
			issuer := map[string]any{"issuer": self + "/auth", "code_challenge_methods_supported": []string{"S256"}}
			change(resource, issuer)
			doc := map[string]any{"/.well-known/oauth-protected-resource/mcp": resource, "/.well-known/oauth-authorization-server/auth": issuer}[r.URL.Path]
			if m, ok := doc.(map[string]any); ok && len(m) > 0 {
				b, _ := json.Marshal(m)
				respond(w, 200, typeJSON, string(b))
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+self+`/.well-known/oauth-protected-resource/mcp"`)
			respond(w, map[bool]int{true: 401, false: 404}[r.URL.Path == "/mcp"], "text/plain", "no")
		}))
		t.Cleanup(srv.Close)
		self = srv.URL
		return site{url: self + "/mcp"}
	}
}

// silent accepts connections and reads, and never answers.
func silent(t *testing.T) site {
	return at(t, "/mcp", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
}

// fixtures are H3 to H26, but for TLS, nginx and what takes long; see there.
var fixtures = []fixture{
	{name: "nobody listens", code: "H1", severity: doctor.Error, says: "refused", fault: func(t *testing.T) site {
		return site{url: "http://" + bridgetest.FreeAddr(t)}
	}},
	{name: "no such host", code: "H1", severity: doctor.Error, says: "DNS", fault: func(*testing.T) site { return site{url: "http://no-such-host.invalid/mcp"} }},
	{name: "https to http", code: "H3", severity: doctor.Error, says: "plain HTTP", fault: func(t *testing.T) site {
		s := at(t, "/mcp", newBridge(t, access.Policy{}))
		return site{url: strings.Replace(s.url, "http:", "https:", 1)}
	}},
	{name: "http to https", code: "H3", severity: doctor.Error, says: "https://", fault: func(t *testing.T) site {
		srv := httptest.NewUnstartedServer(newBridge(t, access.Policy{}))
		srv.Config.ErrorLog = quiet
		srv.StartTLS()
		t.Cleanup(srv.Close)
		return site{url: strings.Replace(srv.URL, "https:", "http:", 1) + "/mcp"}
	}},
	{name: "301 to the right path", code: "H4", severity: doctor.Error, says: "/mcp", fault: func(t *testing.T) site {
		return at(t, "/old", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/old" {
				http.Redirect(w, r, "/mcp", http.StatusMovedPermanently)
			}
			return r.URL.Path == "/old"
		}))
	}},
	{name: "307 to the right path", code: "H4", severity: doctor.Note, says: "/mcp", fault: func(t *testing.T) site {
		return at(t, "/mcp/", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/mcp/" {
				http.Redirect(w, r, "/mcp", http.StatusTemporaryRedirect)
			}
			return r.URL.Path == "/mcp/"
		}))
	}},
	{name: "308 to another server", code: "H4", severity: doctor.Error, says: "another server", fault: func(t *testing.T) site {
		other := at(t, "/mcp", newBridge(t, access.Policy{})).url
		return at(t, "/mcp", http.RedirectHandler(other, http.StatusPermanentRedirect))
	}},
	{name: "redirect to a login", code: "H5", severity: doctor.Error, says: "login", fault: func(t *testing.T) site {
		return at(t, "/mcp", http.RedirectHandler("https://accounts.example/login?next=x", http.StatusFound))
	}},
	{name: "a web page", code: "H5", severity: doctor.Error, says: "Welcome", fault: func(t *testing.T) site {
		return at(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			respond(w, 200, "text/html", "<!doctype html><title>Welcome</title>")
		}))
	}},
	{name: "a check for bots", code: "H5", severity: doctor.Error, says: "bots", fault: func(t *testing.T) site {
		return at(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cf-Mitigated", "challenge")
			respond(w, 403, "text/html", "<title>Just a moment...</title>")
		}))
	}},
	{name: "a gateway without its server", code: "H5", severity: doctor.Error, says: "502", fault: func(t *testing.T) site {
		return at(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Server", "nginx/1.22.1")
			respond(w, 502, "text/html", "<title>502 Bad Gateway</title>")
		}))
	}},
	{name: "a server of files", code: "H5", severity: doctor.Error, says: "is no MCP server", fault: func(t *testing.T) site {
		return at(t, "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost { // as python3 -m http.server
				respond(w, 501, "text/html;charset=utf-8", "<!DOCTYPE HTML><title>Error response</title>")
				return
			}
			respond(w, 200, "text/html", "<title>Directory listing</title>")
		}))
	}},
	{name: "a server that fails", code: "H5", severity: doctor.Error, says: "fails when a client begins", fault: func(t *testing.T) site {
		return at(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { respond(w, 500, "text/html", "<title>Error</title>") }))
	}},
	{name: "another path behind a server of files", code: "H6", severity: doctor.Error, says: "/mcp", fault: func(t *testing.T) site {
		return at(t, "/", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/" && respond(w, 501, "text/html", "<title>Error response</title>")
		}))
	}},
	{name: "another path", code: "H6", severity: doctor.Error, says: "/mcp", fault: func(t *testing.T) site {
		return at(t, "/api", newBridge(t, access.Policy{}))
	}},
	{name: "no server at all", code: "H6", severity: doctor.Error, says: "none at", fault: func(t *testing.T) site { return at(t, "/mcp", http.NotFoundHandler()) }},
	{name: "two replicas", code: "H7", severity: doctor.Error, says: "reach any of them", fault: func(t *testing.T) site { return at(t, "/mcp", replicas(t, false)) }},
	{name: "two replicas and a cookie", code: "H7", severity: doctor.Warning, says: "cookie", fault: func(t *testing.T) site { return at(t, "/mcp", replicas(t, true)) }},
	{name: "dead session is 400", code: "H8", severity: doctor.Warning, says: "400", fault: func(t *testing.T) site {
		return at(t, "/mcp", after(t, func(_ *http.Request, _ string, rec *httptest.ResponseRecorder) {
			if rec.Code == http.StatusNotFound {
				rec.Code = http.StatusBadRequest
			}
		}))
	}},
	{name: "dead session is 500", code: "H8", severity: doctor.Warning, says: "500", fault: func(t *testing.T) site {
		return at(t, "/mcp", after(t, func(_ *http.Request, _ string, rec *httptest.ResponseRecorder) {
			if rec.Code == http.StatusNotFound {
				rec.Code = 500
			}
		}))
	}},
	{name: "session id of clients dropped", code: "H9", severity: doctor.Error, says: "Mcp-Session-Id", fault: func(t *testing.T) site {
		return at(t, "/mcp", before(t, func(_ http.ResponseWriter, r *http.Request) bool { r.Header.Del("Mcp-Session-Id"); return false }))
	}},
	{name: "session id of the server dropped", code: "H9", severity: doctor.Error, says: "Mcp-Session-Id header of the server", fault: func(t *testing.T) site {
		return at(t, "/mcp", only(proxy(t, func(r *http.Response) { r.Header.Del("Mcp-Session-Id") })))
	}},
	{name: "Mcp-Method dropped", code: "H9", severity: doctor.Error, says: "Mcp-Method", fault: func(t *testing.T) site {
		return at(t, "/mcp", before(t, func(_ http.ResponseWriter, r *http.Request) bool { r.Header.Del("Mcp-Method"); return false }))
	}},
	{name: "Accept refused", code: "H10", severity: doctor.Error, says: "with Accept", fault: func(t *testing.T) site {
		return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Accept") != typeJSON && isPost(r) {
				return respond(w, 406, "text/plain", "Not Acceptable")
			}
			r.Header.Set("Accept", typeJSON+", "+typeSSE)
			return false
		}))
	}},
	{name: "charset refused", code: "H10", severity: doctor.Warning, says: "charset", fault: func(t *testing.T) site {
		return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.Header.Get("Content-Type"), "charset") {
				return respond(w, 415, "text/plain", "Unsupported Media Type")
			}
			return false
		}))
	}},
	{name: "JSON labelled text", code: "H10", severity: doctor.Error, says: "text/plain", fault: func(t *testing.T) site {
		return at(t, "/mcp", after(t, func(_ *http.Request, _ string, rec *httptest.ResponseRecorder) {
			rec.Header().Set("Content-Type", "text/plain")
		}))
	}},
	{name: "JSON labelled event stream", code: "H10", severity: doctor.Error, says: "is JSON", fault: func(t *testing.T) site {
		return at(t, "/mcp", asEvents(t, func(_, m string) string { return m }))
	}},
	{name: "event stream labelled JSON", code: "H10", severity: doctor.Error, says: "event stream", fault: func(t *testing.T) site {
		return at(t, "/mcp", after(t, func(_ *http.Request, _ string, rec *httptest.ResponseRecorder) {
			if rec.Code == 200 {
				setBody(rec, typeJSON, "event: message\ndata: "+strings.TrimSpace(rec.Body.String())+"\n\n")
			}
		}))
	}},
	{name: "GET is 404", code: "H13", severity: doctor.Warning, says: "404", fault: func(t *testing.T) site {
		return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			return isGet(r) && respond(w, 404, "text/plain", "Cannot GET /mcp")
		}))
	}},
	{name: "GET is a page", code: "H13", severity: doctor.Warning, says: "text/html", fault: func(t *testing.T) site {
		return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			return isGet(r) && respond(w, 200, "text/html", "<title>App</title>")
		}))
	}},
	{name: "GET ends at once", code: "H13", severity: doctor.Warning, says: "ends at once", fault: func(t *testing.T) site {
		return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool { return isGet(r) && respond(w, 200, typeSSE, "") }))
	}, twin: func(t *testing.T) site { // of a server that wants to be polled
		return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			return isGet(r) && respond(w, 200, typeSSE, "retry: 3000\n\n")
		}))
	}},
	{name: "GET is locked", code: "H13", severity: doctor.Warning, says: "opened again", fault: func(t *testing.T) site { return at(t, "/mcp", locked(t, time.Hour)) },
		twin: func(t *testing.T) site { return at(t, "/mcp", locked(t, 400*time.Millisecond)) }},
	{name: "GET cannot be resumed", code: "H14", severity: doctor.Warning, says: "Last-Event-ID", fault: func(t *testing.T) site {
		return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			return r.Header.Get("Last-Event-Id") != "" && respond(w, 400, "text/plain", "unknown event id")
		}))
	}},
	{name: "reply cannot be resumed", code: "H14", severity: doctor.Warning, says: "not the response", fault: func(t *testing.T) site { return resumable(t, false) },
		twin: func(t *testing.T) site { return resumable(t, true) }},
	{name: "negotiated version refused", code: "H15", severity: doctor.Error, says: "MCP-Protocol-Version: 2025-11-25", fault: func(t *testing.T) site {
		return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			return r.Header.Get("Mcp-Protocol-Version") == era.NewestLegacy && respond(w, 400, typeJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Unsupported protocol version"}}`)
		}))
	}},
	{name: "version that does not exist", code: "H15", severity: doctor.Error, says: `"1.0"`, fault: func(t *testing.T) site {
		return at(t, "/mcp", after(t, func(_ *http.Request, _ string, rec *httptest.ResponseRecorder) {
			setBody(rec, rec.Header().Get("Content-Type"), strings.Replace(rec.Body.String(), `"protocolVersion":"2025-11-25"`, `"protocolVersion":"1.0"`, 1))
		}))
	}},
	{name: "discover is 500", code: "H15", severity: doctor.Warning, says: "500", fault: func(t *testing.T) site {
		return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			return r.Header.Get("Mcp-Method") != "" && respond(w, 500, typeJSON, `{"error":"boom"}`)
		}))
	}, twin: func(t *testing.T) site { return at(t, "/mcp", only(newBridge(t, access.Policy{}))) }},
	{name: "CORS lacks a request header", code: "H16", severity: doctor.Warning, says: "lacks MCP-Protocol-Version", fault: func(t *testing.T) site {
		return at(t, "/mcp", proxy(t, func(r *http.Response) {
			if r.Header.Get("Access-Control-Allow-Headers") != "" {
				r.Header.Set("Access-Control-Allow-Headers", "Content-Type, Mcp-Session-Id, Mcp-Method, Mcp-Name")
			}
		}))
	}},
	{name: "CORS does not expose", code: "H16", severity: doctor.Warning, says: "Expose-Headers", fault: func(t *testing.T) site {
		return at(t, "/mcp", proxy(t, func(r *http.Response) { r.Header.Del("Access-Control-Expose-Headers") }))
	}},
	{name: "no CORS on 404", code: "H16", severity: doctor.Warning, says: "404", fault: func(t *testing.T) site {
		return at(t, "/mcp", proxy(t, func(r *http.Response) {
			if r.StatusCode == 404 {
				r.Header.Del("Access-Control-Allow-Origin")
			}
		}))
	}, twin: func(t *testing.T) site { // one without CORS is none for browsers, and that is its right
		return at(t, "/mcp", proxy(t, func(r *http.Response) { r.Header.Del("Access-Control-Allow-Origin") }))
	}},
	{name: "Host refused", code: "H17", severity: doctor.Error, says: "example.org", fault: func(t *testing.T) site {
		return at(t, "/mcp", newBridge(t, access.Policy{}), "Host", "example.org")
	}, twin: func(t *testing.T) site {
		return at(t, "/mcp", newBridge(t, access.Policy{AllowHosts: []string{"example.org"}}), "Host", "example.org")
	}},
	{name: "Origin refused", code: "H17", severity: doctor.Error, says: "without it the server answers", fault: func(t *testing.T) site {
		return at(t, "/mcp", newBridge(t, access.Policy{}), "Origin", "https://app.example")
	}, twin: func(t *testing.T) site {
		return at(t, "/mcp", newBridge(t, access.Policy{AllowOrigins: []string{"https://app.example"}}), "Origin", "https://app.example")
	}},
	{name: "no credentials", code: "H18", severity: doctor.Note, says: "wants credentials", fault: func(t *testing.T) site { return withToken(t, "") },
		twin: func(t *testing.T) site { return withToken(t, "a-token-that-is-good-0123456789") }},
	{name: "wrong credentials", code: "H18", severity: doctor.Error, says: "refused", fault: func(t *testing.T) site { return withToken(t, "a-token-that-is-none-012345678") }},
	{name: "expired token", code: "H18", severity: doctor.Error, says: "expired at 2020-09-13", fault: func(t *testing.T) site { return withToken(t, jwt(map[string]any{"exp": 1600000000})) }},
	{name: "token for somebody else", code: "H18", severity: doctor.Error, says: "another audience", fault: func(t *testing.T) site {
		return withToken(t, jwt(map[string]any{"aud": "https://other.example/mcp"}))
	}},
	{name: "401 without a challenge", code: "H18", severity: doctor.Warning, says: "no WWW-Authenticate", fault: func(t *testing.T) site {
		return at(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			respond(w, map[bool]int{true: 401, false: 404}[r.URL.Path == "/mcp"], "text/plain", "no")
		}))
	}},
	{name: "no metadata", code: "H18", severity: doctor.Error, says: "cannot be had", fault: protected(func(r, _ map[string]any) { clear(r) }),
		twin: protected(func(_, _ map[string]any) {}), notes: []string{"H18"}},
	{name: "metadata of another resource", code: "H18", severity: doctor.Error, says: "another resource", fault: protected(func(r, _ map[string]any) { r["resource"] = "http://internal:8080/mcp" })},
	{name: "no authorization server", code: "H18", severity: doctor.Error, says: "authorization server cannot be had", fault: protected(func(_, i map[string]any) { clear(i) })},
	{name: "no S256", code: "H18", severity: doctor.Error, says: "S256", fault: protected(func(_, i map[string]any) { delete(i, "code_challenge_methods_supported") })},
	{name: "another issuer", code: "H18", severity: doctor.Warning, says: "another issuer", fault: protected(func(_, i map[string]any) { i["issuer"] = "https://auth.example" })},
	{name: "too many requests", code: "H20", severity: doctor.Warning, says: "Retry-After: 7", fault: func(t *testing.T) site {
		var n atomic.Int32
		return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Retry-After", "7")
			return n.Add(1) > 6 && r.Method != http.MethodDelete && respond(w, 429, "text/plain", "slow down")
		}))
	}},
	{name: "endpoint of another scheme", code: "H21", severity: doctor.Error, says: "taken at", fault: func(t *testing.T) site { return endpointAs(t, "https://mcp.example/message", false) }},
	{name: "endpoint of an internal host", code: "H21", severity: doctor.Error, says: "backend:8080", fault: func(t *testing.T) site { return endpointAs(t, "http://backend:8080/message", false) },
		twin: func(t *testing.T) site { return endpointAs(t, "message", false) }},
	{name: "endpoint without the prefix", code: "H21", severity: doctor.Error, says: "/tools/message", fault: func(t *testing.T) site { return endpointAs(t, "/message", true) },
		twin: func(t *testing.T) site { return endpointAs(t, "/tools/message", true) }},
	{name: "no blank line", code: "H22", severity: doctor.Error, says: "blank line", fault: func(t *testing.T) site {
		return at(t, "/mcp", asEvents(t, func(_, m string) string { return "data: " + m + "\n" }))
	}, twin: func(t *testing.T) site {
		return at(t, "/mcp", asEvents(t, func(_, m string) string { return ": hello\r\nid:1\r\nevent:message\r\ndata:" + m + "\r\n\r\n" }))
	}},
	{name: "JSON in several lines", code: "H22", severity: doctor.Error, says: "do not begin with", fault: func(t *testing.T) site {
		return at(t, "/mcp", asEvents(t, func(_, m string) string { return "data: " + strings.Replace(m, "{", "{\n", 1) + "\n\n" }))
	}},
	{name: "CR alone", code: "H22", severity: doctor.Note, says: "CR alone", fault: func(t *testing.T) site {
		return at(t, "/mcp", asEvents(t, func(_, m string) string { return "data: " + m + "\r\r" }))
	}},
	{name: "another event name", code: "H22", severity: doctor.Error, says: "event: response", fault: func(t *testing.T) site {
		return at(t, "/mcp", asEvents(t, func(_, m string) string { return "event: response\ndata: " + m + "\n\n" }))
	}},
	{name: "ids become strings", code: "H23", severity: doctor.Warning, says: "another type", fault: func(t *testing.T) site {
		return at(t, "/mcp", asEvents(t, func(_, m string) string { return "data: " + idOf(m, `"%s"`) + "\n\n" }))
	}},
	{name: "the response of another request", code: "H23", severity: doctor.Error, says: "another request", fault: func(t *testing.T) site {
		return at(t, "/mcp", asEvents(t, func(_, m string) string { return "data: " + idOf(m, "9%s") + "\n\ndata: " + m + "\n\n" }))
	}},
	{name: "answered twice", code: "H23", severity: doctor.Note, says: "more than once", fault: func(t *testing.T) site {
		return at(t, "/mcp", asEvents(t, func(_, m string) string { return "data: " + m + "\n\ndata: " + m + "\n\n" }))
	}},
	{name: "a connection for each request", code: "H24", severity: doctor.Note, says: "as many connections", fault: func(t *testing.T) site {
		srv := httptest.NewUnstartedServer(newBridge(t, access.Policy{}))
		srv.Config.SetKeepAlivesEnabled(false)
		srv.Start()
		t.Cleanup(srv.Close)
		return site{url: srv.URL + "/mcp"}
	}},
	{name: "DELETE fails", code: "H25", severity: doctor.Warning, says: "500", fault: func(t *testing.T) site {
		return at(t, "/mcp", before(t, func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodDelete && respond(w, 500, "text/plain", "oops")
		}))
	}, twin: func(t *testing.T) site { return at(t, "/mcp", noDelete(t)) }, notes: []string{"H25"}},
	{name: "DELETE not supported", code: "H25", severity: doctor.Note, says: "405", fault: func(t *testing.T) site { return at(t, "/mcp", noDelete(t)) }},
	{name: "body limit of an application", code: "H19", severity: doctor.Note, says: "1200 KB", fault: func(t *testing.T) site { return at(t, "/mcp", bodyLimit(t, 1<<20)) },
		twin: func(t *testing.T) site { return at(t, "/mcp", bodyLimit(t, 4<<20)) }},
	{name: "a call is not answered", code: "H26", severity: doctor.Error, says: "not answered", fault: func(t *testing.T) site { return inASecond(called(t, "/mcp", "echo", hangs)) },
		twin: func(t *testing.T) site { return called(t, "/mcp", "echo", passOn) }},
	{name: "a call over HTTP+SSE is not answered", code: "H26", severity: doctor.Error, says: "not answered", fault: func(t *testing.T) site {
		return inASecond(called(t, "/sse", "echo", func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(202); return true }))
	}, twin: func(t *testing.T) site { return called(t, "/sse", "echo", passOn) }},
	{name: "the stream of a call ends without the answer", code: "H26", severity: doctor.Error, says: "not answered", fault: func(t *testing.T) site {
		return called(t, "/mcp", "echo", func(w http.ResponseWriter, _ *http.Request) bool { return respond(w, 200, typeSSE, ": bye\n\n") })
	}},
	{name: "a call fails", code: "H26", severity: doctor.Error, says: "500", fault: func(t *testing.T) site {
		return called(t, "/mcp", "echo", func(w http.ResponseWriter, _ *http.Request) bool { return respond(w, 500, "text/plain", "oops") })
	}},
	{name: "no such tool", code: "H26", severity: doctor.Warning, says: `"nosuch" is not in tools/list`, fault: func(t *testing.T) site { return called(t, "/mcp", "nosuch", passOn) }},
	{name: "no such tool over HTTP+SSE", code: "H26", severity: doctor.Warning, says: `"nosuch" is not in tools/list`, fault: func(t *testing.T) site { return called(t, "/sse", "nosuch", passOn) }},
	{name: "a very low body limit", code: "H19", severity: doctor.Warning, says: "100 KB", fault: func(t *testing.T) site { return at(t, "/mcp", bodyLimit(t, 64<<10)) }},
}

// called is the bridge, whose client calls a tool; f answers the call if it returns true.
func called(t *testing.T, path, tool string, f func(w http.ResponseWriter, r *http.Request) bool) site {
	s := at(t, path, before(t, func(w http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		return bytes.Contains(body, []byte(`"tools/call"`)) && f(w, r)
	}))
	s.opts.ToolToCall, s.opts.Arguments = tool, json.RawMessage(`{"message":"hello"}`)
	return s
}

// inASecond is a site whose call is not waited for any longer: there is no answer.
func inASecond(s site) site {
	s.opts.callTimeout = time.Second
	return s
}

func passOn(http.ResponseWriter, *http.Request) bool { return false }

// hangs begins an event stream, as the bridge does for a call that takes its time, and says nothing on it.
func hangs(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Content-Type", typeSSE)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
	return true
}

func noDelete(t *testing.T) http.Handler {
	return before(t, func(w http.ResponseWriter, r *http.Request) bool {
		return r.Method == http.MethodDelete && respond(w, 405, "text/plain", "Method Not Allowed")
	})
}

func bodyLimit(t *testing.T, most int64) http.Handler {
	return before(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.ContentLength <= most {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		return respond(w, 413, typeJSON, `{"error":"too large"}`)
	})
}

// idOf returns a response with its id in another form.
func idOf(m, form string) string {
	var v struct{ ID json.RawMessage }
	if json.Unmarshal([]byte(m), &v) != nil || v.ID == nil || string(v.ID) == "null" {
		return m
	}
	return strings.Replace(m, `"id":`+string(v.ID), `"id":`+fmt.Sprintf(form, v.ID), 1)
}

// locked has a server that admits one GET stream at a time, and notices only later that
// its client has gone.
func locked(t *testing.T, later time.Duration) http.Handler {
	var until atomic.Int64 // when the stream is free
	return before(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !isGet(r) {
			return false
		}
		if now := time.Now().UnixNano(); now < until.Load() {
			return respond(w, 409, "text/plain", "Conflict: only one stream")
		}
		until.Store(1 << 62)
		w.Header().Set("Content-Type", typeSSE)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		until.Store(time.Now().Add(later).UnixNano())
		return true
	})
}

// resumable has replies to pings begin with an event that has only an id; keeps: and the
// rest can be had with it.
func resumable(t *testing.T, keeps bool) site {
	var kept sync.Map // responses by the id of their first event
	h := asEvents(t, func(request, m string) string {
		if !strings.Contains(request, `"ping"`) {
			return "data: " + m + "\n\n"
		}
		var v struct{ ID json.RawMessage }
		_ = json.Unmarshal([]byte(m), &v)
		kept.Store(string(v.ID)+"_0", m)
		return "id: " + string(v.ID) + "_0\ndata:\n\ndata: " + m + "\n\n"
	})
	return at(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m, ok := kept.Load(r.Header.Get("Last-Event-Id")); ok && r.Method == http.MethodGet {
			w.Header().Set("Content-Type", typeSSE)
			if keeps {
				_, _ = fmt.Fprintf(w, "id: %s1\ndata: %s\n\n", r.Header.Get("Last-Event-Id"), m)
			}
			return
		}
		h.ServeHTTP(w, r)
	}))
}
