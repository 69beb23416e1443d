// Package schemas keeps the input schemas of a server's tools: which arguments of a call
// also stand in HTTP headers (MI22) is in them. They are learned from the answers to
// tools/list that pass by, and asked for where a call comes first.
package schemas

import (
	"bytes"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// maxTables is how many Tables a Cache keeps; for one more it forgets all.
	maxTables = 1000

	// maxTools is how many tools a Table keeps; more are not known.
	maxTools = 10_000
)

// A Cache has one Table for each key, which says what a server was told of its client, and who that is: the tools that it
// lists may depend on that. The zero Cache is ready for use by any number of goroutines.
type Cache[K comparable] struct {
	mu     sync.Mutex   // guards tables
	tables map[K]*Table // the Tables by their keys
}

// Table returns the Table with the tools of the servers that have this key. It is empty if there was none.
func (c *Cache[K]) Table(key K) *Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tables[key]
	if t == nil {
		if c.tables == nil {
			c.tables = make(map[K]*Table)
		}
		if len(c.tables) >= maxTables {
			clear(c.tables)
		}
		t = new(Table)
		c.tables[key] = t
	}
	return t
}

// Forget forgets the tools in all Tables. It is called when a server wants other headers than its list of
// tools has called for.
func (c *Cache[K]) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tables {
		t.Forget()
	}
}

// A Table has the input schemas of one server's tools. The zero Table is empty; any number of goroutines may
// use it.
type Table struct {
	mu           sync.Mutex        // guards the fields below
	inputSchemas map[string][]byte // the input schemas, raw, of the tools that were listed, by the tool's name; nil for those without x-mcp-header
	freshUntil   time.Time         // until then a tool that is not in inputSchemas is taken for unknown, and the server is not asked for its list
	listVersion  uint64            // how often Forget was called
	fetch        *fetch            // the request for the list in progress; nil: there is none
}

// input returns what is known of a tool. known is false if it is not in the Table. fresh: the list was asked
// for so recently that a tool that is not known counts as unknown, without asking the server again.
func (t *Table) input(tool string) (schema []byte, known, fresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	schema, known = t.inputSchemas[tool]
	return schema, known, time.Now().Before(t.freshUntil)
}

// ListVersion returns a number that changes when the list is forgotten. It is to be read before tools/list is
// sent, for Learn.
func (t *Table) ListVersion() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.listVersion
}

// Learn adds the tools in result, the result of a tools/list that was sent at listVersion. If the list was
// forgotten since, they may be those of before, and are not added.
func (t *Table) Learn(result []byte, listVersion uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listVersion != listVersion {
		return
	}
	if t.inputSchemas == nil {
		t.inputSchemas = make(map[string][]byte)
	}
	var tools []byte
	for m := range jsonrpc.Members(result) {
		if m.Key == "tools" {
			tools = m.Value
		}
	}
	for _, tool := range jsonrpc.Elements(tools) {
		name, schema := nameAndSchema(tool)
		if _, known := t.inputSchemas[name]; known || len(t.inputSchemas) < maxTools {
			t.inputSchemas[name] = bytes.Clone(schema)
		}
	}
}

// nameAndSchema returns the name of a tool of a list, and its input schema if that can have an x-mcp-header,
// else nil.
func nameAndSchema(tool []byte) (name string, schema []byte) {
	for m := range jsonrpc.Members(tool) {
		switch m.Key {
		case "name":
			name, _ = jsonrpc.Text(m.Value)
		case "inputSchema":
			schema = m.Value
		}
	}
	if !bytes.Contains(schema, []byte("x-mcp-header")) && !bytes.ContainsRune(schema, '\\') {
		schema = nil // mostly so
	}
	return name, schema
}

// Forget forgets all tools. It is called when the server's list has changed.
func (t *Table) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inputSchemas, t.freshUntil = nil, time.Time{}
	t.listVersion++
}
