package main

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/remote"
)

// examineURL examines a remote server.
func (f *doctorFlags) examineURL(ctx context.Context, address string, arguments []byte, env environment, report *doctor.Report) error {
	o := remote.Options{Slow: f.slow, Call: f.call, Arguments: arguments}
	var err error
	if o.Header, err = headers(f.target.header, f.target.headerFile, f.target.headerEnv, env.lookup); err != nil {
		return err
	}
	for name := range o.Header {
		doctor.RecordingOf(ctx).HideHeader(name)
	}
	if o.TLS, err = f.target.tls(); err != nil {
		return err
	}
	return remote.Diagnose(ctx, address, o, report)
}
