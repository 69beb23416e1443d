// Package buildinfo says which build of the bridge this is: to people, and to the
// peers that the bridge speaks to in its own name. There is one answer.
package buildinfo

import (
	"runtime/debug"
	"strconv"
	"sync"
)

// module is the path of this Go module.
const module = "github.com/mcp-bridge/mcp-bridge"

// release is set by the linker (-X) where a build cannot know its version by itself:
// in the Dockerfile and .goreleaser.yaml. It is a version such as v1.2.3; "": it was not set.
var release = ""

// Version returns the version of this module in the program that runs: that of a
// release, a pseudo-version of a build in a repository, or "(devel)". It is never
// empty: in clientInfo and serverInfo a version is required. Any number of
// goroutines may call it.
var Version = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	return versionIn(info, release)
})

// versionIn returns Version for a program with this build information (nil: none) and this value of
// the variable release.
func versionIn(info *debug.BuildInfo, release string) string {
	version := release
	if info != nil && version == "" {
		version = info.Main.Version
		for _, dep := range info.Deps {
			if dep.Path == module { // its packages are used in another program
				version = dep.Version
			}
		}
	}
	if version == "" {
		return "(devel)"
	}
	return version
}

// Implementation returns who the bridge is as the protocol wants it, in
// clientInfo and serverInfo: raw JSON, which must not be changed.
var Implementation = sync.OnceValue(func() []byte {
	return []byte(`{"name":"mcp-bridge","version":` + strconv.QuoteToASCII(Version()) + `}`)
})
