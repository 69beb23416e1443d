package remote

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// TestNoSecretIsShown: whatever a server repeats of what it was given, and whatever it
// gives to its clients, the report has none of it.
func TestNoSecretIsShown(t *testing.T) {
	const header, login, query, password, cookie, path = "canary-header", "canary-login", "canary-query", "canary-password", "canary-cookie", "0canary1path2in3the4url5"
	given := strings.Join([]string{header, login, query, password, cookie, path}, " ")
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:"+login))
	h := newBridge(t, access.Policy{})
	inError := func(w http.ResponseWriter) { // a complaint that repeats everything
		b, _ := json.Marshal(given + " " + w.Header().Get("X-Session"))
		respond(w, 400, typeJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":`+string(b)+`}}`)
	}
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"error": func(w http.ResponseWriter, _ *http.Request) { inError(w) },
		"text":  func(w http.ResponseWriter, _ *http.Request) { respond(w, 403, "text/plain", given) },
		"page":  func(w http.ResponseWriter, _ *http.Request) { respond(w, 502, "text/html", "<title>"+given+"</title>") },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/x/"+path+"?key="+query, http.StatusMovedPermanently)
		},
		"challenge": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="/meta?x=`+query+`&y=`+login+`"`)
			respond(w, 401, "text/plain", given)
		},
		"session": func(w http.ResponseWriter, r *http.Request) {
			if id := r.Header.Get("Mcp-Session-Id"); id != "" {
				w.Header().Set("X-Session", id)
				inError(w)
				return
			}
			w.Header().Set("Mcp-Session-Id", "canary-session-id-0123")
			body, _ := io.ReadAll(r.Body)
			var m struct{ ID json.RawMessage }
			_ = json.Unmarshal(body, &m)
			respond(w, 200, typeJSON, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`, m.ID))
		},
		"works": func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path = "/mcp"
			h.ServeHTTP(w, r)
		},
		"endpoint": func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				respond(w, 200, typeSSE, "event: endpoint\ndata: http://other/message?sessionId=canary-session-id-0123\n\n")
				return
			}
			respond(w, 405, "text/plain", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var saw atomic.Bool
			srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.SetCookie(w, &http.Cookie{Name: "c", Value: cookie})
				if r.Header.Get("X-Api-Key") == header && r.Header.Get("Authorization") == basic && strings.Contains(r.URL.RawQuery, query) {
					saw.Store(true)
				}
				answer(w, r)
			}))
			s := site{url: strings.Replace(srv.URL, "http://", "http://ann:"+password+"@", 1) + "/" + path + "/mcp?key=" + query,
				opts: Options{Header: http.Header{"X-Api-Key": {header}, "Authorization": {basic}}}}
			r := doctor.NewReport("a server") // the caller hides what is in the URL that it was given
			if err := Diagnose(t.Context(), s.url, s.opts, r); err != nil {
				t.Fatal(err)
			}
			js, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{header, login, query, password, cookie, path, "canary-session"} {
				if strings.Contains(string(js), secret) {
					t.Errorf("%s is in the report:\n%s", secret, js)
				}
			}
			if !saw.Load() {
				t.Error("the server has not got what is to be hidden")
			}
		})
	}
}

// TestCredentialsStay: what the user has given for the server goes to nobody else.
func TestCredentialsStay(t *testing.T) {
	t.Parallel()
	var leaked atomic.Value
	other := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Authorization", "X-Api-Key", "Cookie"} {
			if r.Header.Get(name) != "" {
				leaked.Store(name)
			}
		}
		respond(w, 200, typeJSON, `{}`)
	})).URL
	for _, answer := range []http.HandlerFunc{
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other+"/mcp", http.StatusPermanentRedirect)
		},
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+other+`/meta"`)
			respond(w, 401, "text/plain", "")
		},
		func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				respond(w, 200, typeSSE, "event: endpoint\ndata: "+other+"/message\n\n")
				return
			}
			respond(w, 405, "text/plain", "")
		},
	} {
		s := at(t, "/mcp", answer, "Authorization", "Bearer a-token-of-ours", "X-Api-Key", "a-key-of-ours")
		diagnose(t, s)
	}
	if name := leaked.Load(); name != nil {
		t.Errorf("another server has got %v", name)
	}
}

// TestPolite: the doctor asks a server no more than it must, and leaves no session.
func TestPolite(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	requests, opened, ended := 0, map[string]bool{}, map[string]bool{}
	h := newBridge(t, access.Policy{})
	s := at(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		mu.Lock()
		defer mu.Unlock()
		requests++
		if id := w.Header().Get("Mcp-Session-Id"); id != "" && r.Method == http.MethodPost {
			opened[id] = true
		}
		if r.Method == http.MethodDelete {
			ended[r.Header.Get("Mcp-Session-Id")] = true
		}
	}))
	wantHealthy(t, s)
	mu.Lock()
	defer mu.Unlock()
	if requests > 45 || len(opened) == 0 || len(opened) > 2 {
		t.Errorf("%d requests, %d sessions", requests, len(opened))
	}
	for id := range opened {
		if !ended[id] {
			t.Error("a session is left")
		}
	}
}
