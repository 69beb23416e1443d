package bridgetest

import (
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc/burst"
)

// testBurst: messages of a Burst that ends now and then, and others between them, arrive in order.
func testBurst(t *testing.T, p *pair) {
	var b burst.Burst
	var wg sync.WaitGroup
	wg.Go(func() {
		defer b.End()
		for i := range orderMessages {
			m := notification("burst", i, i%300)
			if i%7 == 0 {
				b.Begin()
			}
			if i%10 != 0 && p.self.TrySend(m.WithBurst(&b)) {
				continue
			}
			if i%20 != 0 { // else what is kept back goes ahead of m all the same
				b.End()
			}
			if !send(t, p.self, m) {
				return
			}
		}
	})
	for i := 0; i < orderMessages && wantNext(t, p.peer, notification("burst", i, i%300)); i++ {
	}
	wg.Wait()
}
