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
	bash string
	//go:embed completion.zsh
	zsh string
	//go:embed completion.fish
	fish string
	//go:embed completion.ps1
	powershell string
)

// CompleteCommand is the command that the scripts of Script call.
const CompleteCommand = "__complete"

// Shells are the shells that there is a script for.
var Shells = []string{"bash", "zsh", "fish", "powershell"}

// Script returns what makes a shell complete the program's lines; ok is false for a shell that is none of Shells.
func (m *Manual) Script(shell string) (script string, ok bool) {
	i := slices.Index(Shells, shell)
	if i < 0 {
		return "", false
	}
	script = []string{bash, zsh, fish, powershell}[i]
	name := strings.ReplaceAll(m.Program, "-", "_")
	return strings.NewReplacer("PROGRAM", m.Program, "FUNCTION", "_"+name+"_complete").Replace(script), true
}
