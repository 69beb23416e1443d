package mux_test

import (
	"testing"
	"testing/synctest"
)

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
