// Package doctor is what "mcp-bridge doctor" says of a server: facts, findings, and the
// report that holds them, as text and as JSON. It diagnoses nothing itself: package
// doctor/command does that for a server that is a command, package doctor/remote for one
// that has a URL. Both add to a [Report], and docs/doctor.md lists the codes.
package doctor
