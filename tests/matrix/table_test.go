package matrix

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// waitUntil looks again and again at what another process changes.
func waitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// table collects what came of each step of each pair.
type table struct {
	mu    sync.Mutex
	rows  []string
	cells map[string]map[string]string // by row and step
}

func (b *table) row(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = append(b.rows, name)
	b.cells[name] = map[string]string{}
}

func (b *table) set(row, step, cell string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cells[row][step] = cell
}

// String is the table as text, in milliseconds.
func (b *table) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out strings.Builder
	fmt.Fprintf(&out, "%-16s", "client > server")
	for _, s := range steps {
		fmt.Fprintf(&out, " %*s", width(s.name), s.name)
	}
	out.WriteString("\n")
	for _, row := range b.rows {
		if len(b.cells[row]) == 0 {
			continue // nobody asked for it
		}
		fmt.Fprintf(&out, "%-16s", row)
		for _, s := range steps {
			cell := b.cells[row][s.name]
			if cell == "" {
				cell = "not run"
			}
			fmt.Fprintf(&out, " %*s", width(s.name), cell)
		}
		out.WriteString("\n")
	}
	out.WriteString("Milliseconds; \"-\" is what needs a bridge; \"renews\" and \"ends\" is what a session did after its server had restarted.\n")
	return out.String()
}

func width(name string) int { return max(len(name), len("not run")) }

// publish prints the table, and writes it where MATRIX_TABLE says.
func (b *table) publish(t *testing.T) {
	t.Logf("the matrix:\n%s", b)
	if file := os.Getenv("MATRIX_TABLE"); file != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}
