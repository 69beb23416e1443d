package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// serveStdio is the server behind each bridge: it has one tool, which returns the message that it is given. It returns nil at the end of r.
func serveStdio(r io.Reader, w io.Writer) error {
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Arguments struct{ Message json.RawMessage }
			}
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		if m.ID == nil {
			continue // a notification
		}
		result := `{}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"compare","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			result = fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, m.Params.Arguments.Message)
		}
		if m.Method == "server/discover" {
			_, err = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`+"\n", m.ID)
		} else {
			_, err = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		}
		if err != nil {
			return err
		}
	}
}
