// Package legacyclient makes a legacy client look modern: its Filter stands
// between one session of a legacy client and a modern server.
//
// initialize becomes server/discover. Each request gets the _meta that modern
// requests have. If the server answers a call with input_required, the Filter
// sends its input requests to the client as requests of their own, and then sends
// the call again with the answers. Subscriptions of the client become one
// subscriptions/listen.
package legacyclient
