package hub

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// A startPage is what the page at "/" says: to people who open the address of the bridge in a browser, or ask curl for it.
type startPage struct {
	Version   string    // the version of this program
	Refused   string    // why the page tells nothing else, and what to do; "": it tells all
	Endpoints []link    // addresses for clients: of the only server, or of the list of servers; and /readyz
	Servers   []link    // the address of each server, where there are many; nil: the bridge has one server, or clients must authenticate
	Snippets  []snippet // what to write into the configurations of clients
	Links     []link    // pages to read
}

// A link is a line of the start page: a text, and the URL that it leads to.
type link struct {
	Name    string // the text: what the URL leads to
	Address string // the URL
}

// A snippet is what to write into the configuration of a client.
type snippet struct {
	For  string // which kind of client it is for
	Text string // what to write: JSON
}

// isStartPage reports whether a request is for the start page: it is a GET or HEAD of path, which is "/" or the path prefix, and its Accept
// header names what people read, anything, or nothing. Clients of MCP send another Accept: at a path that is no endpoint they must get a 404.
func (h *Hub) isStartPage(r *http.Request, path string) bool {
	if path != "/" && (path != h.opts.PathPrefix || path == "/servers" && !h.opts.SingleServer) {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != "" {
		return false
	}
	accept := r.Header.Get("Accept")
	return accept == "" || accept == "*/*" || isForPeople(accept)
}

// isForPeople reports whether an Accept header names what people read: HTML or plain text.
func isForPeople(accept string) bool {
	return strings.Contains(accept, "text/html") || strings.Contains(accept, "text/plain")
}

// serveStartPage answers with the start page. A client that must authenticate and does not is told only that: neither which version
// this is nor which servers there are. Who may not come in for another reason, such as a foreign Origin, gets that reason as plain text.
func (h *Hub) serveStartPage(w http.ResponseWriter, r *http.Request) {
	known, no := h.opts.Guard.Enter(w, r)
	switch {
	case no != nil && no.Status == http.StatusUnauthorized:
		observe.Refuse(w, observe.WithCause(r, no.Cause), no.Rule, no.Status, no.Reason)
		writeStartPage(w, r, no.Status, startPage{Refused: no.Reason})
	case no != nil:
		httpserve.RefuseText(w, observe.WithCause(r, no.Cause), no.Rule, no.Status, no.Reason)
	case known != nil:
		writeStartPage(w, known, http.StatusOK, h.startPageFor(known))
	}
}

// startPageFor returns the start page for a client that may come in.
func (h *Hub) startPageFor(r *http.Request) startPage {
	base := h.opts.PublicURL
	if base == "" {
		base = h.opts.Guard.Scheme(r) + "://" + r.Host + h.opts.publicPrefix(r)
	}
	page := startPage{Version: buildinfo.Version()}
	transports := []link{{"Streamable HTTP", "/mcp"}, {"HTTP+SSE", "/sse"}, {"WebSocket", "/ws"}}
	name, address := "my-server", ""
	servers := h.serversInOrder()
	for _, s := range servers {
		path := base + h.pathPrefix(s.spec.Name)
		if address == "" {
			address = path + "/mcp"
		}
		if !h.opts.SingleServer {
			if !h.opts.Guard.Authenticates() { // a token may be for one of them only
				page.Servers = append(page.Servers, link{s.spec.Name, path + "/mcp"})
			}
			continue
		}
		name = s.spec.Name
		for _, t := range transports {
			if !s.hidesEndpoint(t.Address[1:]) {
				url := path + t.Address
				if t.Address == "/ws" {
					url = "ws" + strings.TrimPrefix(url, "http")
				}
				page.Endpoints = append(page.Endpoints, link{t.Name, url})
			}
		}
	}
	switch {
	case len(page.Servers) > 0:
		name = page.Servers[0].Name
	case !h.opts.SingleServer:
		address = base + "/servers/NAME/mcp"
	}
	if !h.opts.SingleServer {
		page.Endpoints = []link{{"The list of servers", base + "/servers"}, {"Each server", base + "/servers/NAME/mcp"}}
	}
	page.Endpoints = append(page.Endpoints, link{"Is it ready?", base + "/readyz"})
	page.Snippets = snippets(name, address, h.opts.Guard.Authenticates() && h.opts.Metadata == nil) // else clients sign in
	page.Links = []link{{"Documentation", repositoryURL}, {"When something goes wrong", repositoryURL + "/blob/main/docs/troubleshooting.md"}}
	return page
}

// repositoryURL is the address of the project, where the documentation is.
const repositoryURL = "https://github.com/mcp-bridge/mcp-bridge"

// snippets returns what to write into the configuration of a client that takes addresses, and of one that starts programs, to reach the
// server name at address. authenticates: clients need a token, which the snippets have a place for.
func snippets(name, address string, authenticates bool) []snippet {
	type server struct {
		Type    string            `json:"type,omitempty"`
		URL     string            `json:"url,omitempty"`
		Headers map[string]string `json:"headers,omitempty"`
		Command string            `json:"command,omitempty"`
		Args    []string          `json:"args,omitempty"`
		Env     map[string]string `json:"env,omitempty"`
	}
	byURL := server{Type: "http", URL: address}
	byCommand := server{Command: "mcp-bridge", Args: []string{"connect", address}}
	if authenticates {
		byURL.Headers = map[string]string{"Authorization": "Bearer TOKEN"}
		byCommand.Args = []string{"connect", "--header-env", "Authorization=AUTH", address}
		byCommand.Env = map[string]string{"AUTH": "Bearer TOKEN"}
	}
	text := func(s server) string {
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false) // that is done by the page
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(map[string]any{"mcpServers": map[string]server{name: s}}) // strings only
		return b.String()
	}
	return []snippet{{"A client that takes an address", text(byURL)}, {"A client that starts programs", text(byCommand)}}
}

// writeStartPage answers a request with the page: as HTML if its Accept header names that, as browsers' does, else as text.
func writeStartPage(w http.ResponseWriter, r *http.Request, status int, page startPage) {
	var body bytes.Buffer
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		header.Set("Content-Type", "text/html; charset=utf-8")
		page.html(&body)
	} else {
		page.text(&body)
	}
	header.Set("Content-Security-Policy", "default-src 'none'; img-src data:; style-src '"+pageStyleHash+"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Add("Vary", "Accept") // beside Origin, which the guard may have set
	w.WriteHeader(status)
	httpserve.WriteWithDeadline(w, body.Bytes())
}

// text appends the page as text to b.
func (p startPage) text(b *bytes.Buffer) {
	if p.Refused != "" {
		fmt.Fprintf(b, "This is an mcp-bridge: %s\n", p.Refused)
		return
	}
	fmt.Fprintf(b, "mcp-bridge %s\n", p.Version)
	for _, list := range [][]link{p.Endpoints, p.Servers, p.Links} {
		if len(list) > 0 {
			b.WriteByte('\n')
		}
		for _, e := range list {
			fmt.Fprintf(b, "%-26s %s\n", e.Name, e.Address)
		}
	}
	for _, s := range p.Snippets {
		fmt.Fprintf(b, "\n%s:\n%s", s.For, s.Text)
	}
}

// pageStyle is the CSS of the start page.
const pageStyle = `body{font:16px/1.5 system-ui,sans-serif;max-width:50em;margin:2em auto;padding:0 1em;color-scheme:light dark}` +
	`td{padding-right:2em;vertical-align:top}pre{overflow:auto;padding:1em;border:1px solid #8888;border-radius:4px}`

// pageStyleHash is the hash of pageStyle for the Content-Security-Policy: with it the browser uses this style and no other.
var pageStyleHash = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}()

// html appends the page as HTML to b. Addresses are shown and not linked where a browser has no use for them. It does without
// html/template, with which the linker could leave out no method of any type: 4 MB of the program.
func (p startPage) html(b *bytes.Buffer) {
	esc := html.EscapeString
	b.WriteString(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>mcp-bridge</title><link rel="icon" href="data:,"><style>` + pageStyle + `</style></head>
<body>
`)
	if p.Refused != "" {
		fmt.Fprintf(b, "<h1>mcp-bridge</h1><p>This is an mcp-bridge: %s</p>\n", esc(p.Refused))
	} else {
		fmt.Fprintf(b, "<h1>mcp-bridge %s</h1>\n<p>It serves the Model Context Protocol. Write one of these addresses into an MCP client.</p>\n<table>", esc(p.Version))
		for _, list := range [][]link{p.Endpoints, p.Servers} {
			for _, e := range list {
				fmt.Fprintf(b, "<tr><td>%s</td><td><code>%s</code></td></tr>\n", esc(e.Name), esc(e.Address))
			}
		}
		b.WriteString("</table>\n")
		for _, s := range p.Snippets {
			fmt.Fprintf(b, "<h2>%s</h2><pre>%s</pre>\n", esc(s.For), esc(s.Text))
		}
		b.WriteString("<p>")
		for _, l := range p.Links {
			fmt.Fprintf(b, `<a href="%s">%s</a> `, esc(l.Address), esc(l.Name))
		}
		b.WriteString("</p>\n")
	}
	b.WriteString("</body></html>\n")
}
