// Package httpdial holds what the clients of all transports over HTTP share:
// the checks of URLs and headers, a transport that suits streams, which
// redirects are followed, and explanations, for people and for programs, of
// what goes wrong.
package httpdial
