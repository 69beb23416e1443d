//go:build !unix

package stdio

import "io"

func newPolled(io.Reader, *interrupter) source   { return nil }
func newPolledSink(io.Writer, *interrupter) sink { return nil }
