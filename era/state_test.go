package era

import (
	"encoding/base64"
	"testing"
	"time"
)

func newTestSealer(t testing.TB) *Sealer {
	s, err := NewSealer()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var testState = State{
	Unit: "u", ServerRun: "i", CallID: "c", Round: 3, Principal: "p\x00\"é", Method: "tools/call", Digest: "d",
	Expires: time.Unix(1700000000, 5).UTC(), Replay: true,
}

func TestSeal(t *testing.T) {
	s := newTestSealer(t)
	text := s.Seal(testState)
	if got, err := s.Open(text); err != nil || got != testState {
		t.Errorf("got %+v, %v", got, err)
	}
	if text == s.Seal(testState) {
		t.Error("the same text twice: the nonce is not random")
	}
	if _, err := newTestSealer(t).Open(text); err == nil {
		t.Error("another Sealer opens it")
	}
}

// Whatever is changed, it is no state any more (C.4.2).
func TestSealTampered(t *testing.T) {
	s := newTestSealer(t)
	raw, err := base64.RawURLEncoding.DecodeString(s.Seal(testState))
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		raw[i] ^= 1
		if _, err := s.Open(base64.RawURLEncoding.EncodeToString(raw)); err == nil {
			t.Errorf("byte %d may be changed", i)
		}
		raw[i] ^= 1
	}
	for i := range raw {
		if _, err := s.Open(base64.RawURLEncoding.EncodeToString(raw[:i])); err == nil {
			t.Errorf("%d bytes are enough", i)
		}
	}
	for _, text := range []string{s.Seal(testState) + "\n", "\r" + s.Seal(testState), "", "=", "A", string(make([]byte, 1<<20))} {
		if _, err := s.Open(text); err == nil {
			t.Errorf("%.9q is a state", text)
		}
	}
}

func FuzzOpen(f *testing.F) {
	s := newTestSealer(f)
	good := s.Seal(testState)
	f.Add(good)
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := s.Open(text); err == nil && text != good {
			t.Errorf("%q is a state", text)
		}
	})
}
