// Package remote diagnoses a server that has an http or https URL, and what lies between
// it and its clients: DNS, TLS, proxies, load balancers, authorization. docs/doctor.md
// lists what it finds, H1 to H26.
//
// It makes its requests itself: the bridge's own clients would mend, or hide, much of
// what is to be seen here. It changes nothing at the server: it asks for what the server
// is and lists what the server has, and ends the sessions that it has opened.
//
// A check that cannot tell a fault from a variation that works says nothing, or notes a
// fact.
package remote
