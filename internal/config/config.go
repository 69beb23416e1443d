// Package config reads the configuration file of many servers: the mcpServers
// JSON that MCP clients use, with comments, trailing commas and ${VAR}, and
// with the bridge's own settings under the key "mcp-bridge", so that the same
// file still loads in a client. docs/config.md describes every key.
//
// Nothing of this package prints the values of "env" and "headers", of
// arguments or of URLs: they hold secrets.
package config

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/nearest"
)

// A Config is what a file says.
type Config struct {
	// Servers are the servers of the file, in its order, also the disabled ones. Their names differ.
	Servers []Server

	// MaxChildrenTotal bounds the child processes of all servers together; 0
	// means no bound, -1 that the file does not say.
	MaxChildrenTotal int

	// Scopes are the lines of "scopes", each of which says which scopes of access tokens messages need, such as
	// "tools/call delete_* -> admin".
	Scopes []string

	// Files are the files that were read or should have been: the file itself and
	// each envFile and headerFile, as absolute paths. A change of any of them
	// can change the Config.
	Files []string

	// Notices are what the reader should know although it is no mistake, such
	// as a key that is for a client and means nothing here. In the order of
	// the file.
	Notices []Problem
}

// A Server is one server of the file, with variables expanded and defaults filled in. It has either a Command or a URL; one that is
// disabled, or not Options.OnlyServer, may have neither, if the one that it has in the file needs a variable that is not set.
type Server struct {
	Name        string // the key of the server in the file; it can be one segment of a path, percent-encoded
	Description string // a text for people
	Disabled    bool   // it is not served; a string of it that has an unset variable is empty

	Command string            // the program to run; "": the server has a URL
	Args    []string          // the arguments of Command
	Env     map[string]string // the environment variables that envFile and env set for Command; env wins
	Dir     string            // the working directory of Command: absolute, or "" for the bridge's own

	// UnexpandedCommand and UnexpandedDir are the Command and the Dir as they stand in the file, if they have variables (${NAME}) there;
	// else "". Logs and errors show them in place of Command and Dir: what a variable holds may be secret.
	UnexpandedCommand, UnexpandedDir string

	URL    string      // the address of a remote server: http, https, ws, wss, unix:PATH or tcp:HOST:PORT; "": the server has a Command
	Header http.Header // the headers of every request to a remote server, of headerFile and headers; headers win

	// Auth is what "auth" says of signing in to a remote server: for the name of a flag of sign-in, without "--", the values that the
	// flag would be given; and the secrets AuthSecret and AuthIDPSecret, for which there is no flag. nil: the file says nothing.
	Auth map[string][]string

	Settings // the bridge's own settings for the server
}

// Environ returns Env as NAME=VALUE, sorted by name.
func (s Server) Environ() []string {
	env := make([]string, 0, len(s.Env))
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// Settings are the bridge's own settings for a server. Each means what the flag of the same name means, also 0.
type Settings struct {
	Isolation      string        // which clients share a process: auto, session, principal, shared or request
	Protocol       string        // what is spoken with the server: auto, legacy or modern
	ClientProtocol string        // what clients may speak: auto, legacy or modern
	ParkTimeout    time.Duration // how long a call waits for the client's answers to input requests; more than 0
	MaxChildren    int           // how many processes the server may have at a time; 0: one for each session, and 100 that clients share (32 with isolation request)
	Queue          int           // how many clients may wait for a process to end; 0: none
	QueueTimeout   time.Duration // how long a client waits for a process to end before it is refused; 0: not at all
	MaxSessions    int           // how many sessions each transport may have; more than 0
	SessionTimeout time.Duration // how long a Streamable HTTP session may be idle, and a shared process have no clients, before it is ended; 0: for ever
	Lazy           bool          // the server is started when it is first used, not at once
	PassEnv        string        // which of the bridge's environment variables a child inherits: safe, all, none, or names with commas
	PTY            bool          // a child gets a terminal as stdout
	StdinWait      time.Duration // how long a child that is stopped has to end after its stdin was closed; 0: it gets SIGTERM at once
	TermWait       time.Duration // how long its process group then has to end after SIGTERM; 0: it gets SIGKILL at once
	KillWait       time.Duration // how long the end of the process group is waited for after SIGKILL; 0: 5 s
	RequestTimeout time.Duration // how long a server may stay silent on a request before it is cancelled; 0: for ever
	DrainTimeout   time.Duration // how long owed answers are waited for at the end of input, and when the server is changed or removed; 0: not at all
	Grace          time.Duration // how long owed answers are waited for at shutdown; 0: not at all
	MaxMessageSize int           // how large a message may be, in bytes; more than 0
	MaxDepth       int           // how many levels of objects and arrays a message may have; more than 0
	AllowTools     []string      // patterns of the tools that clients see; nil: all
	IgnoreTools    []string      // patterns of the tools that are hidden; nil: none
	Transport      string        // which of Streamable HTTP and HTTP+SSE a remote server is tried with: http-first, sse-first, http-only or sse-only
	ConnectTimeout time.Duration // how long connecting to a remote server may take; 0: 10 s
	ResumeTimeout  time.Duration // how long it is tried to reconnect to the broken stream of a call before the call fails; more than 0
}

// DefaultSettings returns the settings of a server of a file that says nothing. They are also the defaults of the flags, but for
// PassEnv: the child of a file's server gets the safe variables only (ST16).
func DefaultSettings() Settings {
	return Settings{
		Isolation:      "auto",
		Protocol:       "auto",
		ClientProtocol: "auto",
		ParkTimeout:    10 * time.Minute,
		Queue:          100,
		QueueTimeout:   10 * time.Second,
		MaxSessions:    1000,
		SessionTimeout: 30 * time.Minute,
		Lazy:           true,
		PassEnv:        "safe",
		StdinWait:      5 * time.Second,
		TermWait:       5 * time.Second,
		KillWait:       5 * time.Second,
		DrainTimeout:   30 * time.Second,
		Grace:          5 * time.Second,
		MaxMessageSize: 64 << 20,
		MaxDepth:       1000,
		Transport:      "http-first",
		ConnectTimeout: 10 * time.Second,
		ResumeTimeout:  15 * time.Second,
	}
}

// Options are how a file is read. The zero value reads it for the daemon.
type Options struct {
	// Lookup returns the value of an environment variable; nil is
	// os.LookupEnv.
	Lookup func(name string) (value string, set bool)

	// Defaults hold where neither the server nor the file's own defaults say
	// otherwise; nil is DefaultSettings.
	Defaults *Settings

	// OnlyServer is the name of the server that is wanted; "" means all that are not disabled. If something that another server
	// needs is not there, such as an environment variable, that is a notice and no mistake.
	OnlyServer string

	// CheckServer, if not nil, is called with each server that is not disabled and in which no mistake was found: also with
	// those that are not OnlyServer. An error that it returns is a mistake, too, at the server's command or URL.
	CheckServer func(Server) error

	// CommandsOnlyClient is the name of the client whose file it is, if that client knows no server with a URL: a notice says so then,
	// at each URL. "": it is no such file.
	CommandsOnlyClient string

	// CheckScopes, if not nil, returns what is wrong with a line of Config.Scopes; nil: nothing.
	CheckScopes func(line string) error
}

// maxFileSize is how large the configuration file, and each file that it names, may be, in bytes.
const maxFileSize = 1 << 20

// Load reads a file and those it names. Its error is Problems, all that are
// found at once, or says why the file cannot be read. The Config is never nil:
// with an error it has no more than Files, so that they can be watched for
// what mends it.
func Load(file string, o Options) (*Config, error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return &Config{}, fmt.Errorf("config file %s: %w", file, err)
	}
	data, err := readFile(file)
	if err != nil {
		return &Config{Files: []string{abs}}, fmt.Errorf("config file %s: %w", file, rootCause(err))
	}
	return parse(file, data, o, readFile)
}

// Server returns the server with this name; if there is none, the error says which one may be meant, or which there are.
func (c *Config) Server(name string) (Server, error) {
	names := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		if s.Name == name {
			return s, nil
		}
		names[i] = s.Name
	}
	switch similar := nearest.To(name, names); {
	case len(names) == 0:
		return Server{}, fmt.Errorf("there is no server %s: the file has none at all", printableName(name))
	case similar != "":
		return Server{}, fmt.Errorf("there is no server %s: did you mean %s?", printableName(name), printableName(similar))
	}
	for i := range names {
		names[i] = printableName(names[i])
	}
	return Server{}, fmt.Errorf("there is no server %s: the file has %s", printableName(name), strings.Join(names, ", "))
}

// readFile returns the content of a file; one that is larger than maxFileSize is an error.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = fmt.Errorf("is larger than %d bytes", maxFileSize)
	}
	return data, err
}
