package tokenstore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

const (
	// DefaultRequests is how many token requests a minute a credential has.
	DefaultRequests = 6
	ratePeriod      = time.Minute
	// maxRequests bounds what a caller may ask for, and so what is stored.
	maxRequests = 600
	// maxSpent is how many spent refresh tokens are remembered.
	maxSpent = 64
)

// CountRequest notes that a token request is about to be sent, and returns
// [ErrRateLimit] if it must not be: when there were limit requests (0: [DefaultRequests]) within
// the last minute, of all processes together. From then on every CountRequest fails, until
// [Locked.ForgetRequests]. It also fails if it cannot note the request; then the
// new token could probably not be stored either, so do not send.
//
// A larger limit is for tokens that live for seconds only.
//
// The wall clock counts, which may be set. A request that lies in the future counts as one of
// now: for a minute, and not until the clock is there again.
func (l *Locked) CountRequest(limit int) error {
	if err := l.read(); err != nil {
		return err
	}
	if limit <= 0 {
		limit = DefaultRequests
	}
	limit = min(limit, maxRequests)
	now := l.s.now().Round(0).UTC()
	next := l.stored
	next.Requests = withinRatePeriod(next.Requests, now)
	path := l.s.path(l.f.kind, l.f.fileName())
	switch {
	case !next.RateLimited.IsZero():
	case len(next.Requests) < limit:
		next.Requests = append(next.Requests, now)
		return l.put(next, l.entry.Generation)
	default:
		next.RateLimited = now
		if err := l.put(next, l.entry.Generation); err != nil {
			return err
		}
	}
	return &Error{Kind: ErrRateLimit, Path: path, Detail: fmt.Sprintf("since %s", next.RateLimited.Format(time.RFC3339))}
}

// withinRatePeriod returns the times that are less than a ratePeriod ago; those after now as now.
func withinRatePeriod(times []time.Time, now time.Time) []time.Time {
	var kept []time.Time
	for _, t := range times {
		if t.After(now) {
			t = now
		}
		if now.Sub(t) < ratePeriod {
			kept = append(kept, t)
		}
	}
	slices.SortFunc(kept, time.Time.Compare)
	return kept[max(0, len(kept)-maxRequests):]
}

// ForgetRequests forgets all token requests, so that CountRequest allows them again. It
// is for what a person does: signing in.
func (l *Locked) ForgetRequests() error {
	if err := l.read(); err != nil {
		return err
	}
	if l.stored.RateLimited.IsZero() && len(l.stored.Requests) == 0 {
		return nil
	}
	next := l.stored
	next.RateLimited, next.Requests = time.Time{}, nil
	return l.put(next, l.entry.Generation)
}

// MarkSpent notes that a refresh token must never be sent again. Only a hash of it is kept, and
// of the last 64 only. If it is the stored one the credential loses it, and
// has a new generation; its access token stays.
func (l *Locked) MarkSpent(refresh Secret) error {
	if err := l.read(); err != nil {
		return err
	}
	next, g := l.stored, l.entry.Generation
	next.SpentRefresh = withSpent(next.SpentRefresh, l.key, refresh)
	if c := l.entry.Credential; g != 0 && !refresh.IsZero() && c.Refresh.Equal(refresh) {
		c.Refresh = Secret{}
		b, err := pack(c, c.secrets())
		if err != nil {
			return withPath(err, l.s.path(l.f.kind, l.f.fileName()))
		}
		next.Credential, g = &b, g.next()
	}
	return l.put(next, g)
}

// IsSpent reports whether a refresh token is known as one that must not be sent.
func (l *Locked) IsSpent(refresh Secret) bool {
	return slices.Contains(l.stored.SpentRefresh, spentHash(l.key, refresh))
}

// spentHash differs from key to key, so that files do not show who has the same token.
func spentHash(key Key, refresh Secret) string {
	sum := sha256.Sum256([]byte("mcp-bridge spent refresh token 1\x00" + string(key) + "\x00" + refresh.Reveal()))
	return hex.EncodeToString(sum[:keySize])
}

func withSpent(spent []string, key Key, refresh Secret) []string {
	if refresh.IsZero() {
		return spent
	}
	spent = append(withoutSpent(spent, key, refresh), spentHash(key, refresh))
	return spent[max(0, len(spent)-maxSpent):]
}

func withoutSpent(spent []string, key Key, refresh Secret) []string {
	hash := spentHash(key, refresh)
	return slices.DeleteFunc(slices.Clone(spent), func(s string) bool { return s == hash })
}
