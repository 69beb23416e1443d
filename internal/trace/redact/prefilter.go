package redact

import "encoding/binary"

// windowSize is how many bytes a prefilter hashes at once: a window.
const windowSize = 4

// prefilter finds out quickly, however many secrets there are, that none stands in a text. Of each secret it takes the
// beginning, as long as the shortest secret is, and keeps the set of all windows in these beginnings. Of a text it
// looks at every step-th window only: one of them lies in the beginning of each secret there. A nil prefilter has no secrets.
type prefilter struct {
	bits [1 << 10]uint64 // one bit for each hash of a window
	step int             // how many windows each beginning has; also how far apart the windows are that are looked at in a text
}

// newPrefilter returns the prefilter of secrets, each of at least windowSize bytes; nil: there are no secrets.
func newPrefilter(secrets [][]byte) *prefilter {
	if len(secrets) == 0 {
		return nil
	}
	shortest := len(secrets[0])
	for _, v := range secrets {
		shortest = min(shortest, len(v))
	}
	s := &prefilter{step: shortest - windowSize + 1}
	for _, v := range secrets {
		for i := range s.step {
			h := s.hashWindow(v[i:])
			s.bits[h>>6] |= 1 << (h & 63)
		}
	}
	return s
}

// hashFactor is what hashWindow multiplies a window with: an odd number that spreads the product.
const hashFactor = 0x9E3779B1

// hashWindow returns the hash, of 16 bits, of the window at the beginning of text.
func (s *prefilter) hashWindow(text []byte) uint32 {
	return binary.LittleEndian.Uint32(text) * hashFactor >> 16
}

// mayBeIn reports whether one of the secrets may stand in text. It is false only if that is sure.
func (s *prefilter) mayBeIn(text []byte) bool {
	if s == nil {
		return false
	}
	for i := 0; i+windowSize <= len(text); i += s.step {
		if h := s.hashWindow(text[i:]); s.bits[h>>6]&(1<<(h&63)) != 0 {
			return true
		}
	}
	return false
}

// mayBeInName reports whether one of the secrets may stand in a short text, as mayBeIn does for bytes.
func (s *prefilter) mayBeInName(name string) bool {
	if s == nil {
		return false
	}
	for i := 0; i+windowSize <= len(name); i += s.step {
		w := uint32(name[i]) | uint32(name[i+1])<<8 | uint32(name[i+2])<<16 | uint32(name[i+3])<<24
		if h := w * hashFactor >> 16; s.bits[h>>6]&(1<<(h&63)) != 0 {
			return true
		}
	}
	return false
}
