package authtest

import (
	"slices"
	"sync"
)

// secrets has what Secrets returns.
var secrets struct {
	mu  sync.Mutex      // guards all
	all map[string]bool // each secret
}

// Secrets returns the secrets that the servers of this package have issued or were given in this process so far:
// tokens, codes, verifiers, secrets and assertions. Nobody but the store of credentials may keep them.
func Secrets() []string {
	secrets.mu.Lock()
	defer secrets.mu.Unlock()
	all := make([]string, 0, len(secrets.all))
	for s := range secrets.all {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

// recordSecrets adds values to what Secrets returns, but for empty ones, and returns the first one.
func recordSecrets(values ...string) string {
	secrets.mu.Lock()
	defer secrets.mu.Unlock()
	if secrets.all == nil {
		secrets.all = map[string]bool{}
	}
	for _, v := range values {
		if v != "" {
			secrets.all[v] = true
		}
	}
	return values[0]
}
