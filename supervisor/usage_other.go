//go:build !linux

package supervisor

// UsageOf returns false: this system does not tell what processes use.
func UsageOf(...int) (u Usage, ok bool) { return u, false }
