package observe

import (
	"bytes"
	"sync/atomic"
)

// maxShared is how long a name is, in bytes, that names share.
const maxShared = 64

// names are the latest names that requests have named, of tools and prompts: most requests name one of few, and need no copy
// of their own. The zero value works, and any number of goroutines may use it.
type names [32]atomic.Pointer[string]

// get returns what read makes of a string in JSON, which depends on nothing else. What is no string, a long one or one with
// escapes is not kept.
func (n *names) get(value []byte, read func(value []byte) string) string {
	if len(value) <= 2 || len(value) > 2+maxShared || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return read(value)
	}
	plain := value[1 : len(value)-1]
	at := &n[(len(plain)+3*int(plain[0])+5*int(plain[len(plain)/2])+7*int(plain[len(plain)-1]))%len(n)]
	if known := at.Load(); known != nil && *known == string(plain) {
		return *known
	}
	name := read(value)
	at.Store(&name)
	return name
}
