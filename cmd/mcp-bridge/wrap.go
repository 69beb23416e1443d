package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/wrap"
)

// wrapFlags are the flags of wrap and unwrap.
type wrapFlags struct {
	client string // --client: the id of a desktop client, or its configuration file; "": the one that has the server
}

// flagSet returns the set of all flags of wrap or unwrap; parsing it sets the fields of f, which have their defaults until then.
func (f *wrapFlags) flagSet(command string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(command, pflag.ContinueOnError)
	fs.StringVar(&f.client, "client", "", "")
	return fs
}

// wrapCommand runs the command wrap or unwrap: it edits the configuration file of a desktop client so that one of its servers runs
// under this program, or as before.
func wrapCommand(command string, args []string, env environment) error {
	var f wrapFlags
	positional, argv, err := parseFlags(f.flagSet(command), args)
	switch {
	case err != nil:
		return err
	case len(positional) != 1 || len(argv) > 0:
		return usagef("%s takes the name of one server in a client's configuration", command)
	}
	name := positional[0]
	client, err := f.findClient(name)
	if err != nil {
		return err
	}
	self, err := stablePath()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	edit := func(text []byte) ([]byte, error) { return wrap.Wrap(text, name, self) }
	if command == "unwrap" {
		edit = func(text []byte) ([]byte, error) { return wrap.Unwrap(text, name) }
	}
	backup, err := wrap.EditFile(client.File, time.Now(), edit)
	if err != nil {
		if client := wrap.CommandsOnlyClient(client.File); client != "" && errors.Is(err, wrap.ErrRemote) {
			err = fmt.Errorf("%w (%s knows servers with a command only)", err, client)
		}
		return withServerName(name, err)
	}
	next := fmt.Sprintf("Then \"mcp-bridge trace %s\" shows what passes, and \"mcp-bridge unwrap %s\" takes it out again.", name, name)
	if command == "unwrap" {
		next = "Then it is as it was before."
	}
	_, err = fmt.Fprintf(env.stdout, "%sped %s in %s\nwhat was there: %s\nStart %s anew. %s\n", command, printable.Text(name), client.File, backup, client.Name, printable.Text(next))
	return err
}

// stablePath returns the path of this program that a client's file is to have: the one at which $PATH has it, if $PATH has it, else that of the
// running executable. The latter is, on Linux, behind all links: it may have a version in it, and be gone after an upgrade.
func stablePath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if found, err := exec.LookPath(filepath.Base(self)); err == nil && filepath.IsAbs(found) {
		ours, err1 := os.Stat(self)
		theirs, err2 := os.Stat(found)
		if err1 == nil && err2 == nil && os.SameFile(ours, theirs) {
			return found, nil
		}
	}
	return self, nil
}

// withServerName adds the name of the server to err, an error of package wrap, if it is about the server and not about the file.
func withServerName(name string, err error) error {
	if errors.Is(err, wrap.ErrNoServer) || errors.Is(err, wrap.ErrAlreadyWrapped) || errors.Is(err, wrap.ErrNotWrapped) || errors.Is(err, wrap.ErrIsBridge) ||
		errors.Is(err, wrap.ErrRemote) {
		return fmt.Errorf("%w: %q", err, name)
	}
	return err
}

// findClient returns the desktop client that --client names; without --client, the only one whose configuration has a server of this name.
func (f *wrapFlags) findClient(name string) (wrap.Client, error) {
	clients, err := wrap.KnownClients()
	if err != nil {
		return wrap.Client{}, err
	}
	var ids []string
	for _, c := range clients {
		if c.ID == f.client {
			return c, nil
		}
		ids = append(ids, c.ID)
	}
	if strings.ContainsAny(f.client, `/\.`) {
		return wrap.Client{Name: "the client", File: filepath.Clean(f.client)}, nil
	}
	if f.client != "" {
		return wrap.Client{}, usagef("--client %q: use %s, or the path of a file", f.client, strings.Join(ids, ", "))
	}
	var found []wrap.Client
	var searched []string
	for _, c := range clients {
		searched = append(searched, c.File)
		text, err := wrap.Read(c.File)
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				return wrap.Client{}, err
			}
			continue
		}
		names, err := wrap.Servers(text)
		if err != nil {
			return wrap.Client{}, fmt.Errorf("%s: %w", c.File, err)
		}
		if slices.Contains(names, name) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return wrap.Client{}, fmt.Errorf("no client has a server %q; looked into %s; --client FILE names another file", name, strings.Join(searched, ", "))
	case 1:
		return found[0], nil
	}
	return wrap.Client{}, usagef("%s and %s have a server %q; say which with --client %s", found[0].Name, found[1].Name, name, found[0].ID)
}
