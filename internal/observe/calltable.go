package observe

import (
	"hash/maphash"
	"iter"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// callTable has requests by exactly their ids. It is a hash table whose entries are the Calls themselves. A map would touch three times as
// much memory, which another processor has often changed meanwhile: with one, to observe a call costs a third more (BenchmarkCall of
// package metrics). The zero value is empty. The caller locks it.
type callTable struct {
	chains []*Call // the first request of each chain, by the last bits of Call.hash; the others are linked by Call.next. The length is a power of two
	count  int     // how many requests there are
}

const (
	minChains      = 8   // how many chains a callTable gets with its first request
	maxEmptyChains = 256 // how many chains a callTable keeps at most when its last request is removed; if it has more, it keeps none
)

// hashSeed is chosen anew by each process, so that nobody can send ids that share a chain.
var hashSeed = maphash.MakeSeed()

// hashOf returns the hash of an id.
func hashOf(id jsonrpc.ID) uint64 { return maphash.String(hashSeed, id.String()) }

// get returns the request with this id; nil: there is none.
func (t *callTable) get(id jsonrpc.ID) *Call {
	if t.count == 0 {
		return nil
	}
	return t.find(id, hashOf(id))
}

// find returns the request with this id, whose hash is hash; nil: there is none. The table has chains.
func (t *callTable) find(id jsonrpc.ID, hash uint64) *Call {
	for call := *t.chain(hash); call != nil; call = call.next {
		if call.hash == hash && call.ID == id {
			return call
		}
	}
	return nil
}

// chain returns where the first request of the chain stands that has the requests with this hash. The table has chains.
func (t *callTable) chain(hash uint64) **Call { return &t.chains[hash&uint64(len(t.chains)-1)] }

// add adds a request, and removes the one that had its id, which it returns; nil: there was none.
func (t *callTable) add(call *Call) (old *Call) {
	call.hash = hashOf(call.ID)
	if t.count >= len(t.chains) {
		t.grow()
	}
	if old = t.find(call.ID, call.hash); old != nil {
		t.unlink(old) // not remove, which may take the chains away that are needed next
	}
	t.link(call)
	t.count++
	return old
}

// link puts a request at the beginning of its chain.
func (t *callTable) link(call *Call) {
	chain := t.chain(call.hash)
	call.next, *chain = *chain, call
}

// grow doubles the number of chains, or makes minChains if there are none.
func (t *callTable) grow() {
	old := t.chains
	t.chains = make([]*Call, max(minChains, 2*len(old)))
	for _, call := range old {
		for call != nil {
			next := call.next
			t.link(call)
			call = next
		}
	}
}

// remove removes a request. It is false if the request is not there.
func (t *callTable) remove(call *Call) bool {
	if t.count == 0 || !t.unlink(call) {
		return false
	}
	if t.count == 0 && len(t.chains) > maxEmptyChains {
		t.chains = nil
	}
	return true
}

// unlink takes a request out of its chain, in a table that has chains. It is false if the request is not there.
func (t *callTable) unlink(call *Call) bool {
	for at := t.chain(call.hash); *at != nil; at = &(*at).next {
		if *at == call {
			*at, call.next = call.next, nil
			t.count--
			return true
		}
	}
	return false
}

// all ranges over the requests, in no order. They must not be added or removed meanwhile.
func (t *callTable) all() iter.Seq[*Call] {
	return func(yield func(*Call) bool) {
		for _, call := range t.chains {
			for ; call != nil; call = call.next {
				if !yield(call) {
					return
				}
			}
		}
	}
}
