// Package metrics measures Go code by its syntax tree: how large packages, files,
// functions and types are, how much they export, and where they start goroutines
// and timers. It reads files as they are, for every system, and needs neither
// their dependencies nor a build.
package metrics

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Size is the length of something that has a name. The zero Size is none.
type Size struct {
	Name string // what has the length
	N    int    // the length: how many lines a file or function has, fields a struct, or methods a type
}

// larger returns the larger of two sizes; of equal ones the first by name, so
// that what is printed does not depend on the order of files.
func larger(a, b Size) Size {
	if b.N > a.N || b.N == a.N && b.Name < a.Name {
		return b
	}
	return a
}

// A Package is what was counted in one folder, or in several that were added up.
type Package struct {
	Dir   string // relative to the root, with slashes; "." is the root itself
	Lines int    // the lines of all files
	Files []Size // lines of each file

	Functions []Size // lines of each function and method, without its doc comment
	Structs   []Size // fields of each struct type that has a name
	Types     []Size // methods of each type that has some

	Exported   int // exported constants, variables, types and functions, and exported methods of exported types
	Goroutines int // go statements, and calls of methods called Go with one function, as WaitGroup has
	Timers     int // calls of time.AfterFunc, NewTimer, NewTicker and context.AfterFunc
}

// Walk measures the packages below root, in the order of their names, without tests, the
// folder tests, and folders that the go command ignores.
func Walk(root string) ([]Package, error) {
	found := map[string]*Package{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel == "tests" || rel != "." && ignored(d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") {
			return nil
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		if found[dir] == nil {
			found[dir] = &Package{Dir: dir}
		}
		return found[dir].add(path, rel)
	})
	if err != nil {
		return nil, err
	}
	var packages []Package
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		p := found[dir]
		p.Types = sum(p.Types)
		packages = append(packages, *p)
	}
	return packages, nil
}

// ignored reports whether the go command takes no packages from a folder of that name.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "vendor" || name == "node_modules"
}

// sum adds up the sizes that have the same name.
func sum(sizes []Size) []Size {
	n := map[string]int{}
	for _, s := range sizes {
		n[s.Name] += s.N
	}
	var out []Size
	for _, name := range slices.Sorted(maps.Keys(n)) {
		out = append(out, Size{name, n[name]})
	}
	return out
}

// Total returns what was counted in all of these packages, as one called "total".
func Total(packages []Package) Package {
	total := Package{Dir: "total"}
	for _, p := range packages {
		total.Lines += p.Lines
		total.Files = append(total.Files, p.Files...)
		total.Functions = append(total.Functions, p.Functions...)
		total.Structs = append(total.Structs, p.Structs...)
		total.Types = append(total.Types, p.Types...)
		total.Exported += p.Exported
		total.Goroutines += p.Goroutines
		total.Timers += p.Timers
	}
	return total
}

// Public reports whether other modules may import the package.
func (p Package) Public() bool {
	return !slices.Contains(strings.Split(p.Dir, "/"), "internal") && !strings.HasPrefix(p.Dir, "cmd/")
}

// Largest returns the largest of the sizes; the zero Size: there are none.
func Largest(sizes []Size) Size {
	var most Size
	for _, s := range sizes {
		most = larger(most, s)
	}
	return most
}

// Quantile returns the size that a share q of the sizes, from 0 to 1, does not exceed; 0: there are none.
func Quantile(sizes []Size, q float64) int {
	if len(sizes) == 0 {
		return 0
	}
	var all []int
	for _, s := range sizes {
		all = append(all, s.N)
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1)+0.5)]
}

// add counts one file, the one at path. name is what its size is called.
func (p *Package) add(path, name string) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	lines := strings.Count(string(source), "\n")
	p.Lines += lines
	p.Files = append(p.Files, Size{name, lines})
	c := counter{p, fset, file}
	for _, decl := range file.Decls {
		c.declaration(decl)
	}
	ast.Inspect(file, c.node)
	return nil
}

// A counter counts what is in one file of a package.
type counter struct {
	*Package                // what was counted so far
	fset     *token.FileSet // has the positions in file
	file     *ast.File      // the file
}

// declaration counts what a declaration of the package exports, its functions and methods.
func (c counter) declaration(decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name, exported := d.Name.Name, d.Name.IsExported()
		if d.Recv != nil {
			of := receiver(d.Recv.List[0].Type)
			c.Types = append(c.Types, Size{c.qualified(of), 1})
			name, exported = of+"."+name, exported && ast.IsExported(of)
		}
		if exported {
			c.Exported++
		}
		c.Functions = append(c.Functions, Size{c.qualified(name), c.fset.Position(d.End()).Line - c.fset.Position(d.Pos()).Line + 1})
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				c.count(s.Name)
			case *ast.ValueSpec:
				c.count(s.Names...)
			}
		}
	}
}

// count counts those of the names that are exported.
func (c counter) count(names ...*ast.Ident) {
	for _, name := range names {
		if name.IsExported() {
			c.Exported++
		}
	}
}

// qualified returns a name with that of its package in front, as other packages write it.
func (c counter) qualified(name string) string { return c.file.Name.Name + "." + name }

// receiver returns the name of the type that a method belongs to; e is the type of its receiver. "?": it has none.
func receiver(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.ParenExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return "?"
}

// node counts n if it is a struct type with a name, a start of a goroutine, or a timer, all of which may stand anywhere in a file. It always
// returns true, so that ast.Inspect goes on below n.
func (c counter) node(n ast.Node) bool {
	switch x := n.(type) {
	case *ast.TypeSpec:
		if s, ok := x.Type.(*ast.StructType); ok {
			c.Structs = append(c.Structs, Size{c.qualified(x.Name.Name), s.Fields.NumFields()})
		}
	case *ast.GoStmt:
		c.Goroutines++
	case *ast.CallExpr:
		f, ok := x.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, _ := f.X.(*ast.Ident)
		switch {
		case f.Sel.Name == "Go" && len(x.Args) == 1 && isFunc(x.Args[0]):
			c.Goroutines++
		case of != nil && slices.Contains(timerFuncs, of.Name+"."+f.Sel.Name):
			c.Timers++
		}
	}
	return true
}

// timerFuncs are the functions whose calls Package.Timers counts. Other timers, such as that of time.After, are not counted.
var timerFuncs = []string{"time.AfterFunc", "time.NewTimer", "time.NewTicker", "context.AfterFunc"}

// isFunc reports whether an argument of a method Go may be a function: all that is
// no literal of another kind.
func isFunc(e ast.Expr) bool {
	switch e.(type) {
	case *ast.BasicLit, *ast.CompositeLit:
		return false
	}
	return true
}
