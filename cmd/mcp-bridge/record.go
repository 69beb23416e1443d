package main

import "context"

// recordCommand is the command record: connect, and a file that has every message as a whole.
func recordCommand(ctx context.Context, args []string, env environment) error {
	return (&connectFlags{isRecord: true}).connect(ctx, args, env)
}

// takeRecordFile takes the file of record, its first argument, from the others.
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
