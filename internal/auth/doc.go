// Package auth has the wire formats and the calls of OAuth 2 as the Model Context Protocol uses it:
// challenges, metadata, registration, tokens, signed tokens and proofs of possession. It reads and
// writes no file, and knows nothing of the messages of the protocol. Only a KeySet starts goroutines.
//
// Strings that identify something (an issuer, a resource, a redirect URI, a client) are never
// normalised: they are sent as they were published, and compared byte for byte.
//
// No error and no other text that this package makes contains a token, a code, a verifier, a
// secret or an assertion.
package auth
