package main

import (
	"cmp"
	"errors"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
)

// tracingFlags say what is written down of the traffic. serve, connect, record and replay --serve have them.
type tracingFlags struct {
	traceFile  string         // --trace: the file of the trace, in which long messages are cut; "": none
	recordFile string         // --record: the file of a trace for replay, with each message as a whole; "": none
	maxMessage byteSizeOrZero // --trace-max-message: how much of a message is in the file of --trace, in bytes; 0: nothing
	redact     []string       // --trace-redact: paths in messages, or re:REGEX, of what is taken out beside secrets
	unredacted bool           // --trace-unredacted: secrets stay in the trace

	set *pflag.FlagSet // has these flags, and the other flags of the command
}

// register adds the flags of tracingFlags to fs, and gives the fields their defaults.
func (f *tracingFlags) register(fs *pflag.FlagSet) {
	f.maxMessage = trace.DefaultFileMaxText
	fs.StringVar(&f.traceFile, "trace", "", "")
	fs.StringVar(&f.recordFile, "record", "", "")
	fs.Var(&f.maxMessage, "trace-max-message", "")
	fs.StringArrayVar(&f.redact, "trace-redact", nil, "")
	fs.BoolVar(&f.unredacted, "trace-unredacted", false, "")
	f.set = fs
}

// byteSizeOrZero is the value of a flag that is a number of bytes, such as 64KiB, and, unlike a byteSize, may be 0.
type byteSizeOrZero byteSize

// String returns the size as one writes it, with the largest unit of which it is a whole number, as byteSize does.
func (s *byteSizeOrZero) String() string { return (*byteSize)(s).String() }

// Type returns what pflag calls the kind of value: "size".
func (s *byteSizeOrZero) Type() string { return "size" }

// Set parses a number of bytes, or one with KiB, MiB or GiB; it may be 0.
func (s *byteSizeOrZero) Set(text string) error {
	if strings.TrimSpace(text) == "0" {
		*s = 0
		return nil
	}
	return (*byteSize)(s).Set(text)
}

// check returns the first mistake in these flags that can be found without a look at files or the network; nil: there is none.
func (f *tracingFlags) check() error {
	switch {
	case f.unredacted && len(f.redact) > 0:
		return usagef("--trace-redact has no effect with --trace-unredacted; leave one of them out")
	case f.traceFile != "" && f.recordFile != "":
		return usagef("a recording is a trace without cuts: leave --trace or --record out")
	case f.traceFile == "" && f.set.Changed("trace-max-message"):
		return usagef("--trace-max-message needs --trace FILE")
	}
	if _, err := redact.New(redact.Options{Rules: f.redact}); err != nil {
		return usagef("--trace-redact: %v", err)
	}
	return nil
}

// start begins to write down what observer tells, if there is to be a file. The Recorder is there
// in any case: others look at a running bridge with it. stop must be called.
func (f *tracingFlags) start(observer *observe.Observer, log hclog.Logger) (t *tracing, stop func(), err error) {
	t = &tracing{flags: f, secretHeaders: map[string]bool{}, secretValues: map[string][][]string{}}
	t.recorder = trace.NewRecorder(observer, t.redactor(f.unredacted))
	observer.Redact = t.redact
	if f.unredacted {
		t.recorder.SetTextRedactor(t.redactor(false))
		log.Warn("--trace-unredacted: traces of this run hold passwords and tokens as they are; keep them to yourself")
	}
	if f.traceFile == "" && f.recordFile == "" {
		return t, t.recorder.Wait, nil
	}
	o := trace.FileOptions{MaxText: int(f.maxMessage), NoText: f.maxMessage == 0}
	if f.recordFile != "" {
		o = trace.FileOptions{MaxText: -1, MaxBytes: -1}
	}
	o.OnError = func(err error) {
		if errors.Is(err, trace.ErrNotRenamed) {
			log.Warn("the file of the trace becomes larger than it should: somebody may have it open", "error", err)
			return
		}
		log.Warn("the trace cannot be written; what happens meanwhile will be missing in it", "error", err)
	}
	file, err := trace.NewFile(cmp.Or(f.recordFile, f.traceFile), o)
	if err != nil {
		return nil, nil, usagef("writing what passes: %v", err)
	}
	release := t.recorder.AddSink(file)
	return t, func() {
		release()
		t.recorder.Wait()
		if err := file.Close(); err != nil {
			log.Warn("the trace may lack its end", "error", err)
		}
		if n := file.Lost(); n > 0 {
			log.Warn("the trace is not complete", "missing", n)
		}
	}, nil
}
