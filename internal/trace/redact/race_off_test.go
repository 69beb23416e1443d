//go:build !race

package redact

const raced = false
