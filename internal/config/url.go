package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// maxSocketPath is how many bytes the path of a Unix socket may have on every system.
const maxSocketPath = 103

// checkURL returns the URL of a server as the rest of the program takes it, with an absolute path of a Unix socket, and its kind:
// http, ws or socket. mistake is what is wrong with the URL, "": nothing; it shows nothing of the URL, which may hold a key.
func (p *parser) checkURL(text string) (address, kind, mistake string) {
	const schemes = "must begin with http://, https://, ws://, wss://, unix: or tcp:"
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if strings.HasPrefix(path, "///") {
			path = path[2:] // unix:///run/server.sock is in use, too
		}
		switch {
		case path == "" || strings.HasPrefix(path, "//") || strings.ContainsRune(path, 0):
			return "", "", "has no path: write unix:/run/server.sock"
		case !filepath.IsAbs(path) && path[0] != '@':
			path = filepath.Join(p.baseDir, path)
		}
		if len(path) > maxSocketPath {
			return "", "", fmt.Sprintf("has a path of %d bytes; the system takes %d for a socket", len(path), maxSocketPath)
		}
		return "unix:" + path, "socket", ""
	}
	if address, ok := strings.CutPrefix(text, "tcp:"); ok {
		address = strings.TrimPrefix(address, "//")
		host, port, err := net.SplitHostPort(address)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
			return "", "", "has no host and port: write tcp:HOST:PORT"
		}
		return "tcp:" + address, "socket", ""
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", "", "is not a valid URL"
	}
	switch u.Scheme {
	case "http", "https":
		kind = "http"
	case "ws", "wss":
		kind = "ws"
	default:
		return "", "", schemes
	}
	switch {
	case u.Hostname() == "":
		return "", "", "names no host: write " + u.Scheme + "://host/path"
	case u.Fragment != "":
		return "", "", "has a fragment (#...), which a server never sees: remove it"
	}
	return text, kind, ""
}
