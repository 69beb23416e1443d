//go:build !linux

package main

import (
	"errors"
	"time"
)

func cpuTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

func childrenOf(int) []int { return nil }
