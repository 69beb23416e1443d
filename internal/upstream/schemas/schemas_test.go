package schemas

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
)

func annotated(header string) string {
	return `{"tools":[{"name":"x","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"` + header + `"}}}}]}`
}

// A list that was asked for before the tools have changed is not learned after.
func TestLateListOfTools(t *testing.T) {
	var tools Table
	version := tools.ListVersion()
	tools.Forget()
	tools.Learn([]byte(annotated("Old")), version)
	if _, known, _ := tools.input("x"); known {
		t.Error("it is learned")
	}
	tools.Learn([]byte(annotated("New")), tools.ListVersion())
	if got, _, _ := tools.input("x"); !strings.Contains(string(got), "New") {
		t.Errorf("known: %s", got)
	}
}

// The list of tools may be asked for while the server says that it has changed.
func TestForgetWhileFetching(t *testing.T) {
	var tools Cache[string]
	table := tools.Table("x")
	var wg, fetches sync.WaitGroup
	over := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				tools.Forget()
			}
		}
	})
	from := Source{
		Join: func(context.Context) (bridge.Conn, error) { return nil, errors.New("there is none") },
		Spawn: func(f func(context.Context)) bool {
			fetches.Go(func() { f(t.Context()) })
			return true
		},
	}
	for range 20_000 {
		<-table.startFetch(from).done
	}
	close(over)
	wg.Wait()
	fetches.Wait()
}
