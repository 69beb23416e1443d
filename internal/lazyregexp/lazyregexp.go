// Package lazyregexp compiles regular expressions when they are first used. A program that
// has many, and mostly uses none, starts sooner and needs less memory.
package lazyregexp

import (
	"regexp"
	"sync"
)

// A Regexp is a regular expression that is compiled when it is first used. Each of its methods does
// what the method of regexp.Regexp with the same name does, and may be called concurrently.
type Regexp struct {
	// compileOnce compiles the expression at the first call, and returns the same result at every
	// call.
	compileOnce func() *regexp.Regexp
}

// New returns the Regexp of an expression, which must be right: a wrong one panics when it is
// used.
func New(expr string) *Regexp {
	return &Regexp{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })}
}

// Match does what regexp.Regexp.Match does.
func (r *Regexp) Match(b []byte) bool { return r.compileOnce().Match(b) }

// MatchString does what regexp.Regexp.MatchString does.
func (r *Regexp) MatchString(s string) bool { return r.compileOnce().MatchString(s) }

// FindString does what regexp.Regexp.FindString does.
func (r *Regexp) FindString(s string) string { return r.compileOnce().FindString(s) }

// FindStringSubmatch does what regexp.Regexp.FindStringSubmatch does.
func (r *Regexp) FindStringSubmatch(s string) []string { return r.compileOnce().FindStringSubmatch(s) }

// FindSubmatch does what regexp.Regexp.FindSubmatch does.
func (r *Regexp) FindSubmatch(b []byte) [][]byte { return r.compileOnce().FindSubmatch(b) }

// FindAllStringSubmatch does what regexp.Regexp.FindAllStringSubmatch does.
func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.compileOnce().FindAllStringSubmatch(s, n)
}

// ReplaceAllStringFunc does what regexp.Regexp.ReplaceAllStringFunc does.
func (r *Regexp) ReplaceAllStringFunc(s string, repl func(string) string) string {
	return r.compileOnce().ReplaceAllStringFunc(s, repl)
}
