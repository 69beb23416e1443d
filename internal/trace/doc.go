// Package trace writes down what a bridge sees, as JSON Lines that docs/trace.md
// documents: every message at both ends of the bridge, and what happens beside the messages.
// It reads such lines, too.
//
// A Record is one line. Append writes it, Parse and Reader read it.
package trace
