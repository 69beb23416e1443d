package observe

import (
	"bytes"
	"sync/atomic"

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
