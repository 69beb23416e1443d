package manual

import (
	_ "embed" // the scripts
	"slices"
	"strings"
)

// The scripts ask the program what to offer, with CompleteCommand, how many arguments there are up to the cursor, and
// these; so there is nothing in them that a new version of the program changes. In place of the program's name they have PROGRAM,
// and in place of the name of their function FUNCTION.
var (
	// bashScript is the completion script of bash, for CompletionScript.
	//
	//go:embed completion.bash
	bashScript string
	// zshScript is the completion script of zsh, for CompletionScript.
	//
	//go:embed completion.zsh
	zshScript string
	// fishScript is the completion script of fish, for CompletionScript.
	//
	//go:embed completion.fish
	fishScript string
	// powershellScript is the completion script of PowerShell, for CompletionScript.
	//
	//go:embed completion.ps1
	powershellScript string
)

// CompleteCommand is the name of the hidden command that completion scripts run to ask what to offer (Manual.Complete).
const CompleteCommand = "__complete"

// Shells are the names of the shells for which there is a completion script.
var Shells = []string{"bash", "zsh", "fish", "powershell"}

// CompletionScript returns the script that makes a shell complete command lines of the program; ok is false for a shell that is none of Shells.
func (m *Manual) CompletionScript(shell string) (script string, ok bool) {
	i := slices.Index(Shells, shell)
	if i < 0 {
		return "", false
	}
	script = []string{bashScript, zshScript, fishScript, powershellScript}[i]
	name := strings.ReplaceAll(m.Program, "-", "_")
	return strings.NewReplacer("PROGRAM", m.Program, "FUNCTION", "_"+name+"_complete").Replace(script), true
}
