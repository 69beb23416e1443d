package main

import (
	"embed"

	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/manual"
)

// topicTexts has the texts of topics, each in topics/NAME.txt.
//
//go:embed topics/*.txt
var topicTexts embed.FS

// topics are the pages of help that are about no command, such as "help isolation". Their texts are in the folder topics.
var topics = []manual.Topic{
	{Name: "isolation", Summary: "which clients share a server process"},
	{Name: "config", Summary: "the file of many servers"},
	{Name: "eras", Summary: "revisions of the protocol, and what is translated"},
	{Name: "auth", Summary: "who may come in, and how the bridge signs in elsewhere"},
	{Name: "debugging", Summary: "what to do when a client hangs or sees no tools"},
}

// newManual returns what help, man page and completion show.
func newManual() *manual.Manual {
	m := &manual.Manual{
		Program: "mcp-bridge",
		Summary: "mcp-bridge connects clients and servers of the Model Context Protocol whose transports or revisions differ: stdio, Streamable HTTP, HTTP+SSE and WebSocket, from 2024-11-05 to 2026-07-28.",
		Version: buildinfo.Version(),
		Examples: []manual.Example{
			{Purpose: "Expose a stdio server at http://127.0.0.1:8080/mcp, /sse and /ws", CommandLine: "serve -- npx -y @modelcontextprotocol/server-everything"},
			{Purpose: "Give a stdio client, such as Claude Desktop, a remote server", CommandLine: "connect https://mcp.example.com/mcp"},
			{Purpose: "Expose the servers of a client's configuration file", CommandLine: "serve --config servers.json"},
			{Purpose: "Find out what is wrong with a server", CommandLine: "doctor https://mcp.example.com/mcp"},
		},
		Groups: flagGroups, DefaultCommand: "serve",
		Notes: []string{
			`"mcp-bridge help COMMAND" has the flags of a command, "mcp-bridge help TOPIC" explains a topic. Without a command, "mcp-bridge -- COMMAND" is serve, and "mcp-bridge URL" is connect.`,
			"Exit status: 0 after a graceful end, 1 when something failed (the log says what), 2 for a mistake in the command line or a configuration file, 3 when status finds that a sign-in is needed, 130 or 143 when a second signal has ended it. Durations are written 500ms, 30s, 5m, 1h30m.",
		},
	}
	for _, c := range commandTable() {
		if c.newFlagSet != nil {
			c.Flags = knownFlags(c.newFlagSet())
		}
		m.Commands = append(m.Commands, c.Command)
	}
	for _, t := range topics {
		text, err := topicTexts.ReadFile("topics/" + t.Name + ".txt")
		if err != nil {
			panic(err) // it is not in the binary
		}
		t.Text = string(text)
		m.Topics = append(m.Topics, t)
	}
	for i := range m.Commands {
		if m.Commands[i].Name == "help" {
			m.Commands[i].ArgumentValues = m.PageNames()
		}
	}
	return m
}
