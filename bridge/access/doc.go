// Package access decides which HTTP requests a server accepts, and from whom they come. The
// Handlers of streamhttp, legacysse and ws have a Policy as their option Guard.
//
// Its first purpose is to keep web pages away from a server that only local programs are
// meant to reach. A browser sends requests to any address that a page names, also to
// loopback addresses. The Origin header shows that a page has sent the request (rules LI1
// and LI31). With DNS rebinding, where a page's own host name leads to the loopback
// address, the Host header shows it (rule LI2).
//
// A Policy can also ask for tokens (Tokens; rules A2 to A9), and says which reverse proxies
// may tell where a request comes from. Policy.Enter makes all checks, and notes who has
// sent the request; Principal and Policy.Party return that.
//
// A Policy and a Tokens may be used by many goroutines. The package starts none. The
// example guards a handler with a Policy.
package access
