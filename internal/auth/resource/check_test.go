package resource

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
)

// TestCheck: what is wrong with a provider is found before a request comes; what has been asked for is not asked for again.
func TestCheck(t *testing.T) {
	t.Parallel()
	secret := func(text string) func() (string, error) { return func() (string, error) { return text, nil } }
	introspects := func(as *provider, o *Options, text string) {
		o.Introspection = &Introspection{Endpoint: as.URL + "/introspect", ClientID: "bridge", ClientSecret: secret(text), Issuer: "https://other.example"}
	}
	for name, x := range map[string]struct {
		change func(*provider, *Options)
		words  string // of the fault; "": there is none
		final  bool
	}{
		"good":               {nil, "", false},
		"good, introspects":  {func(as *provider, o *Options) { introspects(as, o, authtest.IntrospectionClientSecret) }, "", false},
		"slash at the end":   {func(as *provider, o *Options) { o.Issuers[0].URL += "/" }, "issuer", true},
		"away":               {func(as *provider, _ *Options) { as.IsUnavailable = true }, "502", false},
		"keys that are none": {func(as *provider, _ *Options) { as.JWKS = map[string]any{"keys": []any{}} }, "no key", false},
		"other address":      {func(as *provider, o *Options) { o.Issuers[0].JWKSURL = as.URL + "/nowhere" }, "404", false},
		"wrong secret":       {func(as *provider, o *Options) { introspects(as, o, "wrong") }, "invalid_client", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, as, _ := setup(t, x.change)
			found := p.Check(t.Context())
			if x.words == "" {
				if len(found) > 0 {
					t.Errorf("found was %v", found[0].Err)
				}
				want(t, p, "Bearer "+as.token(t, nil), 200)
				if m, k := as.CountRequests("/.well-known/oauth-authorization-server"), as.CountRequests("/jwks"); m != 1 || k != 1 {
					t.Errorf("%d requests for metadata, %d for keys", m, k)
				}
				return
			}
			if len(found) != 1 || found[0].IsFinal != x.final || !strings.Contains(found[0].Err.Error(), x.words) {
				t.Errorf("found was %+v, want %q", found, x.words)
			}
		})
	}
}

// TestCheckEnds: a provider that does not answer is waited for as long as ctx, and asked again by the first request.
func TestCheckEnds(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer hanging.Close()
	p, as, clock := setup(t, func(as *provider, o *Options) {
		o.Issuers[0].JWKSURL = hanging.URL
		o.Caller = &auth.EndpointCaller{HTTP: hanging.Client()}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if found := p.Check(ctx); len(found) != 1 || found[0].IsFinal {
		t.Errorf("found was %+v", found)
	}
	p.issuers[as.URL].keys.URL = as.URL + "/jwks" // now it answers
	clock.add(6 * time.Second)
	want(t, p, "Bearer "+as.token(t, nil), 200)
}
