package matrix

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// failed is the cell of a step that went wrong.
const failed = "FAILED"

// table collects what came of each step of each pair.
type table struct {
	columns []string // the steps
	legend  string   // what stands below

	mu    sync.Mutex
	rows  []string
	cells map[string]map[string]string // by row and step
}

func newTable(s script) *table {
	b := &table{legend: s.legend, cells: map[string]map[string]string{}}
	for _, step := range s.steps {
		b.columns = append(b.columns, step.name)
	}
	return b
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
	first := len("client > server")
	for _, row := range b.rows {
		first = max(first, len(row))
	}
	fmt.Fprintf(&out, "%-*s", first, "client > server")
	for _, name := range b.columns {
		fmt.Fprintf(&out, " %*s", width(name), name)
	}
	out.WriteString("\n")
	for _, row := range b.rows {
		if len(b.cells[row]) == 0 {
			continue // nobody asked for it
		}
		fmt.Fprintf(&out, "%-*s", first, row)
		for _, name := range b.columns {
			cell := b.cells[row][name]
			if cell == "" {
				cell = "not run"
			}
			fmt.Fprintf(&out, " %*s", width(name), cell)
		}
		out.WriteString("\n")
	}
	out.WriteString(b.legend)
	// Once more at the end, which is what one sees of a long log.
	for _, row := range b.rows {
		for _, name := range b.columns {
			if b.cells[row][name] == failed {
				fmt.Fprintf(&out, "%s: %s, %s\n", failed, row, name)
			}
		}
	}
	return out.String()
}

func width(name string) int { return max(len(name), len("not run")) }

// publish prints the table, and adds it to the file that MATRIX_TABLE names.
func (b *table) publish(t *testing.T) {
	t.Logf("the matrix:\n%s", b)
	if file := os.Getenv("MATRIX_TABLE"); file != "" {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err == nil {
			_, err = fmt.Fprintf(f, "%s\n", b)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
}
