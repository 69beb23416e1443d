// Package era translates between the two eras of MCP: the revisions with an
// initialize handshake and sessions, up to 2025-11-25 ("legacy"), and the
// stateless 2026-07-28 ("modern").
//
// Two filters do it: LegacyClient makes a legacy client look modern,
// LegacyServer makes a legacy server look modern. They are pure: messages in,
// messages out, time as an argument. Whoever runs one owns the Conns.
package era
