package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/nearest"
)

// keyAliases are the keys that a server in the file may have, each with the one that it stands for. Clients have different names for
// the same. A key that stands for "disabled" may say the opposite: see readDisabled.
var keyAliases = map[string]string{
	"command": "command", "args": "args", "env": "env", "envFile": "envFile", "cwd": "cwd",
	"url": "url", "serverUrl": "url", "httpUrl": "url", // Windsurf; Gemini CLI
	"headers": "headers",
	"type":    "type", "transport": "type", "transportType": "type",
	"disabled": "disabled", "enabled": "disabled", "isActive": "disabled",
	"description": "description",
}

// serverTypes are the values that "type" may have, in normalized spelling (nearest.Normalize), each with the transport that it means: stdio, http,
// sse, ws, socket, or remote for any that has a URL.
var serverTypes = map[string]string{
	"stdio": "stdio", "local": "stdio",
	"http": "http", "streamablehttp": "http", "streamable": "http",
	"sse": "sse", "httpsse": "sse", "http+sse": "sse",
	"ws": "ws", "wss": "ws", "websocket": "ws",
	"unix": "socket", "tcp": "socket",
	"remote": "remote",
}

// What a notice says of a key of a server that is for a client and that the bridge ignores.
const (
	// ignoredClientKey is what a notice says of a key that concerns the client alone.
	ignoredClientKey = "is for a client, and ignored here"

	// ignoredTimeout is what a notice says of a key with a time limit of the client.
	ignoredTimeout = `is for a client, and ignored here, as clients do not agree whether it counts seconds or milliseconds: write "mcp-bridge": {"requestTimeout": "30s"}`

	// ignoredToolList is what a notice says of a key that says which tools the client shows.
	ignoredToolList = `is for a client, and hides nothing here: write "mcp-bridge": {"allowTools": [...]} or {"ignoreTools": [...]}`

	// ignoredAuth is what a notice says of a key that says how the client authenticates at the server.
	ignoredAuth = `is for a client, and ignored here: give credentials in "headers"`
)

// clientServerKeys are the keys that servers in a client's file have for the client itself, each with what a notice says of it.
var clientServerKeys = map[string]string{
	// Approval and trust: Cline, Kiro, Amazon Q; Roo Code, Kilo Code; Gemini CLI.
	"autoApprove": ignoredClientKey, "alwaysAllow": ignoredClientKey, "trust": ignoredClientKey,
	// Which tools a client shows: Roo Code, Windsurf, Kiro; Gemini CLI; Copilot.
	"disabledTools": ignoredToolList, "enabledTools": ignoredToolList, "includeTools": ignoredToolList, "excludeTools": ignoredToolList, "tools": ignoredToolList,
	// How long a client waits: Cline, Roo Code, Claude Code, Gemini CLI, Zed.
	"timeout": ignoredTimeout, "networkTimeout": ignoredTimeout, "startupTimeout": ignoredTimeout, "toolTimeout": ignoredTimeout,
	"initTimeout": ignoredTimeout,
	// Signing in: Claude Code, Cursor, Gemini CLI, Copilot, Kiro.
	"oauth": ignoredAuth, "auth": ignoredAuth, "headersHelper": ignoredAuth, "authProviderType": ignoredAuth,
	"targetAudience": ignoredAuth, "targetServiceAccount": ignoredAuth,
	"oauthClientId": ignoredAuth, "oauthPublicClient": ignoredAuth, "oauthScopes": ignoredAuth,
	// VS Code.
	"dev": ignoredClientKey, "gallery": ignoredClientKey, "version": ignoredClientKey, "sandbox": ignoredClientKey, "sandboxEnabled": ignoredClientKey,
	// Roo Code; Cline; Claude Code; Gemini CLI; Zed; Warp; Copilot.
	"watchPaths": ignoredClientKey, "disabledReason": ignoredClientKey, "remoteConfigured": ignoredClientKey, "alwaysLoad": ignoredClientKey,
	"extension": ignoredClientKey, "extensionName": ignoredClientKey,
	"source": ignoredClientKey, "settings": ignoredClientKey, "start_on_launch": ignoredClientKey, "startOnLaunch": ignoredClientKey,
	"filterMapping": ignoredClientKey, "sourcePath": ignoredClientKey, "isDefault": ignoredClientKey,
	// What registries and graphical clients keep with a server.
	"id": ignoredClientKey, "name": ignoredClientKey, "displayName": ignoredClientKey, "title": ignoredClientKey, "icon": ignoredClientKey, "iconUrl": ignoredClientKey,
	"logoUrl": ignoredClientKey, "provider": ignoredClientKey, "providerUrl": ignoredClientKey, "homepage": ignoredClientKey, "tags": ignoredClientKey,
	"registry": ignoredClientKey, "registryUrl": ignoredClientKey, "reference": ignoredClientKey, "longRunning": ignoredClientKey, "note": ignoredClientKey,
}

// clientTopKeys are the keys that a client's file has beside the servers. They are ignored, and a notice says so.
var clientTopKeys = []string{
	"inputs", "sandbox", // VS Code
	"globalShortcut", "preferences", "isUsingBuiltInNodeForMcp", "isDxtAutoUpdatesEnabled", "scale", "locale", // Claude Desktop
	"mcp", "general", "ui", "output", "ide", "privacy", "telemetry", "model", "modelConfigs", "context", "tools", "security", // Gemini CLI
	"advanced", "experimental", "extensions", "hooks", "hooksConfig", "skills", "agents", "admin", "billing",
	"policyPaths", "adminPolicyPaths", "useWriteTodos", "theme", "selectedAuthType",
	"permissions", "env", "enableAllProjectMcpServers", "enabledMcpjsonServers", "disabledMcpjsonServers", // Claude Code
	"mcpProxy", "imports", // other bridges
	"version", "name", "description",
}

// isComment reports whether a key is a comment by convention, such as "//" or "_note". It is not asked about names that others choose:
// an environment variable may well be called _X.
func isComment(key string) bool {
	return key == "$schema" || strings.HasPrefix(key, "//") || strings.HasPrefix(key, "_") || strings.HasPrefix(key, "#")
}

// misnamedKeys are wrong keys of a server, in normalized spelling (nearest.Normalize), each with the key that is meant. They are those that are
// spelled so differently that nearest.To does not find it.
var misnamedKeys = map[string]string{
	"uri": "url", "endpoint": "url", "baseurl": "url", "address": "url",
	"cmd": "command", "program": "command", "executable": "command", "path": "command",
	"arguments": "args", "argv": "args", "environment": "env", "environmentvariables": "env",
	"dir": "cwd", "directory": "cwd", "workdir": "cwd", "workingdirectory": "cwd",
	"header": "headers", "httpheaders": "headers", "dotenv": "envFile", "active": "enabled",
}

// noteForeignKey records what is to say about a key of a server that is not in keyAliases: a notice that it is ignored or, if another
// key is meant, a mistake.
func (p *parser) noteForeignKey(m member) {
	if why := clientServerKeys[m.key]; why != "" {
		p.notef(m.offset, "%s %s", m.label, why)
		return
	}
	if findSetting(m.key) != nil || m.key == "headerFile" {
		p.errorf(m.offset, `%s belongs into "mcp-bridge": {%s: ...}`, m.label, m.label)
		return
	}
	if meaning := misnamedKeys[nearest.Normalize(m.key)]; meaning != "" {
		p.errorf(m.offset, "%s is not known here: did you mean %q?", m.label, meaning)
		return
	}
	if similar := nearest.To(m.key, append(slices.Sorted(maps.Keys(keyAliases)), bridgeKey)); similar != "" {
		p.errorf(m.offset, "%s is not known here: did you mean %q?", m.label, similar)
		return
	}
	if similar := nearest.To(m.key, settingNames()); similar != "" {
		p.errorf(m.offset, `%s is not known here: did you mean "mcp-bridge": {%q: ...}?`, m.label, similar)
		return
	}
	p.notef(m.offset, "%s is not known here, and ignored", m.label) // the next new key of a client
}
