// Package legacyserver makes a legacy server look modern: its Filter stands
// between one connection to a legacy server and any number of modern clients.
package legacyserver
