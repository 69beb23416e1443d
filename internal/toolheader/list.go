package toolheader

import "github.com/mcp-bridge/mcp-bridge/jsonrpc"

// Tool is one tool of a list.
type Tool struct {
	Name        string
	InputSchema []byte  // raw; nil: none. Not to be changed
	Params      []Param // what goes as headers; nil: nothing
	Err         error   // why the tool is to be left out (see ParseAnnotations); nil: it is not
}

// Tools returns the tools in a tools/list result. What has no name is left out.
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

// toolOf reads an element of the list. ok is false if it has no name.
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

// pruneTools returns the array without the invalid tools, which it enters into
// excluded, and whether there were any.
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
