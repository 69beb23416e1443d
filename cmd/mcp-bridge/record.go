package main

import "context"

// recordCommand is the command record: it does what connect does, and writes every message as a whole to a file.
func recordCommand(ctx context.Context, args []string, env environment) error {
	return (&connectFlags{isRecord: true}).connect(ctx, args, env)
}

// takeRecordFile takes the first argument of record, the file to write, as the value of --record, and returns the other arguments.
func (f *connectFlags) takeRecordFile(args []string) ([]string, error) {
	switch {
	case len(args) == 0 || isURL(args[0]):
		return nil, usagef("record needs the file to write, then a URL or a command after \"--\"")
	case f.tracing.recordFile != "":
		return nil, usagef("record takes the file to write as its first argument; leave --record out")
	}
	f.tracing.recordFile = args[0]
	return args[1:], nil
}
