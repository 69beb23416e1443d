package main

import (
	"os"
	"testing"
)

func TestIsTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for name, want := range map[string]bool{"/dev/null": false, "/dev/ptmx": true, os.Args[0]: false} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if isTerminal(f) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
	if isTerminal(r) {
		t.Error("a pipe is no terminal")
	}
}
