//lint:file-ignore SA1019 Roots, sampling and logging are what a bridge has to carry, deprecated or not.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/script"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goClient is the script on the Go SDK.
type goClient struct {
	*mcp.ClientSession                     // the SDK's session, once play has opened it
	name               string              // the client's name: script.Target.Name
	logging            bool                // 2026-07-28: calls ask for log messages
	mu                 sync.Mutex          // guards what the handlers collect: the fields below
	changed            chan struct{}       // closed and replaced whenever a handler has collected something
	tokens             map[string][]string // the progress that came, by its token
	logs               []string            // the log messages that came
	updated            []string            // the resources that were said to have changed
	out                script.Transcript   // what the client saw
}

// play runs the script and returns what the client saw, and what failed.
func play(ctx context.Context, to script.Target, p script.Plan, version string) (script.Transcript, error) {
	c := &goClient{name: to.Name(), changed: make(chan struct{}), tokens: map[string][]string{}}
	options := c.options()
	if p.Roots == nil {
		options.Capabilities = &mcp.ClientCapabilities{} // or it would be asked whenever the server likes
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, options)
	client.AddRoots(&mcp.Root{URI: "file:///srv/" + c.name, Name: "data"})
	transport, err := transportTo(to)
	if err != nil {
		return c.out, err
	}
	c.ClientSession, err = client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return c.out, fmt.Errorf("connecting: %w", err)
	}
	var errs []error
	for _, step := range []struct {
		name string
		run  func(context.Context, script.Target, script.Plan) error
	}{{"initialize", c.describe}, {"list", c.list}, {"call with progress", c.progress}, {"a megabyte", c.echo},
		{"log", c.log}, {"ask", c.ask}, {"subscribe", c.subscribe}, {"cancel", c.cancel}, {"drop", c.drop}} {
		if err := step.run(ctx, to, p); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.name, err))
		}
	}
	if err := c.close(transport); err != nil {
		errs = append(errs, fmt.Errorf("closing: %w", err))
	}
	c.collect(p)
	return c.out, errors.Join(errs...)
}

// stuck is how long after its stdin was closed a program that still runs is told
// (SIGQUIT) to say what all its goroutines do: the SDK has sent SIGTERM by then, and has
// not killed it yet.
const stuck = 8 * time.Second

// close ends the session, which was opened over this transport.
func (c *goClient) close(over mcp.Transport) error {
	if to, ok := over.(*mcp.CommandTransport); ok {
		defer time.AfterFunc(stuck, func() { _ = to.Command.Process.Signal(syscall.SIGQUIT) }).Stop()
	}
	return c.Close()
}

// transportTo returns the transport to a Target.
func transportTo(to script.Target) (mcp.Transport, error) {
	if to.Command != nil {
		cmd := exec.Command(to.Command[0], to.Command[1:]...)
		cmd.Stderr = os.Stderr
		return &mcp.CommandTransport{Command: cmd}, nil
	}
	if path, ok := strings.CutPrefix(to.URL, "unix:"); ok {
		conn, err := net.Dial("unix", path)
		return overConn(conn), err
	}
	if to.Via == "sse" {
		return &mcp.SSEClientTransport{Endpoint: to.URL}, nil
	}
	return &mcp.StreamableClientTransport{Endpoint: to.URL}, nil
}

// overConn returns a transport of messages in lines over conn. The SDK closes reader and writer, which are one: only the
// reader closes conn.
func overConn(conn net.Conn) mcp.Transport {
	return &mcp.IOTransport{Reader: conn, Writer: struct {
		io.Writer
		io.Closer
	}{conn, io.NopCloser(nil)}}
}

// options returns the options of a client whose handlers collect what comes, and answer what the server asks.
func (c *goClient) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			c.note(func() { c.out.Elicited = append(c.out.Elicited, r.Params.Message) })
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": c.name, "username": c.name}}, nil
		},
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			prompt := r.Params.Messages[0].Content.(*mcp.TextContent).Text
			c.note(func() { c.out.Sampled = append(c.out.Sampled, prompt) })
			return &mcp.CreateMessageResult{Model: "test-model", Role: "assistant", Content: &mcp.TextContent{Text: "Hello from 👨‍👩‍👧 " + c.name}, StopReason: "endTurn"}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			token := fmt.Sprint(r.Params.ProgressToken)
			c.note(func() {
				c.tokens[token] = append(c.tokens[token], fmt.Sprintf("%v/%v", r.Params.Progress, r.Params.Total))
			})
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			c.note(func() { c.logs = append(c.logs, fmt.Sprintf("%s: %v", r.Params.Level, r.Params.Data)) })
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			c.note(func() { c.updated = append(c.updated, r.Params.URI) })
		},
	}
}

// note changes what the handlers collect.
func (c *goClient) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// until waits, as long as patience at most, until ok returns true, which looks at what the
// handlers collect (mu is held). The SDK calls the handlers beside the answer to a call, not
// before it.
func (c *goClient) until(ctx context.Context, ok func() bool) error {
	return c.within(ctx, patience, ok)
}

// within does what until does, with patience as the limit.
func (c *goClient) within(ctx context.Context, patience time.Duration, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		c.mu.Lock()
		done, changed := ok(), c.changed
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New("the notifications did not come")
		}
	}
}

// describe is the step "initialize": it notes what the server says of itself.
func (c *goClient) describe(context.Context, script.Target, script.Plan) error {
	r := c.InitializeResult()
	caps, err := json.Marshal(r.Capabilities)
	c.out.Version, c.out.Server, c.out.Caps = r.ProtocolVersion, r.ServerInfo.Name, string(caps)
	return err
}

// list is the step "list": it goes through all pages of all lists. Of a server without resources it reads the list of tools alone.
func (c *goClient) list(ctx context.Context, _ script.Target, _ script.Plan) error {
	for cursor := ""; cursor != "" || c.out.Pages == 0; c.out.Pages++ {
		page, err := c.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
		if err != nil {
			return err
		}
		for _, x := range page.Tools {
			c.out.Tools = append(c.out.Tools, whole(x))
		}
		cursor = page.NextCursor
	}
	if c.InitializeResult().Capabilities.Resources == nil {
		return nil
	}
	for x, err := range c.ClientSession.Resources(ctx, nil) {
		if err != nil {
			return err
		}
		c.out.Resources = append(c.out.Resources, whole(x))
	}
	for x, err := range c.ResourceTemplates(ctx, nil) {
		if err != nil {
			return err
		}
		c.out.Templates = append(c.out.Templates, whole(x))
	}
	for x, err := range c.Prompts(ctx, nil) {
		if err != nil {
			return err
		}
		c.out.Prompts = append(c.out.Prompts, whole(x))
	}
	return nil
}

// whole returns x as JSON, or the error of that.
func whole(x any) string {
	data, err := json.Marshal(x)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// modern reports whether the client speaks 2026-07-28: there is no session, and what a
// session would hold goes along with each request.
func (c *goClient) modern() bool { return c.InitializeResult().ProtocolVersion >= "2026-07-28" }

// call calls a tool, and returns the whole result as JSON. token is the progress token; "": no
// progress is asked for.
func (c *goClient) call(ctx context.Context, what *script.Call, token string) (string, error) {
	params := &mcp.CallToolParams{Name: what.Name, Arguments: what.Args}
	if c.modern() && c.logging {
		params.Meta = mcp.Meta{mcp.MetaKeyLogLevel: "debug"}
	}
	if token != "" {
		params.SetProgressToken(token)
	}
	r, err := c.CallTool(ctx, params)
	if err != nil {
		return "", fmt.Errorf("tool %s: %w", what.Name, err)
	}
	return whole(r), nil
}

// progress is the step "call with progress": it waits until all progress has come.
func (c *goClient) progress(ctx context.Context, _ script.Target, p script.Plan) (err error) {
	if c.out.Result, err = c.call(ctx, p.Progress, "progress"); err != nil {
		return err
	}
	return c.until(ctx, func() bool { return len(c.tokens["progress"]) >= p.Steps })
}

// blob is what is sent as "{blob}": a megabyte in letters of two bytes.
var blob = strings.Repeat("é", 1<<19)

// echo is the step "a megabyte": it sends that much there and back, and keeps the result with
// "{blob}" in its place.
func (c *goClient) echo(ctx context.Context, _ script.Target, p script.Plan) error {
	if p.Echo == nil {
		return nil
	}
	args := maps.Clone(p.Echo.Args)
	for name, text := range args {
		args[name] = strings.ReplaceAll(text.(string), "{blob}", blob)
	}
	text, err := c.call(ctx, &script.Call{Name: p.Echo.Name, Args: args}, "")
	c.out.Echo = strings.ReplaceAll(text, blob, "{blob}")
	if len(c.out.Echo) > 1<<10 {
		return fmt.Errorf("of a megabyte came back %d bytes that are something else", len(text))
	}
	return err
}

// log is the step "log": it has the server log, and waits for the messages.
func (c *goClient) log(ctx context.Context, _ script.Target, p script.Plan) error {
	if p.Logs == 0 {
		return nil
	}
	if !c.modern() {
		if err := c.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil {
			return err
		}
	}
	c.logging = true
	defer func() { c.logging = false }()
	if p.Log == nil {
		return nil // see subscribe
	}
	if _, err := c.call(ctx, p.Log, ""); err != nil {
		return err
	}
	return c.takeLogs(ctx, p)
}

// takeLogs waits until all log messages have come.
func (c *goClient) takeLogs(ctx context.Context, p script.Plan) error {
	return c.until(ctx, func() bool { return len(c.matching(p)) >= p.Logs })
}

// matching returns the log messages that count. mu is held.
func (c *goClient) matching(p script.Plan) (out []string) {
	for _, l := range c.logs {
		if strings.Contains(l, p.LogMatch) {
			out = append(out, l)
		}
	}
	return out
}

// collect takes over what the handlers have collected until the end: what came
// twice or should not have come at all is in there, too.
func (c *goClient) collect(p script.Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.Progress, c.out.Dropped = c.tokens["progress"], c.tokens["drop"]
	if p.Logs > 0 {
		c.out.Logs = c.matching(p)
	}
	slices.Sort(c.updated)
	c.out.Updated = slices.Compact(c.updated)
}

// ask is the step "ask": it calls the tools that ask the client something.
func (c *goClient) ask(ctx context.Context, _ script.Target, p script.Plan) error {
	for _, a := range []struct {
		what *script.Call
		to   *string
	}{{p.Elicit, &c.out.Elicit}, {p.Sample, &c.out.Sample}, {p.Roots, &c.out.Roots}} {
		if a.what == nil {
			continue
		}
		text, err := c.call(ctx, a.what, "")
		if err != nil {
			return err
		}
		*a.to = text
	}
	return nil
}

// subscribe is the step "subscribe": it subscribes to a resource, and waits until it has changed.
func (c *goClient) subscribe(ctx context.Context, _ script.Target, p script.Plan) error {
	if p.Subscribe == "" {
		return nil
	}
	if err := c.Subscribe(ctx, &mcp.SubscribeParams{URI: p.Subscribe}); err != nil {
		return err
	}
	if err := c.touch(ctx, p); err != nil {
		return err
	}
	if p.Log == nil {
		if err := c.takeLogs(ctx, p); err != nil {
			return err
		}
	}
	if p.Touch != nil && p.Touch.Name == "toggle-subscriber-updates" {
		if _, err := c.call(ctx, p.Touch, ""); err != nil {
			return err
		}
	}
	return c.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: p.Subscribe})
}

// touch lets the resource change until the client is told. Since 2026-07-28 the
// SDK's Subscribe does not wait until it is acknowledged: a change right after
// it can be missed.
func (c *goClient) touch(ctx context.Context, p script.Plan) error {
	told := func() bool { return slices.Contains(c.updated, p.Subscribe) }
	tries := 1
	if c.modern() && p.Touch != nil && p.Touch.Name != "toggle-subscriber-updates" {
		tries = 30
	}
	var err error
	for range tries {
		if p.Touch != nil {
			if _, err := c.call(ctx, p.Touch, ""); err != nil {
				return err
			}
		}
		if err = c.within(ctx, patience/time.Duration(tries), told); err == nil {
			return nil
		}
	}
	return err
}

// cancel is the step "cancel": it gives a call up at its first progress. The session must go on.
func (c *goClient) cancel(ctx context.Context, _ script.Target, p script.Plan) error {
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan error, 1)
	go func() {
		started <- c.until(ctx, func() bool { return len(c.tokens["cancel"]) > 0 })
		cancel()
	}()
	_, err := c.call(callCtx, p.Slow, "cancel")
	if err := <-started; err != nil {
		return err
	}
	if !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the cancelled call gave %w", err)
	}
	c.out.Cancelled = true
	if p.Cancelled != nil {
		c.out.Told, err = c.call(ctx, p.Cancelled, "")
		return err
	}
	if c.modern() { // has no ping
		_, err := c.call(ctx, p.Progress, "")
		return err
	}
	return c.Ping(ctx, nil)
}

// drop is the step "drop": it makes a call at whose first progress the connections below it are cut (Target.Cut, if there is one), and
// waits until the call is done and all its progress has come. It does nothing without Target.Drop.
func (c *goClient) drop(ctx context.Context, to script.Target, p script.Plan) (err error) {
	if !to.Drop {
		return nil
	}
	if to.Cut != "" {
		cut := make(chan error, 1)
		go func() {
			err := c.until(ctx, func() bool { return len(c.tokens["drop"]) > 0 })
			if err == nil {
				err = get(ctx, to.Cut)
			}
			cut <- err
		}()
		defer func() { err = errors.Join(err, <-cut) }()
	}
	if c.out.Resumed, err = c.call(ctx, p.Slow, "drop"); err != nil {
		return err
	}
	return c.until(ctx, func() bool { return len(c.tokens["drop"]) >= p.SlowSteps })
}

// get makes a GET, and takes nothing of its reply.
func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
