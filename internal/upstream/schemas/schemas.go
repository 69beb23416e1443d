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
	// maxTables bounds the tables that a Cache keeps.
	maxTables = 1000

	// maxTools bounds what a Table keeps.
	maxTools = 10_000
)

// A Cache has one Table for each key: servers list their tools by what they were told of
// their client, and of whom. The zero Cache is ready for use by any number of goroutines.
type Cache[K comparable] struct {
	mu     sync.Mutex
	tables map[K]*Table
}

// Table returns the tools of the servers that have this key.
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

// Forget forgets all tools. It is called when a server wants other headers than its list of tools has called for.
func (c *Cache[K]) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tables {
		t.Forget()
	}
}

// A Table has the tools of one server. The zero Table is empty; any number of goroutines
// may use it.
type Table struct {
	mu           sync.Mutex
	inputSchemas map[string][]byte // input schemas by tool; nil for those without x-mcp-header
	freshUntil   time.Time         // until then a tool that is not in inputSchemas is taken for unknown
	listVersion  uint64            // how often the list has changed
	fetch        *fetch            // in progress; nil: there is none
}

// input returns what is known of a tool. fresh: a tool that is not known does not exist.
func (t *Table) input(tool string) (schema []byte, known, fresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	schema, known = t.inputSchemas[tool]
	return schema, known, time.Now().Before(t.freshUntil)
}

// ListVersion tells the list of now from later ones, for Learn.
func (t *Table) ListVersion() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.listVersion
}

// Learn takes the tools of a result of tools/list that was asked for at listVersion.
// If the list has changed since, they may be those of before, and are not taken.
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

// nameAndSchema returns the name of a tool of a list, and its input schema if that can have
// an x-mcp-header.
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

// Forget forgets all tools. It is called when the list has changed.
func (t *Table) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inputSchemas, t.freshUntil = nil, time.Time{}
	t.listVersion++
}
