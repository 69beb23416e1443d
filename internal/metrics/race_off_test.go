//go:build !race

package metrics

const raced = false
