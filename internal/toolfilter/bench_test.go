package toolfilter

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// stream is two ends of pipes of the operating system as one.
type stream struct {
	io.ReadCloser
	io.WriteCloser
}

// pipes returns a Conn over pipes of the operating system, and their other ends.
func pipes(b *testing.B) (c bridge.Conn, far stream) {
	b.Helper()
	in, farOut, err := os.Pipe()
	bridgetest.Must(b, err)
	farIn, out, err := os.Pipe()
	bridgetest.Must(b, err)
	return stdio.NewConn(in, out, func() error { return errors.Join(in.Close(), out.Close()) }, stdio.Options{}), stream{farIn, farOut}
}

// A call of a tool and its answer through a Pump between two pairs of pipes, with the filter
// and without: what the filter may cost is 5 % of that.
func BenchmarkRoundTrip(b *testing.B) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}` + "\n"
	const answer = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello"}]}}` + "\n"
	for _, run := range []struct {
		name  string
		rules Rules
	}{{"without", Rules{}}, {"with", Rules{Ignore: []string{"delete_*"}}}} {
		b.Run(run.name, func(b *testing.B) {
			client, user := pipes(b)
			server, echo := pipes(b)
			d := Wrap(dialFunc(func(context.Context) (bridge.Conn, error) { return server, nil }), run.rules)
			filtered, err := d.Dial(b.Context())
			bridgetest.Must(b, err)
			done := make(chan struct{}, 2)
			go func() {
				_ = bridge.Pump(context.Background(), client, filtered, bridge.PumpOptions{})
				done <- struct{}{}
			}()
			go func() {
				for in := bufio.NewReader(echo); ; {
					if _, err := in.ReadSlice('\n'); err != nil {
						break
					}
					_, _ = io.WriteString(echo, answer)
				}
				done <- struct{}{}
			}()
			out := bufio.NewReader(user)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := io.WriteString(user, call); err != nil {
					b.Fatal(err)
				}
				if _, err := out.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			_ = user.WriteCloser.Close()
			_ = filtered.Close(nil)
			_ = echo.WriteCloser.Close()
			<-done
			<-done
			_ = client.Close(nil)
		})
	}
}

// The filter's work on a message that it passes, and on a page of a hundred tools.
func BenchmarkFilter(b *testing.B) {
	s := &session{filter: hiding(b, "delete_*")}
	for name, text := range map[string]string{
		"call":         `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + strings.Repeat("x", 1000) + `"}}}`,
		"ping":         `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		"notification": `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}`,
	} {
		m := parse(b, text)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.send(m)
			}
		})
	}
	answer := jsonrpc.NewResult(jsonrpc.IntID(1), []byte(`{"content":[]}`))
	b.Run("answer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.receive(&answer)
		}
	})
	tool := `{"name":"tool","description":"` + strings.Repeat("d", 200) + `","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}},`
	page := parse(b, `{"jsonrpc":"2.0","id":1,"result":{"tools":[`+strings.Repeat(tool, 99)+`{"name":"hidden"}]}}`)
	f := hiding(b, "h*")
	b.Run("page", func(b *testing.B) {
		b.SetBytes(int64(len(page.Bytes())))
		b.ReportAllocs()
		for b.Loop() {
			f.hideInAnswer(page)
		}
	})
}
