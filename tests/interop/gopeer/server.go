//lint:file-ignore SA1019 Roots, sampling and logging are what a bridge has to carry, deprecated or not.

package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// pinging is how often a server that is told to pings its client. late is how many pings in a
// row the client may leave unanswered, for half of pinging each, until the server ends.
const pinging, late = 2 * time.Second, 2

// newServer makes a server on the Go SDK with a tool for each step. pings: it pings its client, and has the tool "outlast", too.
func newServer(pings bool) *mcp.Server {
	options := &mcp.ServerOptions{
		PageSize:           3,
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	}
	if pings {
		options.KeepAlive, options.KeepAliveFailureThreshold = pinging, late
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, options)
	type args struct {
		Text string `json:"text,omitempty"`
	}
	add := func(name string, do func(ctx context.Context, r *mcp.CallToolRequest, text string) (string, error)) {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(ctx context.Context, r *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
			text, err := do(ctx, r, a.Text)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, err
		})
	}
	progress := func(ctx context.Context, r *mcp.CallToolRequest, at float64) error {
		return r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: r.Params.GetProgressToken(), Progress: at, Total: 3})
	}
	add("echo", func(_ context.Context, _ *mcp.CallToolRequest, text string) (string, error) { return text, nil })
	if pings {
		add("outlast", func(ctx context.Context, _ *mcp.CallToolRequest, _ string) (string, error) {
			select { // longer than a server lives whose pings nobody answers
			case <-time.After((late + 1) * pinging):
				return "done", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
	}
	add("count", func(ctx context.Context, r *mcp.CallToolRequest, _ string) (string, error) {
		if r.Params.GetProgressToken() == nil {
			return "done", nil
		}
		return "done", errors.Join(progress(ctx, r, 1), progress(ctx, r, 2), progress(ctx, r, 3))
	})
	add("log", func(ctx context.Context, r *mcp.CallToolRequest, text string) (string, error) {
		return "done", r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "warning", Data: text})
	})
	// In the words of 2026-07-28; in a session of an older revision, the SDK
	// makes real requests of it.
	ask := func(name string, question func(text string) mcp.InputRequest) {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(_ context.Context, r *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
			if got := r.Params.InputResponses["answer"]; got != nil {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: whole(got)}}}, nil, nil
			}
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"answer": question(a.Text)}}, nil, nil
		})
	}
	ask("elicit", func(text string) mcp.InputRequest {
		schema := map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}}
		return &mcp.ElicitParams{Message: text, RequestedSchema: schema}
	})
	ask("sample", func(text string) mcp.InputRequest {
		return &mcp.CreateMessageParams{MaxTokens: 10,
			Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}}
	})
	ask("roots", func(string) mcp.InputRequest { return &mcp.ListRootsParams{} })
	add("touch", func(ctx context.Context, _ *mcp.CallToolRequest, uri string) (string, error) {
		return "done", server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
	})
	hung := newHung()
	add("hang", func(ctx context.Context, r *mcp.CallToolRequest, who string) (string, error) {
		if err := progress(ctx, r, 1); err != nil {
			return "", err
		}
		<-ctx.Done()
		hung.by(who) <- struct{}{}
		return "", ctx.Err()
	})
	add("cancelled", func(ctx context.Context, _ *mcp.CallToolRequest, who string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, patience/2)
		defer cancel()
		select {
		case <-hung.by(who):
			return "a call was cancelled", nil
		case <-ctx.Done():
			return "", errors.New("no call was cancelled")
		}
	})
	for i := range 5 {
		item := "test://item/" + strconv.Itoa(i)
		server.AddResource(&mcp.Resource{Name: item, URI: item}, nil)
	}
	server.AddResourceTemplate(&mcp.ResourceTemplate{Name: "items", URITemplate: "test://item/{id}"}, nil)
	server.AddPrompt(&mcp.Prompt{Name: "hello"}, nil)
	return server
}

// hung has the calls of each client that hung until they were cancelled. Since
// 2026-07-28 there are no sessions to tell clients by.
type hung struct {
	mu  sync.Mutex               // guards who
	who map[string]chan struct{} // by the name of a client: gets an element for each of its calls that were cancelled
}

// newHung returns a hung without clients.
func newHung() *hung { return &hung{who: map[string]chan struct{}{}} }

// by returns the channel of a client, which it makes if need be.
func (h *hung) by(who string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.who[who] == nil {
		h.who[who] = make(chan struct{}, 10)
	}
	return h.who[who]
}

// serve runs newServer on the transport that args, one word, names, until ctx ends.
func serve(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("what is %q?", args)
	}
	server := newServer(args[0] == "stdio-pings")
	get := func(*http.Request) *mcp.Server { return server }
	switch args[0] {
	case "stdio", "stdio-pings":
		return server.Run(ctx, &mcp.StdioTransport{})
	case "http":
		return serveHTTP(ctx, mcp.NewStreamableHTTPHandler(get, nil))
	case "http-modern":
		return serveHTTP(ctx, mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true}))
	case "sse":
		return serveHTTP(ctx, mcp.NewSSEHandler(get, nil))
	case "unix":
		return serveUnix(ctx, server)
	}
	return fmt.Errorf("no such transport: %q", args[0])
}

// serveHTTP serves h on a port of its own until ctx ends, and logs its address.
func serveHTTP(ctx context.Context, h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: h}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	log.Printf("listening url=http://%s", l.Addr())
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveUnix listens on a Unix socket of its own until ctx ends, logs its path, and runs the server
// on each connection: the SDK's transport is for one.
func serveUnix(ctx context.Context, server *mcp.Server) error {
	dir, err := os.MkdirTemp("", "gopeer-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	log.Printf("listening url=unix:%s", path)
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go server.Run(ctx, overConn(conn))
	}
}
