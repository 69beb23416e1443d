// Package shape reads and writes pieces of raw JSON as the filters between the
// eras need them: members of objects, and the error of a response.
package shape
