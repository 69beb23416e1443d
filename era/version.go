package era

import "slices"

// Revisions of the protocol. They are dates and compare as strings.
const (
	Version2024_11_05 = "2024-11-05" // revision 2024-11-05 of the protocol, a legacy one
	Version2025_03_26 = "2025-03-26" // revision 2025-03-26 of the protocol, a legacy one
	Version2025_06_18 = "2025-06-18" // revision 2025-06-18 of the protocol, a legacy one
	Version2025_11_25 = "2025-11-25" // revision 2025-11-25 of the protocol, a legacy one
	Version2026_07_28 = "2026-07-28" // revision 2026-07-28 of the protocol, a modern one

	NewestLegacy = Version2025_11_25 // the newest version in an answer to initialize (ED6)
	NewestModern = Version2026_07_28 // the newest version without sessions that the bridge speaks
)

var (
	legacyVersions = []string{Version2025_11_25, Version2025_06_18, Version2025_03_26, Version2024_11_05} // the legacy revisions that the bridge knows, the newest first
	modernVersions = []string{Version2026_07_28}                                                          // the modern revisions that the bridge knows, the newest first
)

// IsLegacy reports whether v is a legacy revision that the bridge knows.
func IsLegacy(v string) bool { return slices.Contains(legacyVersions, v) }

// IsModern reports whether v is a modern revision that the bridge knows.
func IsModern(v string) bool { return slices.Contains(modernVersions, v) }

// IsStateless reports whether v is 2026-07-28 or a later date, also one that the
// bridge does not know. It is false if v is not written as a date.
func IsStateless(v string) bool {
	const date = "0000-00-00"
	for i := range len(date) {
		if len(v) != len(date) || (v[i] == '-') != (date[i] == '-') || date[i] == '0' && (v[i] < '0' || v[i] > '9') {
			return false
		}
	}
	return v >= Version2026_07_28
}

// Eras is which eras a server or an endpoint speaks. The zero value is both.
type Eras int

// The values of Eras. --protocol and --client-protocol use the words in quotes.
const (
	Auto       Eras = iota // both eras are spoken: "auto"
	OnlyLegacy             // only revisions up to 2025-11-25 are spoken: "legacy"
	OnlyModern             // only 2026-07-28 is spoken: "modern"
)

// ParseEras reads "auto", "legacy" or "modern"; false: the text is none of these.
func ParseEras(s string) (Eras, bool) {
	i := slices.Index(erasNames, s)
	return Eras(max(i, 0)), i >= 0
}

// erasNames are the texts of the Eras, by their value.
var erasNames = []string{"auto", "legacy", "modern"}

// String returns the text that ParseEras reads for e: "auto", "legacy" or "modern".
func (e Eras) String() string { return erasNames[e] }

// Versions returns the revisions of these eras, the newest first.
func (e Eras) Versions() []string {
	switch e {
	case OnlyLegacy:
		return slices.Clone(legacyVersions)
	case OnlyModern:
		return slices.Clone(modernVersions)
	}
	return append(slices.Clone(modernVersions), legacyVersions...)
}
