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
// r and w are as [stdio.Std] describes them, usually os.Stdin and os.Stdout;
// neither is closed.
func Serve(ctx context.Context, r io.Reader, w io.Writer, stderr io.Writer) error {
	return serve(ctx, r, w, &Server{Stderr: stderr})
}

// ServeConformance is Serve with [Server.Conformance].
func ServeConformance(ctx context.Context, r io.Reader, w io.Writer, stderr io.Writer) error {
	return serve(ctx, r, w, &Server{Stderr: stderr, Conformance: true})
}

func serve(ctx context.Context, r io.Reader, w io.Writer, srv *Server) error {
	var batches atomic.Bool
	srv.Version = buildVersion()
	srv.Exit = os.Exit
	srv.negotiated = func(revision string) { batches.Store(revision == "2025-03-26") } // ST5
	conn := stdio.Std(r, w, stdio.Options{AcceptBatch: batches.Load})
	err := srv.ServeConn(ctx, conn)
	if closing := conn.Close(nil); err == nil {
		err = closing
	}
	return err
}

// buildVersion is the version of the module in the binary, "" if it is not known.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}
