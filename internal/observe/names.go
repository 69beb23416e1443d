package observe

import (
	"bytes"
	"strings"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxInternedNameLen is how long a name, in bytes, may be to be shared.
const maxInternedNameLen = 64

// internedNames are the latest names that requests have named, of tools and prompts: most requests name one of few, and need no copy
// of their own. The zero value works, and any number of goroutines may use it.
type internedNames [32]atomic.Pointer[string]

// intern returns the text of value, a JSON string; "": it is no string. Long names, and names with escapes, are not kept.
func (n *internedNames) intern(value []byte) string {
	if len(value) <= 2 || len(value) > 2+maxInternedNameLen || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		text, _ := jsonrpc.Text(value)
		return text
	}
	plain := value[1 : len(value)-1]
	at := &n[(len(plain)+3*int(plain[0])+5*int(plain[len(plain)/2])+7*int(plain[len(plain)-1]))%len(n)]
	if known := at.Load(); known != nil && *known == string(plain) {
		return *known
	}
	text, _ := jsonrpc.Text(value)
	at.Store(&text)
	return text
}

// subjectOf returns what a request is about: the name of a tool or prompt, or the URI of a resource; "": none of these.
func (o *Observer) subjectOf(m *jsonrpc.Message) (name string) {
	switch m.Method() {
	case "tools/call", "prompts/get":
		name = o.shortText(o.internedNames.intern(m.Lookup("params", "name")))
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		name = o.shortURI(m.Lookup("params", "uri"))
	}
	return name
}

// shortURI returns the beginning of a URI without secrets. The last part is left out if it is cut through: half a secret,
// or a user and password without their @, would not be found later.
func (o *Observer) shortURI(value []byte) string {
	uri, _ := jsonrpc.Text(value)
	uri = o.redact(uri)
	begin := printable.Clip(uri, maxExcerpt)
	if len(begin) < len(uri) {
		if i := strings.LastIndexAny(begin, "/?#&"); i >= 0 {
			return begin[:i+1]
		}
	}
	return begin
}
