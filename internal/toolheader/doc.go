// Package toolheader knows the x-mcp-header annotations in the input schemas
// of tools (2026-07-28, server/tools, "x-mcp-header"): which parameters of a
// tool go as Mcp-Param headers with its call over Streamable HTTP. It reads
// the annotations, makes the headers, and checks them.
//
// All functions take raw JSON that is valid, values of a jsonrpc.Message, and
// may be called concurrently.
package toolheader
