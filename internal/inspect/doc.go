// Package inspect shows a running bridge: its servers, sessions, processes and what passes. An
// API answers in JSON (docs/inspect.md), for `mcp-bridge trace` over a socket that only the same
// user can reach (Control), and for a page in a browser (--inspect).
//
// While nobody looks, messages are not recorded. A viewer has them recorded into a ring in
// memory, from which each viewer reads at its own pace: traffic waits for none of them.
package inspect
