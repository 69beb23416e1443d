package tests

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestCredentialsWithheld: a remote server's error that repeats the credentials
// that the bridge was given tells them neither to a client nor to the log,
// whatever the client speaks and whichever way the credentials were given.
func TestCredentialsWithheld(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]struct {
		flags   []string
		user    string // of the URL
		secrets []string
	}{
		"bearer":   {[]string{"--header", "Authorization: Bearer UPSECRET"}, "", []string{"UPSECRET"}},
		"key":      {[]string{"--header", "X-Api-Key: UPSECRET"}, "", []string{"UPSECRET"}},
		"userinfo": {nil, "me:p%40ssword@", []string{"p@ssword", "p%40ssword", base64.StdEncoding.EncodeToString([]byte("me:p@ssword"))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := strings.Join(given.secrets, " and ")
			u := newUpstream(t)
			u.before = func(w http.ResponseWriter, r *http.Request, body string) bool {
				method, id := envelope(body)
				credentials := r.Header.Get("Authorization") + r.Header.Get("X-Api-Key")
				switch method {
				case "plain":
					http.Error(w, fmt.Sprintf("your key is %s, that is %s", credentials, said), http.StatusInternalServerError)
				case "json":
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusBadRequest)
					io.WriteString(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"your key is %s, that is %s"}}`, id, credentials, said))
				default:
					return false
				}
				return true
			}
			url := strings.Replace(u.URL, "://", "://"+given.user, 1) + "/mcp?apikey=QSECRET"
			flags := append([]string{"--log-level", "trace"}, given.flags...)
			p := connect(t, url, flags...)
			p.handshake("2025-06-18")
			s := serveURL(t, url, flags...)
			talkers := map[string]talker{"connect": stdioTalker{p}}
			for _, transport := range transports {
				talkers[transport] = s.site().mustOpen(t, transport)
			}
			secrets := append([]string{"QSECRET"}, given.secrets...)
			for client, c := range talkers {
				for _, method := range []string{"plain", "json"} {
					answer := mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{}}`)
					if id, _, text := errorOf(t, answer); id != "1" || !strings.Contains(text, "your key is [withheld]") {
						t.Errorf("%s, %s: answered with %s", client, method, answer)
					}
					for _, secret := range secrets {
						if strings.Contains(answer, secret) {
							t.Errorf("%s, %s: the client is told %s: %s", client, method, secret, answer)
						}
					}
				}
			}
			for _, secret := range secrets {
				if log := p.Log() + s.Log(); strings.Contains(log, secret) {
					t.Errorf("the log tells %s", secret)
				}
			}
		})
	}
}
