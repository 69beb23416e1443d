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
		Token{Access: "SECRET", Refresh: "SECRET", ID: "SECRET"},
		AuthorizationCode("SECRET", "SECRET", "", ""), RefreshToken("SECRET", "", nil), JWTBearer("SECRET", "", nil),
		TokenExchangeRequest{Subject: "SECRET"}, map[string]TokenExchangeRequest{"x": {Subject: "SECRET"}},
		Registration{Client: client, ManageToken: "SECRET"},
		DeviceAuthorization{DeviceCode: "SECRET"},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, "SECRET") {
				t.Errorf("%T with %s: %s", v, verb, text)
			}
		}
	}
}
