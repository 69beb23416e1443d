//go:build unix

package supervisor_test

import (
	"bufio"
	"context"
	"fmt"
	"log"

	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// Start a program, talk to it, and stop it. Stop closes the program's stdin first, which
// is enough for cat.
func ExampleStart() {
	p, err := supervisor.Start(context.Background(), supervisor.Spec{Path: "cat"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(p.Stdin(), "hello")
	line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(line)
	fmt.Println(p.Stop(), p.ExitError())
	// Output:
	// hello
	// <nil> <nil>
}

// A program that ends by itself says why in its exit status and on stderr. It must be
// stopped all the same: it may have left descendants.
func ExampleProcess_ExitError() {
	p, err := supervisor.Start(context.Background(), supervisor.Spec{
		Path: "sh", Args: []string{"-c", "echo 'no database' >&2; exit 3"},
	})
	if err != nil {
		log.Fatal(err)
	}
	<-p.Done()
	fmt.Println(p.ExitError())
	fmt.Println(p.StderrTail())
	if err := p.Stop(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// exit status 3
	// [no database]
}

// A child gets the variables that it is given, and no others of this process.
func ExampleEnviron() {
	env, err := supervisor.Environ("none", []string{"API_KEY=secret", "LANG=C"})
	if err != nil {
		log.Fatal(err)
	}
	p, err := supervisor.Start(context.Background(), supervisor.Spec{
		Path: "sh", Args: []string{"-c", "echo $API_KEY, home: $HOME"}, Env: env,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Stop()
	line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(line)
	// Output: secret, home:
}
