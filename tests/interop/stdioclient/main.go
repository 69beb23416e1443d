// Command stdioclient is the client that the conformance suite drives: an MCP
// client that speaks stdio, so that a bridge can stand between it and the
// suite's HTTP server.
//
//	stdioclient [-revision R] [BRIDGE [ARG...]] URL
//
// It starts `BRIDGE ARG... URL` as its stdio server and does what the scenario
// named by MCP_CONFORMANCE_SCENARIO asks of a client, in the words of revision
// R, which by default is the suite's, MCP_CONFORMANCE_PROTOCOL_VERSION. Without
// BRIDGE it goes to URL directly over Streamable HTTP: that is the baseline.
//
// With -browse it is a browser: it gets URL, and follows redirects.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// scenarios maps each non-auth client scenario to what the client does in it.
// The test fails for a scenario that the suite lists and this map lacks.
var scenarios = map[string]func(context.Context, *mcp.ClientSession) error{
	"initialize":                          listOnly,
	"tools_call":                          callTool("add_numbers", map[string]any{"a": 5, "b": 3}),
	"elicitation-sep1034-client-defaults": callTool("test_client_elicitation_defaults", map[string]any{}),
	"sse-retry":                           callTool("test_reconnection", map[string]any{}),
	"json-schema-2020-12-preservation":    echoSchema,
	"json-schema-ref-no-deref":            listOnly,
	"request-metadata":                    listOnly,
	"sep-2322-client-request-state":       callAll(map[string]any{}),
	"http-standard-headers":               oneOfEach,
	"http-custom-headers":                 callAsTold,
	"http-invalid-tool-headers":           callAll(map[string]any{"region": "us-west1"}),
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("stdioclient: ")
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	revision := flag.String("revision", os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION"), "")
	browser := flag.Bool("browse", false, "")
	flag.Parse()
	if *browser {
		if err := browse(ctx, flag.Arg(0)); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := run(ctx, *revision, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// run plays the scenario that MCP_CONFORMANCE_SCENARIO names with the server of args: a URL, or a command.
func run(ctx context.Context, revision string, args []string) error {
	name := os.Getenv("MCP_CONFORMANCE_SCENARIO")
	scenario, ok := scenarios[name]
	if isAuth(name) {
		scenario, ok = authorized, true
	}
	if !ok || len(args) == 0 {
		return fmt.Errorf("no such scenario %q, or no URL in %q", name, args)
	}
	args, remove, err := withAuth(name, args)
	if err != nil {
		return err
	}
	defer remove()
	client := mcp.NewClient(&mcp.Implementation{Name: "stdioclient", Version: "1.0.0"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
	})
	session, err := client.Connect(ctx, transport(args), &mcp.ClientSessionOptions{
		ProtocolVersion: revision,
	})
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	if err := scenario(ctx, session); err != nil {
		session.Close()
		return fmt.Errorf("scenario %s: %w", name, err)
	}
	return session.Close()
}

// transport returns the transport to a URL, or else to a command.
func transport(args []string) mcp.Transport {
	if len(args) == 1 {
		return &mcp.StreamableClientTransport{Endpoint: args[0]}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	return &mcp.CommandTransport{Command: cmd}
}

// listOnly is a scenario: it lists the tools, and does nothing else.
func listOnly(ctx context.Context, s *mcp.ClientSession) error {
	_, err := s.ListTools(ctx, nil)
	return err
}

// callTool returns a scenario that calls the tool with this name, once it has found it in the list, with these arguments.
func callTool(name string, args map[string]any) func(context.Context, *mcp.ClientSession) error {
	return func(ctx context.Context, s *mcp.ClientSession) error {
		if _, err := findTool(ctx, s, name); err != nil {
			return err
		}
		_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
		return err
	}
}

// echoSchema is a scenario: it sends the input schema of one tool back through
// another, as it was seen.
func echoSchema(ctx context.Context, s *mcp.ClientSession) error {
	tool, err := findTool(ctx, s, "json_schema_2020_12_tool")
	if err != nil {
		return err
	}
	_, err = s.CallTool(ctx, &mcp.CallToolParams{
		Name:      "json_schema_echo",
		Arguments: map[string]any{"schema": tool.InputSchema},
	})
	return err
}

// callAll returns a scenario that calls every tool that it is shown, with these
// arguments. That some are refused is for the suite to judge.
func callAll(args map[string]any) func(context.Context, *mcp.ClientSession) error {
	return func(ctx context.Context, s *mcp.ClientSession) error {
		for tool, err := range s.Tools(ctx, nil) {
			if err != nil {
				return fmt.Errorf("listing tools: %w", err)
			}
			call(ctx, s, tool.Name, args)
		}
		return nil
	}
}

// callAsTold is a scenario: it makes the calls that the suite asks for in
// MCP_CONFORMANCE_CONTEXT.
func callAsTold(ctx context.Context, s *mcp.ClientSession) error {
	var told struct {
		ToolCalls []struct {
			Name      string
			Arguments json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &told); err != nil {
		return fmt.Errorf("the suite's context: %w", err)
	}
	if err := listOnly(ctx, s); err != nil {
		return err
	}
	for _, c := range told.ToolCalls {
		call(ctx, s, c.Name, c.Arguments)
	}
	return nil
}

// call calls a tool. An error is logged, and ends nothing.
func call(ctx context.Context, s *mcp.ClientSession, tool string, args any) {
	if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args}); err != nil {
		log.Printf("tool %s: %v", tool, err)
	}
}

// oneOfEach is a scenario: it calls the first tool, reads the first resource and gets the first prompt.
func oneOfEach(ctx context.Context, s *mcp.ClientSession) error {
	tools, err := s.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	call(ctx, s, tools.Tools[0].Name, map[string]any{})
	resources, err := s.ListResources(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: resources.Resources[0].URI}); err != nil {
		return err
	}
	prompts, err := s.ListPrompts(ctx, nil)
	if err != nil {
		return err
	}
	_, err = s.GetPrompt(ctx, &mcp.GetPromptParams{Name: prompts.Prompts[0].Name})
	return err
}

// findTool returns the tool with a name, or an error if the server has none.
func findTool(ctx context.Context, s *mcp.ClientSession, name string) (*mcp.Tool, error) {
	for tool, err := range s.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("listing tools: %w", err)
		}
		if tool.Name == name {
			return tool, nil
		}
	}
	return nil, fmt.Errorf("the server has no tool %q", name)
}
