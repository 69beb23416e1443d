package signin

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// TestMain makes the test binary a browser, or the process that signs in.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "browse":
		var resp *http.Response
		if resp, err = http.Get(os.Args[2]); err == nil { // it follows redirects, as a browser does
			err = resp.Body.Close()
		}
	case len(os.Args) == 2 && os.Args[1] == "sign-in":
		err = RunDetachedSignIn(context.Background(), os.Stdin, os.Stdout, os.LookupEnv)
	default:
		bridgetest.CheckLeaks(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
