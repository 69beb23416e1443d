package stdio

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

const childEnv = "STDIO_TEST_CHILD"

// TestMain runs this binary as a child of the tests, too.
func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		os.Exit(children[name]())
	}
	bridgetest.CheckLeaks(m)
}

// children are the programs that the tests start; each returns its exit status.
var children = map[string]func() int{
	"echo":   func() int { echo(); return 0 },
	"status": func() int { echo(); return 3 },

	// Prints a banner, and its messages as some programs do.
	"banner": func() int {
		fmt.Print("Server ready\r\n\r\n\uFEFF" + pong + "\r\n")
		echo()
		return 0
	},

	// Dies in the middle of a call.
	"crash": func() int {
		bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Fprint(os.Stderr, "starting\n\x1b[31mpanic: \u202eout of luck\x1b[0m\n\n  at line 1  \n")
		return 3
	},

	// ST6: writes more to stderr than any pipe holds, before it answers.
	"stderr": func() int {
		line := append(bytes.Repeat([]byte("e"), 1023), '\n')
		for range 10 << 10 {
			os.Stderr.Write(line)
		}
		echo()
		return 0
	},

	// Says that it will read nothing, and keeps to it until it is terminated.
	"deaf": func() int { fmt.Println(note); awaitTerm(); return 0 },

	// ST7: notices that its stdin has ended, and stays.
	"stubborn": func() int {
		fmt.Println(note)
		io.Copy(io.Discard, os.Stdin)
		fmt.Fprintln(os.Stderr, "EOF")
		awaitTerm()
		fmt.Fprintln(os.Stderr, "TERM")
		return 0
	},

	"closes stdout": func() int {
		os.Stdout.Close()
		if n, _ := io.Copy(io.Discard, os.Stdin); n > 0 {
			return 5
		}
		return 0
	},

	// Writes until its stdin ends, which it notices only between two writes.
	"chatty": func() int {
		ended := make(chan struct{})
		go func() { io.Copy(io.Discard, os.Stdin); close(ended) }()
		out := bytes.Repeat([]byte(note+"\n"), 10_000)
		for {
			select {
			case <-ended:
				return 0
			default:
				os.Stdout.Write(out)
			}
		}
	},

	// A client Conn on this process's own stdin and stdout.
	"std echo": func() int {
		c := Std(os.Stdin, os.Stdout, Options{})
		defer c.Close(nil)
		for {
			m, err := bridgetest.Recv(context.Background(), c)
			if err == io.EOF {
				return 0
			}
			if err == nil {
				err = c.Send(context.Background(), m)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 4
			}
		}
	},

	// Ends a Receive and a Send that wait, by their context, on SIGTERM.
	"std term": func() int {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		c := Std(os.Stdin, os.Stdout, Options{})
		sent := make(chan error)
		go func() {
			for {
				if err := c.Send(ctx, benchMessage(10_000)); err != nil {
					sent <- err
					return
				}
			}
		}()
		_, err := bridgetest.Recv(ctx, c)
		fmt.Fprintln(os.Stderr, "Recv:", err)
		fmt.Fprintln(os.Stderr, "Send:", <-sent)
		c.Close(nil)
		return 0
	},
}

// echo copies lines, until stdin ends.
func echo() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		os.Stdout.Write(line)
	}
}

func awaitTerm() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	<-c
}

// childEnviron is the environment that makes this binary the child of that name.
func childEnviron(name string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GORACE=") {
			env = append(env, kv)
		}
	}
	// Without this option the race detector lets every process end a second late.
	return append(env, childEnv+"="+name, "GORACE=atexit_sleep_ms=0")
}
