package auth

import (
	"fmt"
	"strings"
	"testing"
)

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	client := Client{ID: "me", Secret: "SECRET"}
	for _, v := range []any{
		client, &client, []Client{client},
		Token{AccessToken: "SECRET", RefreshToken: "SECRET", IDToken: "SECRET"},
		AuthorizationCodeGrant("SECRET", "SECRET", "", ""), RefreshTokenGrant("SECRET", "", nil), JWTBearerGrant("SECRET", "", nil),
		TokenExchangeRequest{SubjectToken: "SECRET"}, map[string]TokenExchangeRequest{"x": {SubjectToken: "SECRET"}},
		Registration{Client: client, ManagementToken: "SECRET"},
		DeviceAuthorization{DeviceCode: "SECRET"},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, "SECRET") {
				t.Errorf("%T with %s: %s", v, verb, text)
			}
		}
	}
}
