// Command gopeer is the Go SDK's part of the interop tests: its clients, which
// run the script, and a server with a tool for each step of it.
//
//	gopeer play JOBS   run the jobs, JSON as in package script, all at once
//	gopeer stdio       serve stdio, in both eras
//	gopeer stdio-pings likewise, and ping the client every two seconds
//	gopeer http        serve Streamable HTTP, with sessions, so without 2026-07-28
//	gopeer http-modern serve Streamable HTTP as of 2026-07-28
//	gopeer sse         serve HTTP+SSE
//	gopeer unix        serve messages in lines over a Unix socket
//
// A server logs the URL that it listens on, and runs until an interrupt.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/script"
)

// patience bounds each wait.
const patience = 30 * time.Second

func main() {
	log.SetFlags(0)
	log.SetPrefix("gopeer: ")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

// run does what the arguments say: it plays the script, or is a server.
func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == "play" {
		return playAll(ctx, args[1])
	}
	return serve(ctx, args)
}

// playAll runs the script for each job, all at the same time, and prints the outcomes as JSON. arg has the jobs, as JSON.
func playAll(ctx context.Context, arg string) error {
	var jobs []script.Job
	if err := json.Unmarshal([]byte(arg), &jobs); err != nil {
		return err
	}
	ended := make([]script.Outcome, len(jobs))
	// One that is stuck must not keep from view what has become of the others.
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	var playing sync.WaitGroup
	for i, job := range jobs {
		playing.Go(func() {
			out, err := play(ctx, job.To, job.Plan, job.Version)
			if ended[i].Transcript = out; err != nil {
				ended[i].Error = err.Error()
			}
		})
	}
	playing.Wait()
	return json.NewEncoder(os.Stdout).Encode(ended)
}
