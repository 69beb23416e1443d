// Package command finds out what is wrong with an MCP server that is a command: the
// diagnoses C1 to C15 of "mcp-bridge doctor" (docs/doctor.md).
//
// [Diagnose] starts the command several times and talks to each process itself, on its
// pipes, because it must see the bytes that package stdio reads past: text between the
// messages, line ends, a byte order mark. The first process, "the server", is asked
// everything that one client would ask. Others, in checkSeparately, answer what would disturb the
// first: another revision, server/discover, a terminal as stdout, fewer environment
// variables. What such a process does wrong while others run is tried again with one that runs
// alone: some servers cannot run twice at a time.
//
// Nothing is asked that changes something: no tool is called, unless Options.ToolToCall says so.
// When Diagnose returns, all processes have ended.
package command
