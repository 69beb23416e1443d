//lint:file-ignore SA1019 Roots, sampling and logging are what a bridge has to carry, deprecated or not.

package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A target is what a client is pointed at: a command that it runs as a stdio
// server, or a URL. Cut is a URL that cuts every TCP connection on the way.
type target struct {
	Command []string `json:"command"`
	URL     string   `json:"url"`
	Cut     string   `json:"cut"`
	Drop    bool     `json:"drop"` // do the last step, with or without Cut
}

// goClient is the script on the Go SDK.
type goClient struct {
	*mcp.ClientSession
	mu      sync.Mutex
	changed chan struct{} // closed and replaced with every notification
	tokens  map[string][]string
	logs    []string
	updated []string
	out     transcript
}

// runGo runs the script and returns what the client saw.
func runGo(t *testing.T, to target, p plan, version string) transcript {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c := &goClient{changed: make(chan struct{}), tokens: map[string][]string{}}
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, c.options())
	client.AddRoots(&mcp.Root{URI: "file:///srv/data", Name: "data"})
	var err error
	c.ClientSession, err = client.Connect(ctx, transportTo(to), &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	for _, step := range []struct {
		name string
		run  func(context.Context, target, plan) error
	}{{"initialize", c.describe}, {"list", c.list}, {"call with progress", c.progress}, {"log", c.log},
		{"ask", c.ask}, {"subscribe", c.subscribe}, {"cancel", c.cancel}, {"drop", c.drop}} {
		if err := step.run(ctx, to, p); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	return c.out
}

func transportTo(to target) mcp.Transport {
	if to.URL != "" {
		return &mcp.StreamableClientTransport{Endpoint: to.URL}
	}
	return &mcp.CommandTransport{Command: exec.Command(to.Command[0], to.Command[1:]...)}
}

func (c *goClient) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			c.note(func() { c.out.Elicited = append(c.out.Elicited, r.Params.Message) })
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "username": "ada"}}, nil
		},
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			prompt := r.Params.Messages[0].Content.(*mcp.TextContent).Text
			c.note(func() { c.out.Sampled = append(c.out.Sampled, prompt) })
			return &mcp.CreateMessageResult{Model: "test-model", Role: "assistant", Content: &mcp.TextContent{Text: "Hello, 👨‍👩‍👧!"}, StopReason: "endTurn"}, nil
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

// until waits for a state of what the handlers collect. The SDK calls them
// beside the answer to a call, not before it.
func (c *goClient) until(ctx context.Context, ok func() bool) error {
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

func (c *goClient) describe(context.Context, target, plan) error {
	r := c.InitializeResult()
	caps, err := json.Marshal(r.Capabilities)
	c.out.Version, c.out.Server, c.out.Caps = r.ProtocolVersion, r.ServerInfo.Name, string(caps)
	return err
}

// list goes through all pages of all lists.
func (c *goClient) list(ctx context.Context, _ target, _ plan) error {
	for x, err := range c.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		c.out.Tools = append(c.out.Tools, whole(x))
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

func whole(x any) string {
	data, err := json.Marshal(x)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// call returns the whole result as text.
func (c *goClient) call(ctx context.Context, what *call, token string) (string, error) {
	params := &mcp.CallToolParams{Name: what.Name, Arguments: what.Args}
	if token != "" {
		params.SetProgressToken(token)
	}
	r, err := c.CallTool(ctx, params)
	if err != nil {
		return "", fmt.Errorf("tool %s: %w", what.Name, err)
	}
	return whole(r), nil
}

func (c *goClient) progress(ctx context.Context, _ target, p plan) (err error) {
	if c.out.Result, err = c.call(ctx, p.Progress, "progress"); err != nil {
		return err
	}
	err = c.until(ctx, func() bool { return len(c.tokens["progress"]) >= p.Steps })
	c.out.Progress = c.tokens["progress"]
	return err
}

func (c *goClient) log(ctx context.Context, _ target, p plan) error {
	if p.Logs == 0 {
		return nil
	}
	if err := c.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil {
		return err
	}
	if p.Log == nil {
		return nil // see subscribe
	}
	if _, err := c.call(ctx, p.Log, ""); err != nil {
		return err
	}
	return c.takeLogs(ctx, p)
}

func (c *goClient) takeLogs(ctx context.Context, p plan) error {
	matching := func() (out []string) {
		for _, l := range c.logs {
			if strings.Contains(l, p.LogMatch) {
				out = append(out, l)
			}
		}
		return out
	}
	err := c.until(ctx, func() bool { return len(matching()) >= p.Logs })
	c.out.Logs = matching()
	return err
}

func (c *goClient) ask(ctx context.Context, _ target, p plan) error {
	for _, a := range []struct {
		what *call
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

func (c *goClient) subscribe(ctx context.Context, _ target, p plan) error {
	if p.Subscribe == "" {
		return nil
	}
	if err := c.Subscribe(ctx, &mcp.SubscribeParams{URI: p.Subscribe}); err != nil {
		return err
	}
	if p.Touch != nil {
		if _, err := c.call(ctx, p.Touch, ""); err != nil {
			return err
		}
	}
	if err := c.until(ctx, func() bool { return slices.Contains(c.updated, p.Subscribe) }); err != nil {
		return err
	}
	c.out.Updated = p.Subscribe
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

// cancel gives a call up at its first progress; the session must go on.
func (c *goClient) cancel(ctx context.Context, _ target, p plan) error {
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
	return c.Ping(ctx, nil)
}

// drop cuts the connections below a call at its first progress.
func (c *goClient) drop(ctx context.Context, to target, p plan) (err error) {
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
	err = c.until(ctx, func() bool { return len(c.tokens["drop"]) >= p.SlowSteps })
	c.out.Dropped = c.tokens["drop"]
	return err
}

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
