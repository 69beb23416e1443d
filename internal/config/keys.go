package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/nearest"
)

// aliases are the keys of a server by what they mean. Clients have different
// names for the same.
var aliases = map[string]string{
	"command": "command", "args": "args", "env": "env", "envFile": "envFile", "cwd": "cwd",
	"url": "url", "serverUrl": "url", "httpUrl": "url", // Windsurf; Gemini CLI
	"headers": "headers",
	"type":    "type", "transport": "type", "transportType": "type",
	"disabled": "disabled", "enabled": "disabled", "isActive": "disabled",
	"description": "description",
}

// kinds are the values of "type" as plain spells them.
var kinds = map[string]string{
	"stdio": "stdio", "local": "stdio",
	"http": "http", "streamablehttp": "http", "streamable": "http",
	"sse": "sse", "httpsse": "sse", "http+sse": "sse",
	"ws": "ws", "wss": "ws", "websocket": "ws",
	"unix": "socket", "tcp": "socket",
	"remote": "remote",
}

// Why a client's key is ignored.
const (
	plainly   = "is for a client, and ignored here"
	noUnit    = `is for a client, and ignored here, as clients do not agree whether it counts seconds or milliseconds: write "mcp-bridge": {"requestTimeout": "30s"}`
	noHiding  = `is for a client, and hides nothing here: write "mcp-bridge": {"allowTools": [...]} or {"ignoreTools": [...]}`
	noSigning = `is for a client, and ignored here: give credentials in "headers"`
)

// clientServerKeys are what the servers of a client's file have for the client
// itself, and what to say of it.
var clientServerKeys = map[string]string{
	// Approval and trust: Cline, Kiro, Amazon Q; Roo Code, Kilo Code; Gemini CLI.
	"autoApprove": plainly, "alwaysAllow": plainly, "trust": plainly,
	// Which tools a client shows: Roo Code, Windsurf, Kiro; Gemini CLI; Copilot.
	"disabledTools": noHiding, "enabledTools": noHiding, "includeTools": noHiding, "excludeTools": noHiding, "tools": noHiding,
	// How long a client waits: Cline, Roo Code, Claude Code, Gemini CLI, Zed.
	"timeout": noUnit, "networkTimeout": noUnit, "startupTimeout": noUnit, "toolTimeout": noUnit,
	"initTimeout": noUnit,
	// Signing in: Claude Code, Cursor, Gemini CLI, Copilot, Kiro.
	"oauth": noSigning, "auth": noSigning, "headersHelper": noSigning, "authProviderType": noSigning,
	"targetAudience": noSigning, "targetServiceAccount": noSigning,
	"oauthClientId": noSigning, "oauthPublicClient": noSigning, "oauthScopes": noSigning,
	// VS Code.
	"dev": plainly, "gallery": plainly, "version": plainly, "sandbox": plainly, "sandboxEnabled": plainly,
	// Roo Code; Cline; Claude Code; Gemini CLI; Zed; Warp; Copilot.
	"watchPaths": plainly, "disabledReason": plainly, "remoteConfigured": plainly, "alwaysLoad": plainly,
	"extension": plainly, "extensionName": plainly,
	"source": plainly, "settings": plainly, "start_on_launch": plainly, "startOnLaunch": plainly,
	"filterMapping": plainly, "sourcePath": plainly, "isDefault": plainly,
	// What registries and graphical clients keep with a server.
	"id": plainly, "name": plainly, "displayName": plainly, "title": plainly, "icon": plainly, "iconUrl": plainly,
	"logoUrl": plainly, "provider": plainly, "providerUrl": plainly, "homepage": plainly, "tags": plainly,
	"registry": plainly, "registryUrl": plainly, "reference": plainly, "longRunning": plainly, "note": plainly,
}

// clientTopKeys are what a client's file has beside the servers.
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

// isComment reports whether a key is a comment by convention. It is only where
// the keys are ours to say: a variable may well be called _X.
func isComment(key string) bool {
	return key == "$schema" || strings.HasPrefix(key, "//") || strings.HasPrefix(key, "_") || strings.HasPrefix(key, "#")
}

// misnamed are keys that are not similar to what they mean.
var misnamed = map[string]string{
	"uri": "url", "endpoint": "url", "baseurl": "url", "address": "url",
	"cmd": "command", "program": "command", "executable": "command", "path": "command",
	"arguments": "args", "argv": "args", "environment": "env", "environmentvariables": "env",
	"dir": "cwd", "directory": "cwd", "workdir": "cwd", "workingdirectory": "cwd",
	"header": "headers", "httpheaders": "headers", "dotenv": "envFile", "active": "enabled",
}

// foreign tells about a key of a server that is none of ours.
func (p *parser) foreign(m member) {
	if why := clientServerKeys[m.key]; why != "" {
		p.notef(m.at, "%s %s", m.what, why)
		return
	}
	if settingOf(m.key) != nil || m.key == "headerFile" {
		p.errorf(m.at, `%s belongs into "mcp-bridge": {%s: ...}`, m.what, m.what)
		return
	}
	if meaning := misnamed[nearest.Normalize(m.key)]; meaning != "" {
		p.errorf(m.at, "%s is not known here: did you mean %q?", m.what, meaning)
		return
	}
	if similar := nearest.To(m.key, append(slices.Sorted(maps.Keys(aliases)), bridgeKey)); similar != "" {
		p.errorf(m.at, "%s is not known here: did you mean %q?", m.what, similar)
		return
	}
	if similar := nearest.To(m.key, settingNames()); similar != "" {
		p.errorf(m.at, `%s is not known here: did you mean "mcp-bridge": {%q: ...}?`, m.what, similar)
		return
	}
	p.notef(m.at, "%s is not known here, and ignored", m.what) // the next new key of a client
}
