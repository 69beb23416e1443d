// Package legacyclient makes a legacy client look modern: its Filter stands
// between one session of a legacy client and a modern server.
package legacyclient
