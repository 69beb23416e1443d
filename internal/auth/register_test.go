package auth

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRegister(t *testing.T) {
	t.Parallel()
	const redirect = "http://127.0.0.1:33418/callback"
	ask := ClientMetadata{Name: "mcp-bridge", RedirectURIs: []string{redirect}, GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"}, AuthMethod: ClientAuthNone, ApplicationType: "native"}
	for _, test := range []struct {
		name, body string
		status     int
		kind       ErrorKind // -1: none
		check      func(r Registration) bool
	}{
		{"public", `{"client_id":"c1"}`, 201, -1, func(r Registration) bool {
			return r.Client.AuthMethod == ClientAuthNone && r.RedirectURIs[0] == redirect && r.IssuedAt.Equal(start) && r.SecretExpiresAt.IsZero() && r.Issuer == "https://as"
		}},
		{"secret", `{"client_id":"c1","client_secret":"s","client_secret_expires_at":1800000000,"client_id_issued_at":1700000000,"token_endpoint_auth_method":"client_secret_post","redirect_uris":["` + redirect + `","x"],"registration_client_uri":"https://as/c1","registration_access_token":"m"}`, 200, -1, func(r Registration) bool {
			return r.Client.Secret == "s" && r.Client.AuthMethod == ClientSecretPost && r.SecretExpiresAt.Unix() == 1800000000 && r.IssuedAt.Unix() == 1700000000 && r.ManagementToken == "m"
		}},
		{"secret for ever, no method", `{"client_id":"c1","client_secret":"s","client_secret_expires_at":0,"registration_client_uri":"file:///x"}`, 201, -1, func(r Registration) bool {
			return r.Client.AuthMethod == "" && r.SecretExpiresAt.IsZero() && r.ManagementURL == ""
		}},
		{"other redirect", `{"client_id":"c1","redirect_uris":["https://other/"]}`, 201, Mismatch, nil},
		{"redirect with a slash", `{"client_id":"c1","redirect_uris":["` + redirect + `/"]}`, 201, Mismatch, nil},
		{"refused redirect", `{"error":"invalid_redirect_uri","error_description":"no"}`, 400, Mismatch, nil},
		{"refused", `{"error":"invalid_client_metadata"}`, 400, Refused, nil},
		{"forbidden", ``, 403, Refused, nil},
		{"method that we do not have", `{"client_id":"c1","token_endpoint_auth_method":"client_secret_jwt"}`, 201, Invalid, nil},
		{"method without its secret", `{"client_id":"c1","token_endpoint_auth_method":"client_secret_basic"}`, 201, Invalid, nil},
		{"no id", `{}`, 201, Invalid, nil},
		{"page", `<html>`, 200, Invalid, nil},
		{"away", ``, 503, Unavailable, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				var got ClientMetadata
				if err := json.Unmarshal(body, &got); err != nil || !reflect.DeepEqual(got, ask) || r.Header.Get("Authorization") != "Bearer initial" {
					t.Errorf("got %s, %v", body, r.Header)
				}
				reply(w, test.status, test.body)
			})
			c.Now = func() time.Time { return start }
			r, err := c.Register(within(t), ServerMetadata{Issuer: "https://as", RegistrationEndpoint: addr}, ask, "initial")
			if test.kind < 0 {
				if err != nil || r.Client.ID != "c1" || !test.check(r) {
					t.Errorf("%+v, %v", r, err)
				}
				return
			}
			if e := wantKind(t, err, test.kind); test.kind == Mismatch && !strings.Contains(e.Advice, redirect) {
				t.Errorf("no help: %v", e)
			}
		})
	}
	_, err := (&EndpointCaller{}).Register(within(t), ServerMetadata{Issuer: "https://as"}, ask, "")
	wantKind(t, err, Unsupported)
	addr, c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 201, `{"client_id":"c1","client_secret":"s"}`) // and it takes none
	})
	r, err := c.Register(within(t), ServerMetadata{Issuer: "https://as", RegistrationEndpoint: addr, AuthMethods: []string{ClientAuthNone}}, ask, "")
	if err != nil || r.Client.AuthMethod != ClientAuthNone {
		t.Errorf("the method is %q, error %v", r.Client.AuthMethod, err)
	}
}

func TestChooseIdentity(t *testing.T) {
	t.Parallel()
	const doc = "https://example.com/client.json"
	documents, dynamic := ServerMetadata{Issuer: "https://as", SupportsClientDocuments: true, RegistrationEndpoint: "https://as/r"}, ServerMetadata{Issuer: "https://as", RegistrationEndpoint: "https://as/r"}
	for _, test := range []struct {
		have   ClientIDOptions
		server ServerMetadata
		want   ClientIDSource
		kind   ErrorKind
	}{
		{ClientIDOptions{ClientID: "me", MetadataURL: doc}, documents, PreRegistered, -1},
		{ClientIDOptions{ClientID: "me", Issuer: "https://as"}, documents, PreRegistered, -1},
		{ClientIDOptions{ClientID: "me", Issuer: "https://as/"}, documents, 0, Mismatch},
		{ClientIDOptions{MetadataURL: doc}, documents, MetadataDocument, -1},
		{ClientIDOptions{MetadataURL: doc}, dynamic, DynamicRegistration, -1},
		{ClientIDOptions{}, documents, DynamicRegistration, -1},
		{ClientIDOptions{NoDynamicRegistration: true, RedirectURI: "http://127.0.0.1:1/callback"}, documents, 0, Unsupported},
		{ClientIDOptions{}, ServerMetadata{Issuer: "https://as"}, 0, Unsupported},
		{ClientIDOptions{MetadataURL: "http://example.com/client.json"}, documents, 0, Invalid},
	} {
		got, err := test.have.ChooseSource(test.server)
		if test.kind < 0 && (err != nil || got != test.want) || test.kind >= 0 && !Is(err, test.kind) {
			t.Errorf("%+v: %v, %v", test.have, got, err)
		}
		if test.have.RedirectURI != "" && (!strings.Contains(err.Error(), test.have.RedirectURI) || !strings.Contains(err.Error(), "https://as")) {
			t.Errorf("the error does not say what to register where: %v", err)
		}
	}
	for _, addr := range []string{"https://h", "https://h/", "https://h/a/../b", "https://h/%2e%2e/b", "https://u@h/c", "https://h/c#f", "h/c", "https:///c"} {
		if CheckClientDocumentURL(addr) == nil {
			t.Errorf("%q is taken", addr)
		}
	}
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		if r.Form.Get("token_type_hint") != "refresh_token" || r.Form.Get("client_id") != "me" {
			t.Errorf("form %v", r.Form)
		}
		if r.Form.Get("token") == "bad" {
			reply(w, 400, `{"error":"unsupported_token_type"}`)
		}
	})
	server := ServerMetadata{RevocationEndpoint: addr}
	if err := c.Revoke(within(t), server, Client{ID: "me"}, "r1", "refresh_token"); err != nil {
		t.Error(err)
	}
	wantKind(t, c.Revoke(within(t), server, Client{ID: "me"}, "bad", "refresh_token"), Refused)
	wantKind(t, c.Revoke(within(t), ServerMetadata{}, Client{ID: "me"}, "r1", ""), Unsupported)
}

func TestIntrospect(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"good":    `{"active":true,"sub":"ann","client_id":"c","scope":"a b","aud":["https://h/mcp"],"exp":1800000000,"cnf":{"jkt":"x"}}`,
		"dead":    `{"active":false,"sub":"ann"}`,
		"nothing": `{}`, "text": `{"active":"true"}`, "page": `<html>`,
		"bound": `{"active":true,"cnf":{"jwk":{}}}`,
	}
	addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if id, secret, _ := r.BasicAuth(); id != "rs" || secret != "s" {
			reply(w, 401, "{}")
			return
		}
		reply(w, 200, answers[r.FormValue("token")])
	})
	server, client := ServerMetadata{IntrospectionEndpoint: addr}, Client{ID: "rs", Secret: "s"}
	claims, active, err := c.Introspect(within(t), server, client, "good")
	want := Claims{Subject: "ann", ClientID: "c", Scopes: []string{"a", "b"}, Audience: []string{"https://h/mcp"}, Expires: time.Unix(1800000000, 0), JKT: "x"}
	if err != nil || !active || !reflect.DeepEqual(claims, want) || !claims.IsFor([]string{"https://h/mcp"}) || claims.IsFor([]string{"https://h/mcp/"}) || claims.IsFor(nil) {
		t.Errorf("%+v, %v, %v", claims, active, err)
	}
	if claims, active, err := c.Introspect(within(t), server, client, "dead"); err != nil || active || !reflect.DeepEqual(claims, Claims{}) {
		t.Errorf("%+v, %v, %v", claims, active, err)
	}
	for _, token := range []string{"nothing", "text", "page", "bound"} {
		_, active, err := c.Introspect(within(t), server, client, token)
		if wantKind(t, err, Invalid); active {
			t.Errorf("%s is active", token)
		}
	}
	_, _, err = c.Introspect(within(t), server, Client{ID: "other"}, "good")
	wantKind(t, err, Refused)
	_, _, err = c.Introspect(within(t), ServerMetadata{}, client, "good")
	wantKind(t, err, Unsupported)
}

func TestAuthorizeDevice(t *testing.T) {
	t.Parallel()
	body := ""
	addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("client_id") != "me" || r.FormValue("scope") != "a b" || r.FormValue("resource") != "https://h" {
			t.Errorf("form %v", r.Form)
		}
		reply(w, 200, body)
	})
	c.Now = func() time.Time { return start }
	ask := func(answer string) (DeviceAuthorization, error) {
		body = answer
		return c.AuthorizeDevice(within(t), ServerMetadata{DeviceAuthorizationEndpoint: addr}, Client{ID: "me"}, "https://h", []string{"a", "b"})
	}
	d, err := ask(`{"device_code":"d1","user_code":"AB-CD","verification_uri":"https://as/d","verification_uri_complete":"javascript:1","expires_in":"600","interval":7}`)
	want := DeviceAuthorization{DeviceCode: "d1", UserCode: "AB-CD", VerificationURI: "https://as/d", Expires: start.Add(10 * time.Minute), PollInterval: 7 * time.Second}
	if err != nil || d != want {
		t.Errorf("%+v, %v", d, err)
	}
	d, err = ask(`{"device_code":"d1","user_code":"AB-CD","verification_url":"https://as/d","interval":-1}`)
	if err != nil || d.PollInterval != 5*time.Second || d.Expires != start.Add(10*time.Minute) {
		t.Errorf("%+v, %v", d, err)
	}
	_, err = ask(`{"error":"invalid_client"}`)
	if wantKind(t, err, InvalidClient); err != nil && !strings.Contains(err.Error(), "--client-id") {
		t.Errorf("no word of what helps: %v", err)
	}
	for _, answer := range []string{`{}`, `{"device_code":"d1","user_code":"u","verification_uri":"file:///x"}`, `{"device_code":"d1","verification_uri":"https://as/d"}`, `{"device_code":1,"user_code":"u","verification_uri":"https://as/d"}`} {
		_, err := ask(answer)
		wantKind(t, err, Invalid)
	}
}
