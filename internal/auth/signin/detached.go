package signin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// A signInOrder tells a process whom to sign in where. The process reads it from stdin, so that no secret is in its
// arguments.
type signInOrder struct {
	Settings        Settings              `json:"settings"`               // the settings of the server, but for the client's secret
	ClientSecret    string                `json:"clientSecret,omitempty"` // Settings.Client.Secret, which is not in the JSON of Settings; "": none
	TriedGeneration tokenstore.Generation `json:"known"`                  // the generation of the stored credential that is not enough; 0: none is stored. If another one is stored, nobody signs in
}

// A startReport is one line of JSON in which a process that signs a person in says how that has begun, or what it waits
// for before.
type startReport struct {
	Progress string `json:"doing,omitempty"` // what is waited for; "": this is the last line, and says how it has begun
	Error    string `json:"error,omitempty"` // why the sign-in could not begin; "": it has, or another process signs in, or somebody has signed in
}

// RunDetachedSignIn is what a process does that signs a person in for other processes: it reads a signInOrder from in,
// writes startReports to out, and goes on until the person has answered, or the sign-in is cancelled, or 10 minutes
// have passed. lookup reads environment variables.
func RunDetachedSignIn(ctx context.Context, in io.Reader, out io.Writer, lookup func(string) (string, bool)) error {
	var o signInOrder
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return errors.New("login --detached is for mcp-bridge itself: it reads what to do from stdin")
	}
	o.Settings.Client.Secret = tokenstore.NewSecret(o.ClientSecret)
	tell := func(r startReport) { _ = json.NewEncoder(out).Encode(r) } // who has started us may be gone
	began := func(err error) {
		var r startReport
		if err != nil {
			r.Error = err.Error()
		}
		tell(r)
	}
	return signInPerson(ctx, o, lookup, func(what string) { tell(startReport{Progress: what}) }, began)
}

// signInPerson has a person sign in, as o says, and waits for the end of that. reportProgress is told what is waited
// for before the sign-in has begun. reportStart is called once: with the error if it could not begin, else with nil,
// also if another process signs in, or somebody has signed in.
func signInPerson(ctx context.Context, o signInOrder, lookup func(string) (string, bool), reportProgress func(string), reportStart func(error)) error {
	f, end, err := o.beginSignIn(ctx, lookup, reportProgress)
	defer end()
	if errors.Is(err, tokenstore.ErrBusy) || errors.Is(err, client.ErrAlreadySignedIn) {
		reportStart(nil)
		return nil
	}
	reportStart(err)
	if err != nil {
		return err
	}
	return f.Wait(ctx)
}

// beginSignIn opens the store and begins the sign-in. The caller calls cleanUp at the end, also after an error.
func (o signInOrder) beginSignIn(ctx context.Context, lookup func(string) (string, bool), reportProgress func(string)) (f *client.SignInFlow, cleanUp func(), err error) {
	cleanUp = func() {}
	options, err := o.Settings.Options(ctx)
	if err != nil {
		return nil, cleanUp, err
	}
	c, err := client.New(options)
	if err != nil {
		return nil, cleanUp, err
	}
	cleanUp = func() {
		c.Close(context.Background())
		options.HTTPClient.CloseIdleConnections()
	}
	browser, _ := FindBrowser(o.Settings.NoBrowser, lookup)
	f, err = c.BeginSignIn(ctx, client.SignInOptions{Browser: browser, TriedGeneration: &o.TriedGeneration, OnProgress: reportProgress})
	return f, cleanUp, err
}

// startDetached starts command, the process that signs a person in, and gives it the order. From reports its
// startReports can be read; the caller closes it.
func startDetached(command []string, o signInOrder) (reports *os.File, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	in, toIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	reports, out, err := os.Pipe()
	if err != nil {
		_ = toIn.Close()
		return nil, err
	}
	defer out.Close()
	if _, err = supervisor.Detach(command[0], command[1:], in, out); err == nil {
		_, err = toIn.Write(text) // it fits into the pipe, or is read at once
	}
	if closed := toIn.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = reports.Close()
		return nil, fmt.Errorf("the process that signs in could not be started: %w", err)
	}
	return reports, nil
}

// awaitStartReport reads startReports until one says how the sign-in has begun; nil: well. onProgress is told what the
// reports before that wait for.
func awaitStartReport(reports *os.File, onProgress func(string)) error {
	lines := bufio.NewReader(io.LimitReader(reports, 64<<10))
	for {
		line, err := lines.ReadBytes('\n')
		var r startReport
		switch {
		case err != nil || json.Unmarshal(line, &r) != nil:
			return errors.New("the process that signs in ended before it could begin")
		case r.Error != "":
			return errors.New(r.Error)
		case r.Progress == "":
			return nil
		}
		onProgress(r.Progress)
	}
}
