package demo

import (
	"context"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// Serve is the demo server as a process: it reads messages line by line from r
// and writes them to w until r ends, and then returns nil (see [Server.ServeConn]).
// What is no valid message is answered as JSON-RPC wants it. The tool "crash"
// ends the process.
//
// When ctx ends while r is blocked in Read, r is closed if it is an io.Closer;
// otherwise Serve returns only after that Read.
func Serve(ctx context.Context, r io.Reader, w io.Writer, stderr io.Writer) error {
	var batches atomic.Bool
	srv := &Server{
		Version:    buildVersion(),
		Exit:       os.Exit,
		Stderr:     stderr,
		negotiated: func(revision string) { batches.Store(revision == "2025-03-26") }, // ST5
	}
	conn := stdio.NewConn(r, w, func() error { return closeReader(r) }, stdio.Options{
		Peer:        stdio.Client,
		AcceptBatch: batches.Load,
	})
	err := srv.ServeConn(ctx, conn)
	if closing := conn.Close(); err == nil {
		err = closing
	}
	return err
}

func closeReader(r io.Reader) error {
	if c, ok := r.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// buildVersion is the version of the module in the binary, "" if it is not known.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}
