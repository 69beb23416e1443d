//go:build !linux

package main

import (
	"errors"
	"time"
)

// cpuTime returns errors.ErrUnsupported: only on Linux a process can be asked.
func cpuTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

// childrenOf returns none: they are not known.
func childrenOf(int) []int { return nil }
