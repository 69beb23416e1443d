// Command npm makes the directories of the npm packages: one for each system, with the program, and "mcp-bridge", of which
// they are optional dependencies and which runs the one that npm has installed.
//
//	go run ./npm -artifacts ../dist/artifacts.json -version 1.2.3 -to ../dist/npm
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// An artifact is what goreleaser says of a file that it has made.
type artifact struct {
	Path         string // where the file is, from the repository on
	Goos, Goarch string // the system and the processor that it is for, as Go calls them
	Type         string // what kind of file it is: "Binary" for the program
}

// A manifest is a package.json.
type manifest struct { // the fields mean what npm says of package.json
	Name         string            `json:"name"`
	Version      string            `json:"version"`
	Description  string            `json:"description"`
	License      string            `json:"license"`
	Homepage     string            `json:"homepage"`
	Repository   map[string]string `json:"repository"`
	Keywords     []string          `json:"keywords,omitempty"`
	Bin          map[string]string `json:"bin,omitempty"`
	Files        []string          `json:"files"`
	OS           []string          `json:"os,omitempty"`
	CPU          []string          `json:"cpu,omitempty"`
	Engines      map[string]string `json:"engines,omitempty"`
	Optional     map[string]string `json:"optionalDependencies,omitempty"`
	PreferUnplug bool              `json:"preferUnplugged,omitempty"` // Yarn must not keep a program in an archive
}

// newManifest returns a manifest with what all our packages have in common.
func newManifest(name, version, description string) manifest {
	const page = "https://github.com/mcp-bridge/mcp-bridge"
	return manifest{
		Name: name, Version: version, Description: description, License: "MIT", Homepage: page,
		Repository: map[string]string{"type": "git", "url": "git+" + page + ".git"},
	}
}

var (
	platforms = map[string]string{"linux": "linux", "darwin": "darwin", "windows": "win32"} // what Node calls the systems, by their names in Go
	cpus      = map[string]string{"amd64": "x64", "arm64": "arm64"}                         // what Node calls the processors, by their names in Go
)

func main() {
	list := flag.String("artifacts", "../dist/artifacts.json", "what goreleaser has made; the paths in it start at the repository")
	version := flag.String("version", "", "the version, without v")
	to := flag.String("to", "../dist/npm", "a directory that is not there")
	root := flag.String("root", "..", "the repository")
	flag.Parse()
	if err := run(*list, *version, *to, *root); err != nil {
		fmt.Fprintln(os.Stderr, "npm:", err)
		os.Exit(1)
	}
}

// run makes the packages of a version in the new folder to, of what list says that goreleaser has made. root is the repository.
func run(list, version, to, root string) error {
	if version == "" {
		return errors.New("-version is missing")
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	var artifacts []artifact
	if err := json.Unmarshal(text, &artifacts); err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	all := newManifest("mcp-bridge", version, "Converts between the transports of the Model Context Protocol: stdio, Streamable HTTP, HTTP+SSE and WebSocket")
	all.Keywords = []string{"mcp", "model-context-protocol", "stdio", "streamable-http", "sse", "websocket", "proxy", "bridge"}
	all.Bin, all.Files = map[string]string{"mcp-bridge": "mcp-bridge.js"}, []string{"mcp-bridge.js"}
	all.Engines, all.Optional = map[string]string{"node": ">=18"}, map[string]string{}
	for _, a := range artifacts {
		if a.Type != "Binary" {
			continue
		}
		if platforms[a.Goos] == "" || cpus[a.Goarch] == "" {
			return fmt.Errorf("%s: no name in Node is known for %s/%s", a.Path, a.Goos, a.Goarch)
		}
		system := platforms[a.Goos] + "-" + cpus[a.Goarch]
		m := newManifest("@mcp-bridge/"+system, version, "The program mcp-bridge for "+system+"; install the package mcp-bridge")
		m.OS, m.CPU, m.Files, m.PreferUnplug = []string{platforms[a.Goos]}, []string{cpus[a.Goarch]}, []string{"bin"}, true
		all.Optional[m.Name] = version
		program := a.Path
		if !filepath.IsAbs(program) {
			program = filepath.Join(root, program)
		}
		name := "mcp-bridge"
		if a.Goos == "windows" {
			name += ".exe"
		}
		if err := write(filepath.Join(to, system), m, map[string]string{program: "bin/" + name, filepath.Join(root, "LICENSE"): "LICENSE"}); err != nil {
			return err
		}
	}
	if len(all.Optional) == 0 {
		return fmt.Errorf("%s has no program", list)
	}
	return write(filepath.Join(to, "mcp-bridge"), all, map[string]string{
		filepath.Join(root, "packaging/npm/mcp-bridge.js"): "mcp-bridge.js",
		filepath.Join(root, "README.md"):                   "README.md", filepath.Join(root, "LICENSE"): "LICENSE",
	})
}

// write makes the directory dir of a package: its package.json, which is m, and copies of files: by the path of each, the path in dir of its
// copy.
func write(dir string, m manifest, files map[string]string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		return err
	}
	for from, to := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if filepath.Dir(to) == "bin" || filepath.Ext(to) == ".js" {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(dir, to), data, mode); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "package.json"), append(text, '\n'), 0o644)
}
