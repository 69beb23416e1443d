// Package streamclient is the client side of MCP's Streamable HTTP transport: Client
// for servers with sessions (2025-03-26 to 2025-11-25), and ModernClient for
// 2026-07-28. The files of ModernClient begin with modern.
package streamclient
