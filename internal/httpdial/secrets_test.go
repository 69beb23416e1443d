package httpdial

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// What a server says of an error is told without the credentials that it was
// given, in whatever spelling it repeats them, and the rest as it is.
func TestCredentialsAreWithheld(t *testing.T) {
	u, err := ParseURL("http://me:p%40ss%22w@h/path?key=QSECRET&other=y", "http")
	bridgetest.Must(t, err)
	basic, err := RequestHeader(http.Header{"X-Key": {"XSECRET"}, "X-Short": {"abc"}}, u.User)
	bridgetest.Must(t, err)
	bearer := http.Header{"Authorization": {"Bearer UPSECRET"}}
	u.User = nil
	for _, c := range []struct {
		header     http.Header
		says, want string
	}{
		{bearer, "your key is Bearer UPSECRET", "your key is [withheld]"},
		{bearer, "no such key: UPSECRET, sorry", "no such key: [withheld], sorry"},
		{bearer, "key is QSECRET", "key is [withheld]"},
		{bearer, "the key is wrong", "the key is wrong"},
		{basic, "X-Key XSECRET and abc", "X-Key [withheld] and abc"},
		{basic, `me:p@ss"w is wrong`, "[withheld] is wrong"},
		{basic, `p@ss"w is wrong`, "[withheld] is wrong"},
		{basic, "me:p%40ss%22w is wrong", "[withheld] is wrong"},
		{basic, "p%40ss%22w is wrong", "[withheld] is wrong"},
		{basic, "Basic bWU6cEBzcyJ3 is wrong", "[withheld] is wrong"},
		{basic, "bWU6cEBzcyJ3 is wrong", "[withheld] is wrong"},
		{nil, "Bearer UPSECRET", "Bearer UPSECRET"},
		{nil, "no such token: DYNAMIC, sorry", "no such token: [withheld], sorry"},
		{bearer, "Bearer DYNAMIC or Bearer UPSECRET", "[withheld] or [withheld]"},
		{basic, "DPoP proof PROOFSECRET", "DPoP proof [withheld]"},
	} {
		peer := NewPeer(u, c.header, nil)
		refuse := func(mediaType, body string) *Fault {
			request := &http.Request{Header: http.Header{"Authorization": {"Bearer DYNAMIC"}, "Dpop": {"PROOFSECRET"}}} // as somebody has added to it
			return peer.RefusalFault(&http.Response{StatusCode: 500, Header: http.Header{"Content-Type": {mediaType}}, Body: io.NopCloser(strings.NewReader(body)), Request: request})
		}
		if got := refuse("text/plain", c.says).Text; !strings.HasSuffix(got, strings.ReplaceAll(c.want, `"`, `\"`)+`"`) {
			t.Errorf("%s becomes %s, want %s", c.says, got, c.want)
		}
		quoted := strings.ReplaceAll(c.says, `"`, `\"`)
		own := refuse("application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"`+quoted+`","data":{"n":1.0}}}`).ServerError
		if want := `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"` + c.want + `","data":{"n":1.0}}}`; string(own.Bytes()) != want {
			t.Errorf("%s becomes\n%s, want\n%s", c.says, own.Bytes(), want)
		}
	}
}
