package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// revisions are the protocol versions whose server scenarios are run.
var revisions = []string{"2025-11-25", "2026-07-28"}

// A suite is the official conformance suite, as npm has installed it in tests, with a server on the TypeScript SDK that has
// all that the scenarios ask for.
type suite struct {
	node, program, server string // the paths of Node, of the suite, and of the server
}

// installSuite has npm install the suite in dir, the folder tests.
func installSuite(dir string) (suite, error) {
	if err := npmInstall(dir); err != nil {
		return suite{}, err
	}
	nodes, _ := filepath.Glob(filepath.Join(dir, "node_modules", "node-*", "bin", "node"))
	if len(nodes) == 0 {
		return suite{}, fmt.Errorf("npm has installed no node in %s", dir)
	}
	return suite{
		node:    nodes[0],
		program: filepath.Join(dir, "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js"),
		server:  filepath.Join(dir, "interop", "conformance", "everything.mjs"),
	}, nil
}

// A score is how many scenarios have no failed check.
type score struct {
	passed, total int // how many scenarios have no failed check, and how many there are
}

// String returns the score for people: "3 of 4".
func (s score) String() string { return fmt.Sprintf("%d of %d", s.passed, s.total) }

// runAll returns what the server scores by itself, and has each contender get its scores.
func (s suite) runAll(all []*contender) (direct map[string]score, err error) {
	direct = map[string]score{}
	url, stop, err := s.serveDirectly()
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, revision := range revisions {
		if direct[revision], err = s.run(url, revision); err != nil {
			return nil, err
		}
	}
	for _, c := range all {
		if err := s.runBehind(c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return direct, nil
}

// serveDirectly starts the server as one over HTTP, without a bridge, and returns its URL. stop ends it.
func (s suite) serveDirectly() (url string, stop func(), err error) {
	cmd := exec.Command(s.node, s.server, "http")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	cmd.Stderr = cmd.Stdout
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		endGroup(cmd)
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_, url, found := strings.Cut(strings.TrimSpace(line), "url=")
	if err != nil || !found {
		stop()
		return "", nil, fmt.Errorf("the server says %q: %v", line, err)
	}
	return url, stop, nil
}

// runBehind runs the scenarios with the bridge c in front of the server, which is a command there, and sets the scores of c.
func (s suite) runBehind(c *contender) error {
	c.scores = map[string]score{}
	port, err := freePort()
	if err != nil {
		return err
	}
	stop, err := c.start(port, s.node, s.server, "stdio")
	if err != nil {
		return err
	}
	defer stop()
	if _, err := open(port); err != nil {
		return err
	}
	for _, revision := range revisions {
		if c.scores[revision], err = s.run(fmt.Sprintf("http://127.0.0.1:%d/mcp", port), revision); err != nil {
			return err
		}
	}
	return nil
}

// run runs all server scenarios of a revision with the server at url, for ten minutes at most. That scenarios fail is no error.
func (s suite) run(url, revision string) (score, error) {
	dir, err := os.MkdirTemp("", "mcp-bridge-compare")
	if err != nil {
		return score{}, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.node, s.program, "server", "--url", url, "--suite", "all", "--spec-version", revision, "-o", dir)
	out, failed := cmd.CombinedOutput() // it fails if a scenario does
	files, _ := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if len(files) == 0 {
		return score{}, fmt.Errorf("the suite has no result (%v):\n%s", failed, out)
	}
	n := score{total: len(files)}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return score{}, err
		}
		var checks []struct{ Status string }
		if err := json.Unmarshal(text, &checks); err != nil {
			return score{}, errors.Join(errors.New(file), err)
		}
		passed := len(checks) > 0
		for _, check := range checks {
			passed = passed && check.Status != "FAILURE"
		}
		if passed {
			n.passed++
		}
	}
	return n, nil
}
