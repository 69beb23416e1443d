// Package client is an OAuth 2 client for remote MCP servers: it keeps a credential fresh, adds it to
// requests, answers challenges, and signs a person or a machine in.
//
// A [Credential] is one stored identity at one server. All of a process share it, and through the
// store all processes of a user do: of those that find it due, one asks for a new token.
//
// No error and no other text that this package makes contains a token, a code, a verifier, a secret
// or an assertion.
package client
