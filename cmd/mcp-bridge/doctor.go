package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/command"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	target     targetFlags // doctor has some of these flags; the other fields are zero
	auth       authFlags   // doctor has some of these flags (doctorAuthFlags); the other fields are the defaults
	maxMessage byteSize    // --max-message-size: how large a message of the server may be
	json       bool        // --json: write the report as JSON
	slow       bool        // --slow: also make the checks that take minutes
	toolToCall string      // --call: the tool to call once; "": none
	bundle     string      // --bundle: the file to pack the report into; "": none
	config     string      // --config: the configuration file that has the server; "": the arguments name the server

	set        *pflag.FlagSet // the set of all these flags; made by parse
	serverName string         // with --config: the name of the server in the file
}

// flagSet returns the set of all flags of doctor; parsing it sets the fields of f, which have their defaults until then.
func (f *doctorFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("doctor", pflag.ContinueOnError)
	child := &f.target.child
	fs.StringVar(&child.cwd, "cwd", "", "")
	fs.StringVar(&child.passEnv, "pass-env", "", "")
	fs.StringVar(&child.envFile, "env-file", "", "")
	fs.StringArrayVarP(&child.env, "env", "e", nil, "")
	fs.BoolVar(&child.pty, "pty", false, "")
	fs.StringArrayVarP(&f.target.header, "header", "H", nil, "")
	fs.StringVar(&f.target.headerFile, "header-file", "", "")
	fs.StringArrayVar(&f.target.headerEnv, "header-env", nil, "")
	fs.StringVar(&f.target.caFile, "ca-file", "", "")
	fs.StringVar(&f.target.clientCert, "client-cert", "", "")
	fs.StringVar(&f.target.clientKey, "client-key", "", "")
	f.auth.registerForDoctor(fs)
	f.maxMessage = 64 << 20
	fs.Var(&f.maxMessage, "max-message-size", "")
	fs.BoolVar(&f.json, "json", false, "")
	fs.BoolVar(&f.slow, "slow", false, "")
	fs.StringVar(&f.toolToCall, "call", "", "")
	fs.StringVar(&f.bundle, "bundle", "", "")
	fs.StringVar(&f.config, "config", "", "")
	return fs
}

// parse parses and checks the arguments, and returns the server, and the JSON object with the arguments for the tool of --call (nil: not
// given). With --config it sets f.serverName, and to is empty.
func (f *doctorFlags) parse(args []string) (to target, arguments []byte, err error) {
	f.set = f.flagSet()
	positional, argv, err := parseFlags(f.set, args)
	if err != nil {
		return to, nil, err
	}
	if i := slices.IndexFunc(positional, func(a string) bool { return strings.HasPrefix(a, "{") }); i >= 0 && f.toolToCall != "" {
		arguments = []byte(positional[i])
		positional = slices.Delete(positional, i, i+1)
		if !json.Valid(arguments) {
			return to, nil, usagef("--call %s: its arguments are no JSON object", f.toolToCall)
		}
	}
	if len(positional) == 2 && f.config == "" && isConfigFile(positional[0]) {
		f.config, positional = positional[0], positional[1:]
	}
	switch {
	case f.config != "" && len(argv) > 0:
		return to, nil, usagef("doctor --config takes the name of a server in the file, no command")
	case f.config != "" && len(positional) != 1, len(positional) == 1 && isConfigFile(positional[0]):
		return to, nil, usagef("doctor --config FILE takes the name of one server in the file")
	case f.config != "":
		f.serverName = positional[0]
	case len(positional) == 0 && len(argv) == 0:
		return to, nil, usagef("doctor needs a URL, a command after \"--\", or --config FILE and a name")
	case len(positional) > 0 && len(argv) > 0:
		return to, nil, usagef("doctor takes a URL or a command after \"--\", not both")
	case len(positional) > 1 && !isURL(positional[0]) && !looksLikeHost(positional[0]):
		return to, nil, missingDashesError("doctor", positional[0], args)
	case len(positional) > 1:
		return to, nil, usagef("doctor takes one URL; %q is one argument too many", positional[1])
	case len(positional) == 1:
		to.url, err = serverURL(positional[0])
	default:
		to.argv = argv
	}
	return to, arguments, err
}

// errFindings is the error of doctor if the server has faults. It makes the exit status 1, and nothing more is printed: the
// report has them.
var errFindings = &loggedError{errors.New("faults were found")}

// notRunError is the error of doctor or replay if they have no result: they could not find anything out, the recording cannot be used or has no
// answer to what the server has asked, or the report could not be written. It makes the exit status 2.
type notRunError struct{ error }

// diagnose is the command doctor: it examines a server, and reports what is wrong with it.
func diagnose(ctx context.Context, args []string, env environment) error {
	var f doctorFlags
	to, arguments, err := f.parse(args)
	if err != nil {
		return err
	}
	log, err := (&logFlags{level: "warn", format: "text"}).logger(env.stderr)
	if err != nil {
		return err
	}
	warnUnusedFlags(f.set, to, log)
	var archive *bundle
	var recording *doctor.Recording
	if f.bundle != "" {
		if archive, err = newBundle(f.bundle); err != nil {
			return usagef("--bundle: %v", err)
		}
		defer archive.discard()
		recording = doctor.NewRecording()
		ctx = doctor.WithRecording(ctx, recording)
	}
	report, envNames, err := f.examine(ctx, to, arguments, env, log)
	var usage *usageError
	switch {
	case errors.As(err, &usage):
		return err
	case err != nil:
		return &notRunError{err}
	}
	report.Finish()
	if err := f.print(env.stdout, report); err != nil {
		return &notRunError{err}
	}
	if archive != nil {
		if err := archive.write(report, envNames, recording); err != nil {
			return &notRunError{err}
		}
	}
	if report.HasFaults() {
		return errFindings
	}
	return nil
}

// print writes the report of doctor to w: as JSON with --json, else as text.
func (f *doctorFlags) print(w io.Writer, report *doctor.Report) error {
	if f.json {
		return report.WriteJSON(w)
	}
	return report.WriteText(w)
}

// examine examines the server and returns the report. envNames are names of environment variables: of those that the server gets, or, if
// it is remote, of all those in the environment of this process.
func (f *doctorFlags) examine(ctx context.Context, to target, arguments []byte, env environment, log hclog.Logger) (_ *doctor.Report, envNames []string, err error) {
	var s configServer
	if f.config != "" {
		if s, err = f.loadServer(env, log); err != nil {
			return nil, nil, err
		}
		to.url = s.URL
		warnUnusedWithServer(f.set, target{url: s.URL, argv: []string{s.Command}}, log)
	}
	if to.url != "" {
		report := doctor.NewReport(printable.RedactURL(to.url, "hidden"))
		hideSecrets(report, s.secrets)
		ours, err := supervisor.Environ("all", nil)
		if err != nil {
			return nil, nil, err
		}
		return report, variableNames(ours), f.examineURL(ctx, to.url, arguments, env, s, report)
	}
	var spec supervisor.Spec
	var addedEnv []string
	o := command.Options{ToolToCall: f.toolToCall, Arguments: arguments, AllowSlow: f.slow, MaxMessageSize: int(f.maxMessage)}
	if f.config != "" {
		spec, addedEnv, o.MaxMessageSize = s.spec.Command, s.Environ(), s.MaxMessageSize
	} else {
		if spec, err = f.target.child.spec(to.argv, env.lookup); err != nil {
			return nil, nil, err
		}
		addedEnv = f.target.child.addedEnv // a file of them may be a pipe, which can be read once
	}
	report := doctor.NewReport(command.DisplayCommand(cmp.Or(spec.ShownPath, spec.Path), spec.Args))
	hideSecrets(report, s.secrets)
	for _, v := range addedEnv {
		_, value, _ := strings.Cut(v, "=")
		hideSecrets(report, []string{value})
	}
	if o.SafeEnv, err = supervisor.Environ("safe", addedEnv); err != nil {
		return nil, nil, usagef("%v", err)
	}
	if o.FullEnv, err = supervisor.Environ("all", addedEnv); err != nil {
		return nil, nil, usagef("%v", err)
	}
	defer startSupervision(log)()
	return report, variableNames(spec.Env), command.Diagnose(ctx, spec, o, report)
}

// hideSecrets has a report hide these values wherever they occur in it, except those of less than 8 bytes, which are rather words.
func hideSecrets(report *doctor.Report, values []string) {
	for _, value := range values {
		if len(value) >= 8 { // a shorter one is rather a word
			report.HideSecrets(value, strings.ReplaceAll(value, "'", `'\''`)) // as it stands in the command line, too
		}
	}
}

// configServer is a server of a configuration file. The zero value is none.
type configServer struct {
	config.Server               // the server as the file describes it
	spec          upstream.Spec // how the server is reached
	secrets       []string      // the values of all environment variables that the file names, also for other servers, and of secrets in the server's "auth"
}

// loadServer reads the server f.serverName from the configuration file of --config.
func (f *doctorFlags) loadServer(env environment, log hclog.Logger) (s configServer, err error) {
	trust, err := f.target.tls()
	if err != nil {
		return s, err
	}
	defaults := config.DefaultSettings()
	defaults.PTY, defaults.MaxMessageSize = f.target.child.pty, int(f.maxMessage)
	defaults.PassEnv = cmp.Or(f.target.child.passEnv, defaults.PassEnv)
	lookup := func(name string) (string, bool) {
		value, ok := env.lookup(name)
		s.secrets = append(s.secrets, value)
		return value, ok
	}
	c, err := loadConfig(f.config, config.Options{Lookup: lookup, Defaults: &defaults, OnlyServer: f.serverName}, log)
	if err != nil {
		return s, err
	}
	if s.Server, err = c.Server(f.serverName); err != nil {
		return s, usagef("%v", err)
	}
	s.spec, err = upstreamSpec(s.Server, trust, log)
	s.secrets = append(s.secrets, secretsIn(s.Auth)...)
	return s, err
}

// variableNames returns the sorted names of environment variables, which are written NAME=VALUE.
func variableNames(env []string) []string {
	var names []string
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
