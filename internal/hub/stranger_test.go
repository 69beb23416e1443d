package hub_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
)

var (
	date   = regexp.MustCompile(`(?m)^Date: .*\r\n`)
	origin = "Origin: http://localhost\r\n"
)

// exchange sends the bytes of a request and returns those of the reply, without its date. The request is
// the last one of its connection.
func exchange(t *testing.T, address, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	bridgetest.Must(t, err)
	defer conn.Close()
	bridgetest.Must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(conn)
	if err != nil || len(reply) == 0 {
		t.Fatalf("%q: %v", request, err)
	}
	return date.ReplaceAllString(string(reply), "")
}

// Who has no token cannot tell a server that there is from one that there is not, nor how it is configured:
// the replies are the same byte for byte, at every endpoint and with every method.
func TestStrangers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	bridgetest.Must(t, os.WriteFile(file, []byte("ann 0123456789abcdef-of-ann\n"), 0o600))
	tokens, err := access.LoadTokens(file)
	bridgetest.Must(t, err)
	modern := demoSpec(t, "modern")
	modern.Clients = era.OnlyModern
	_, url := start(t, hub.Options{Guard: access.Policy{Tokens: tokens}, PathPrefix: "/tools"}, demoSpec(t, "usual"), modern)
	address := strings.TrimPrefix(url, "http://")
	const upgrade = "Upgrade: websocket\r\nSec-Websocket-Version: 13\r\nSec-Websocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nConnection: Upgrade, close\r\n"
	const chunked = "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
	for what, rest := range map[string]string{
		"no token":       "\r\n",
		"a wrong token":  "Authorization: Bearer 0123456789abcdef-of-bob\r\n\r\n",
		"two tokens":     "Authorization: Bearer x\r\nAuthorization: Bearer y\r\n\r\n",
		"a page":         origin + "\r\n",
		"a foreign page": "Origin: http://evil.example\r\n\r\n",
		"a preflight":    origin + "Access-Control-Request-Method: POST\r\n\r\n",
		"a revision":     "Mcp-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: x\r\n\r\n",
		"a body":         "Content-Length: 2\r\nContent-Type: application/json\r\n\r\n{}",
		"too much":       "Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n",
		"chunks":         chunked,
		"an upgrade":     upgrade + "\r\n",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "DELETE", "OPTIONS", "NONE"} {
			for _, prefix := range []string{"", "/tools"} {
				for _, end := range []string{"/mcp", "/sse", "/message", "/message?sessionId=x", "/message?token=x", "/ws", "/other", "/mcp/", "/mcp/x", "/", ""} {
					replies := map[string]string{}
					for _, server := range []string{"usual", "modern", "nobody"} {
						connection := "Connection: close\r\n"
						if strings.HasPrefix(rest, upgrade) {
							connection = ""
						}
						replies[server] = exchange(t, address, method+" "+prefix+"/servers/"+server+end+" HTTP/1.1\r\nHost: localhost\r\n"+connection+rest)
					}
					if replies["usual"] != replies["nobody"] || replies["modern"] != replies["nobody"] {
						t.Fatalf("%s %s%s with %s is answered with\n%q\n%q\nand, where there is no server, with\n%q", method, prefix, end, what, replies["usual"], replies["modern"], replies["nobody"])
					}
				}
			}
		}
	}
}
