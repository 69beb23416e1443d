package toolheader

import "github.com/mcp-bridge/mcp-bridge/jsonrpc"

// A Tool is one tool of a tools/list result.
type Tool struct {
	Name        string  // the tool's name, as the server spells it
	InputSchema []byte  // raw; nil: none. Not to be changed
	Params      []Param // the annotated parameters, whose arguments go as headers too; nil: there are none
	Err         error   // why its annotations are invalid, so that lists must leave the tool out (see ParseAnnotations); nil: they are valid
}

// Tools returns the tools in a tools/list result. What has no name is left out; a tool with invalid
// annotations is there, with its Err.
func Tools(result []byte) []Tool {
	var all []Tool
	for m := range jsonrpc.Members(result) {
		if m.Key != "tools" {
			continue
		}
		for _, element := range jsonrpc.Elements(m.Value) {
			if t, ok := toolOf(element); ok {
				all = append(all, t)
			}
		}
	}
	return all
}

// toolOf reads one tool of a list, with its annotations. ok is false if it has no name.
func toolOf(element []byte) (t Tool, ok bool) {
	for m := range jsonrpc.Members(element) {
		switch m.Key {
		case "name":
			t.Name, ok = jsonrpc.Text(m.Value)
		case "inputSchema":
			t.InputSchema = m.Value
		}
	}
	if ok {
		t.Params, t.Err = ParseAnnotations(t.InputSchema)
	}
	return t, ok
}

// RemoveInvalidTools cuts the tools whose annotations are invalid out of a tools/list
// result (ME3). Every other byte stays, but for the commas between. kept is
// result itself if excluded is empty. excluded says why, by the tools' names.
func RemoveInvalidTools(result []byte) (kept []byte, excluded map[string]error) {
	if !mayHaveAnnotation(result) {
		return result, nil
	}
	copied := 0
	for m := range jsonrpc.Members(result) {
		if m.Key != "tools" {
			continue
		}
		if tools, less := pruneTools(m.Value, &excluded); less {
			kept = append(append(kept, result[copied:m.At]...), tools...)
			copied = m.At + len(m.Value)
		}
	}
	if copied == 0 {
		return result, nil
	}
	return append(kept, result[copied:]...), excluded
}

// pruneTools returns a JSON array of tools without those whose annotations are invalid; it puts
// these into excluded, by name. pruned is false if there were none.
func pruneTools(array []byte, excluded *map[string]error) (kept []byte, pruned bool) {
	kept = append(make([]byte, 0, len(array)), '[')
	first, end := 0, 1 // where the first tool begins, where the last one looked at ends
	n := 0             // how many stay
	for at, element := range jsonrpc.Elements(array) {
		if first == 0 {
			first = at
		}
		gap := array[end:at]
		end = at + len(element)
		if t, ok := toolOf(element); ok && t.Err != nil {
			if *excluded == nil {
				*excluded = make(map[string]error)
			}
			(*excluded)[t.Name] = t.Err
			pruned = true
			continue
		}
		if n == 0 {
			gap = array[1:first] // no comma before the first one
		}
		n++
		kept = append(append(kept, gap...), element...)
	}
	if n == 0 {
		return []byte("[]"), pruned
	}
	return append(kept, array[end:]...), pruned
}
