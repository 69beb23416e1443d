package tokenstore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

const (
	// DefaultRequestsPerMinute is how many token requests a minute are allowed for a credential.
	DefaultRequestsPerMinute = 6
	// ratePeriod is the time within which the limit of token requests counts.
	ratePeriod = time.Minute
	// maxRequestsPerMinute is the largest limit that CountTokenRequest takes, and so how many times are stored.
	maxRequestsPerMinute = 600
	// maxSpentHashes is how many spent refresh tokens are remembered for each credential.
	maxSpentHashes = 64
)

// CountTokenRequest notes that a token request is about to be sent. [ErrRateLimit]: it must not be sent, because there were limit
// requests (0 or less: [DefaultRequestsPerMinute]; more than 600 count as 600) within the last minute, of all processes together.
// From then on every CountTokenRequest fails, until [LockedCredential.ForgetTokenRequests]. If the request cannot be noted, that
// is an error too: the new token could probably not be stored either, so do not send.
//
// A larger limit is for tokens that live for seconds only.
//
// The wall clock counts, which may be set. A request that lies in the future counts as one of now: for a
// minute, and not until the clock is there again.
func (l *LockedCredential) CountTokenRequest(limit int) error {
	if err := l.readContent(); err != nil {
		return err
	}
	if limit <= 0 {
		limit = DefaultRequestsPerMinute
	}
	limit = min(limit, maxRequestsPerMinute)
	now := l.store.now().Round(0).UTC()
	next := l.content
	next.RequestTimes = timesWithinRatePeriod(next.RequestTimes, now)
	path := l.store.filePath(l.file.folder, l.file.fileName())
	switch {
	case !next.RateLimitedAt.IsZero():
	case len(next.RequestTimes) < limit:
		next.RequestTimes = append(next.RequestTimes, now)
		return l.writeContent(next, l.entry.Generation)
	default:
		next.RateLimitedAt = now
		if err := l.writeContent(next, l.entry.Generation); err != nil {
			return err
		}
	}
	return &Error{Kind: ErrRateLimit, Path: path, Detail: fmt.Sprintf("since %s", next.RateLimitedAt.Format(time.RFC3339))}
}

// timesWithinRatePeriod returns the times less than a ratePeriod before now, in order, at most
// maxRequestsPerMinute of them. Times after now become now.
func timesWithinRatePeriod(times []time.Time, now time.Time) []time.Time {
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
	return kept[max(0, len(kept)-maxRequestsPerMinute):]
}

// ForgetTokenRequests forgets all token requests, so that CountTokenRequest allows them again. It is called
// when a person has signed in.
func (l *LockedCredential) ForgetTokenRequests() error {
	if err := l.readContent(); err != nil {
		return err
	}
	if l.content.RateLimitedAt.IsZero() && len(l.content.RequestTimes) == 0 {
		return nil
	}
	next := l.content
	next.RateLimitedAt, next.RequestTimes = time.Time{}, nil
	return l.writeContent(next, l.entry.Generation)
}

// MarkRefreshTokenSpent notes that a refresh token must never be sent again. Only a hash of it is kept, and
// of the last 64 only. If it is the stored one the credential loses it, and
// has a new generation; its access token stays.
func (l *LockedCredential) MarkRefreshTokenSpent(refresh Secret) error {
	if err := l.readContent(); err != nil {
		return err
	}
	next, g := l.content, l.entry.Generation
	next.SpentRefreshHashes = addSpentHash(next.SpentRefreshHashes, l.key, refresh)
	if c := l.entry.Credential; g != 0 && !refresh.IsZero() && c.RefreshToken.Equal(refresh) {
		c.RefreshToken = Secret{}
		b, err := pack(c, c.secretsByName())
		if err != nil {
			return withPath(err, l.store.filePath(l.file.folder, l.file.fileName()))
		}
		next.Credential, g = &b, g.next()
	}
	return l.writeContent(next, g)
}

// IsRefreshTokenSpent reports whether a refresh token was marked as spent (MarkRefreshTokenSpent, or Save
// with another one), and must not be sent.
func (l *LockedCredential) IsRefreshTokenSpent(refresh Secret) bool {
	return slices.Contains(l.content.SpentRefreshHashes, spentHash(l.key, refresh))
}

// spentHash returns the hash by which a spent refresh token is remembered. It differs from key to key, so
// that files do not show who has the same token.
func spentHash(key Key, refresh Secret) string {
	sum := sha256.Sum256([]byte("mcp-bridge spent refresh token 1\x00" + string(key) + "\x00" + refresh.Reveal()))
	return hex.EncodeToString(sum[:keyBytes])
}

// addSpentHash returns spent with the hash of a refresh token at its end, the last maxSpentHashes of them;
// spent itself if the token is empty.
func addSpentHash(spent []string, key Key, refresh Secret) []string {
	if refresh.IsZero() {
		return spent
	}
	spent = append(removeSpentHash(spent, key, refresh), spentHash(key, refresh))
	return spent[max(0, len(spent)-maxSpentHashes):]
}

// removeSpentHash returns spent without the hash of a refresh token.
func removeSpentHash(spent []string, key Key, refresh Secret) []string {
	hash := spentHash(key, refresh)
	return slices.DeleteFunc(slices.Clone(spent), func(s string) bool { return s == hash })
}
