//go:build !linux

package main

// releaseStartPages does nothing: other systems take pages back on their own, or not at all.
func releaseStartPages() {}
