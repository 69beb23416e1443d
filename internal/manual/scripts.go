package manual

import (
	_ "embed" // the scripts
	"slices"
	"strings"
)

// The scripts ask the program what to offer, with CompleteCommand, how many arguments there are up to the cursor, and
// these; so there is nothing in them that a new version of the program changes.
var (
	//go:embed completion.bash
	bashScript string
	//go:embed completion.zsh
	zshScript string
	//go:embed completion.fish
	fishScript string
	//go:embed completion.ps1
	powershellScript string
)

// CompleteCommand is the command that the scripts of CompletionScript call.
const CompleteCommand = "__complete"

// Shells are the shells that there is a script for.
var Shells = []string{"bash", "zsh", "fish", "powershell"}

// CompletionScript returns what makes a shell complete the program's lines; ok is false for a shell that is none of Shells.
func (m *Manual) CompletionScript(shell string) (script string, ok bool) {
	i := slices.Index(Shells, shell)
	if i < 0 {
		return "", false
	}
	script = []string{bashScript, zshScript, fishScript, powershellScript}[i]
	name := strings.ReplaceAll(m.Program, "-", "_")
	return strings.NewReplacer("PROGRAM", m.Program, "FUNCTION", "_"+name+"_complete").Replace(script), true
}
