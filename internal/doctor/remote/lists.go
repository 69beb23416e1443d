package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
)

const maxPages = 5 // how many pages of a list countList reads at most

// noteLists notes, as facts, how many tools, resources and prompts the server has.
func (p commonChecks) noteLists(ctx context.Context) {
	for _, kind := range []string{"tools", "resources", "prompts"} {
		if p.requester.hasCapability(kind) {
			p.setFact(kind, "%s", p.countList(ctx, kind))
		}
	}
}

// countList reads a list of kind "tools", "resources" or "prompts", maxPages at most, and returns, as the text of a fact, how many
// elements it has read, or why a page could not be had. It keeps the names of tools if it has read all.
func (p commonChecks) countList(ctx context.Context, kind string) string {
	n, cursor, began := 0, "", time.Now()
	names := map[string]bool{}
	for page := 1; ; page++ {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		r := p.requester.ask(ctx, kind+"/list", params, nil)
		var list map[string]json.RawMessage
		if !r.HasResult() || json.Unmarshal(r.Result(), &list) != nil {
			if r.IsInconclusive() {
				return "not asked for"
			}
			return kind + "/list: " + r.Summary()
		}
		var items []json.RawMessage
		_ = json.Unmarshal(list[kind], &items)
		for _, item := range items {
			var named struct{ Name string }
			_ = json.Unmarshal(item, &named)
			names[named.Name] = true
		}
		n, cursor = n+len(items), ""
		_ = json.Unmarshal(list["nextCursor"], &cursor)
		switch {
		case cursor == "":
			if kind == "tools" {
				p.setToolNames(names)
			}
			return fmt.Sprintf("%d, in %s", n, millis(time.Since(began)))
		case page == maxPages:
			return fmt.Sprintf("%d on the first %d pages", n, page)
		}
	}
}

// checkConnectionReuse adds H24 if the server closes each connection after one request.
func (p commonChecks) checkConnectionReuse(ctx context.Context) {
	const tries = 3
	var last *probe.Reply
	for range tries {
		r := p.requester.ask(ctx, p.requester.harmlessMethod(), nil, nil)
		if !wasAnswered(r) || !r.HasEnded || r.ReusedConn || r.Proto != "HTTP/1.1" && r.Proto != "HTTP/1.0" {
			return
		}
		last = r
	}
	seen := fmt.Sprintf("%d requests, one after the other, took as many connections (%s", tries, last.Proto)
	if c := last.Header.Get("Connection"); c != "" {
		seen += ", Connection: " + c
	}
	p.addFinding("H24", doctor.Note, "Each request takes a connection of its own", seen+")",
		fmt.Sprintf("Each call takes %s longer than it must.", millis(p.dialTime)),
		"Have the server, or "+last.Intermediary()+", keep connections alive (HTTP/1.1 keep-alive, or HTTP/2).")
}

// checkBodySizes sends messages of up to 4 MB, and adds H19 if one is refused for its size.
func (p commonChecks) checkBodySizes(ctx context.Context) {
	const kB, MB = 1000, 1000 * 1000
	for _, size := range []int{100 * kB, 1200 * kB, 4 * MB} {
		within, cancel := context.WithTimeout(ctx, checkTimeout)
		r := p.requester.ask(within, p.requester.harmlessMethod(), map[string]any{"_meta": map[string]any{"padding": strings.Repeat("x", size-400)}}, nil)
		cancel()
		if wasAnswered(r) {
			continue
		}
		if r.Status != 413 && !(r.Status == 400 || r.Status == 500) || r.IsInconclusive() {
			return // it may be the network; nothing is sure
		}
		if r.Status != 413 && !saysTooLarge(r) {
			return
		}
		p.addBodyLimit(r, size)
		return
	}
}

// saysTooLarge reports whether the words of a reply say that the message is too large.
func saysTooLarge(r *probe.Reply) bool {
	text := strings.ToLower(r.BodyExcerpt() + string(r.Text[:min(len(r.Text), 1000)]))
	return strings.Contains(text, "too large") || strings.Contains(text, "toolarge") || strings.Contains(text, "exceed") || strings.Contains(text, "body limit")
}

// addBodyLimit adds H19: a message of size bytes was refused with r.
func (p commonChecks) addBodyLimit(r *probe.Reply, size int) {
	who, severity := r.Intermediary(), doctor.Note
	do := "Raise the limit at " + who + " if tools take files or long texts (express.json({limit}), max body size)."
	if lower := strings.ToLower(who + string(r.Text)); strings.Contains(lower, "nginx") || strings.Contains(lower, "openresty") {
		severity = doctor.Warning // its default is 1 MB, whatever the server takes
		do = "Set client_max_body_size in nginx to what the server takes, such as 64m."
	}
	if size <= 200*1000 {
		severity = doctor.Warning
	}
	p.addFinding("H19", severity, doctor.LargeBodiesRefused.Title, fmt.Sprintf("a message of %d KB: %s", size/1000, r.Summary()),
		doctor.LargeBodiesRefused.Consequence, do)
}
