// Package legacyserver makes a legacy server look modern: its Filter stands
// between one connection to a legacy server and any number of modern clients.
//
// A legacy server sends requests of its own (elicitation/create,
// sampling/createMessage, roots/list). A modern client cannot receive them. So the
// Filter answers the client's call with input_required and keeps the call open at
// the server ("parks" it). The client sends the call again with its answers
// ("retries" it), and the Filter passes the answers on to the server.
package legacyserver
