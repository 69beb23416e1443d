package metrics

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes a row for each package, one for all together, and one for those that
// other modules may import.
func Print(w io.Writer, packages []Package) error {
	var public []Package
	for _, p := range packages {
		if p.Public() {
			public = append(public, p)
		}
	}
	total, outside := Total(packages), Total(public)
	total.Dir = fmt.Sprintf("total (%d packages)", len(packages))
	outside.Dir = fmt.Sprintf("public (%d packages)", len(public))

	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "package\tlines\tfiles\tlargest file\tfunctions\tmedian\tp95\tlongest function\tmost fields\tmost methods\texported\tgoroutines\ttimers")
	for _, p := range append(packages, total, outside) {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\n", p.Dir, p.Lines, len(p.Files), file(Largest(p.Files)),
			len(p.Functions), Quantile(p.Functions, 0.5), Quantile(p.Functions, 0.95), Largest(p.Functions), Largest(p.Structs), Largest(p.Types),
			p.Exported, p.Goroutines, p.Timers)
	}
	return table.Flush()
}

// String returns the number and what has the length; "-": the Size is none.
func (s Size) String() string {
	if s.Name == "" {
		return "-"
	}
	return fmt.Sprintf("%d %s", s.N, s.Name)
}

// file returns the size of a file with its name without the folder, which stands in the row's first column.
func file(s Size) Size { return Size{s.Name[strings.LastIndex(s.Name, "/")+1:], s.N} }
