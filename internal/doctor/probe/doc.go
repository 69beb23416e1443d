// Package probe makes the HTTP requests of a diagnosis and shows what comes back as it
// is: nothing is followed, repeated, decompressed or mended.
package probe
