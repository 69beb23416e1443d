package redact

import "encoding/binary"

// windowSize is how many bytes of a secret a prefilter looks at: a window.
const windowSize = 4

// prefilter finds out quickly, and whatever their number, that no secret stands in a text. It is a set of
// all the windows in the beginnings of the secrets, as long as the shortest of them is. Of a text it
// needs to look at every step-th window only: one of them lies in each such beginning.
type prefilter struct {
	bits [1 << 10]uint64
	step int
}

// newPrefilter returns the prefilter of secrets, of which each has at least windowSize bytes; nil: there are none.
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

const hashFactor = 0x9E3779B1 // of the hash; it is odd and spreads its product

func (s *prefilter) hashWindow(text []byte) uint32 {
	return binary.LittleEndian.Uint32(text) * hashFactor >> 16
}

// mayBeIn reports whether a secret may stand in text.
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

// mayBeInName is mayBeIn for a short text.
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
