// Package resource protects HTTP handlers as an OAuth resource server does (RFC 6750, 8705, 9449,
// 9728). It verifies signed tokens of several issuers, asks an introspection endpoint about others
// (RFC 7662), and knows static keys and certificates of TLS clients. It answers with challenges before
// a byte of the body is read, publishes the metadata of what it protects, and says which scopes a
// message needs. It knows no transport.
//
// A Protector is the access.Authenticator of an access.Policy. A request that it lets through carries
// its access.Sender, the principal for bridge/identity, and its Grant.
//
// No error and no reply of this package contains a token, a key or a secret.
package resource
