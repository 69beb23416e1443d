package toolheader

import (
	"fmt"
	"testing"
)

// ME3: an invalid tool goes, and nothing else changes.
func TestRemoveInvalidTools(t *testing.T) {
	const (
		good = `{"name":"good","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}},"n":1.0}`
		none = `{"inputSchema":{"type":"object"}, "name":"none"}`
		bad  = `{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"}}}}`
		bad2 = `{"name":"bad2","inputSchema":{"x-mcp-header":"A"}}`
	)
	for _, c := range []struct{ result, want, excluded string }{
		{`{"tools":[` + good + `,` + none + `]}`, "", ""},
		{`{"tools":[],"x":"x-mcp-header"}`, "", ""},
		{`{"tools":null,"x":"x-mcp-header"}`, "", ""},
		{`[]`, "", ""},
		{`{"tools":[7,{"x-mcp-header":""},{"name":1}]}`, "", ""},
		{`{"ttlMs":1,"tools": [ ` + bad + ` ] , "nextCursor":"c"}`, `{"ttlMs":1,"tools": [] , "nextCursor":"c"}`, "bad"},
		{`{"tools":[` + bad + ` ,` + good + `]}`, `{"tools":[` + good + `]}`, "bad"},
		{`{"tools":[ ` + good + `, ` + bad + ` ]}`, `{"tools":[ ` + good + ` ]}`, "bad"},
		{`{"tools":[` + good + `, ` + bad + `,  ` + none + `,` + bad2 + `]}`, `{"tools":[` + good + `,  ` + none + `]}`, "bad bad2"},
		{`{"tools":[` + bad + `],"tools":[` + good + `,` + bad2 + `]}`, `{"tools":[],"tools":[` + good + `]}`, "bad bad2"},
	} {
		kept, excluded := RemoveInvalidTools([]byte(c.result))
		if c.want == "" {
			c.want = c.result
		}
		names := ""
		for _, name := range []string{"bad", "bad2"} {
			if excluded[name] != nil {
				names += " " + name
			}
		}
		if string(kept) != c.want || names != "" && names[1:] != c.excluded || names == "" && c.excluded != "" || names == "" && len(excluded) > 0 {
			t.Errorf("RemoveInvalidTools(%s) = %s, %v\nwant %s, %s", c.result, kept, excluded, c.want, c.excluded)
		}
	}
	tools := Tools([]byte(`{"tools":[` + good + `,7,` + bad + `,` + none + `]}`))
	got := ""
	for _, tool := range tools {
		got += fmt.Sprint(tool.Name, " ", len(tool.InputSchema) > 0, " ", len(tool.Params), " ", tool.Err != nil, "; ")
	}
	if want := "good true 1 false; bad true 0 true; none true 0 false; "; got != want {
		t.Errorf("Tools = %s, want %s", got, want)
	}
}
