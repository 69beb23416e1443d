package era

import "testing"

// A6: an id of a task is worth nothing to another principal, at another server, or
// with another secret; for its own principal it stays the same.
func TestTaskIDs(t *testing.T) {
	secret := []byte("0123456789abcdef")
	ids := NewTaskIDs("s", secret)
	for _, id := range []string{"", "1", "a.b.", "é\n"} {
		text := ids.Bind("ann", id)
		if again := NewTaskIDs("s", secret).Bind("ann", id); again != text {
			t.Errorf("%q is %q and then %q", id, text, again)
		}
		if got, ok := ids.Unbind("ann", text); !ok || got != id {
			t.Errorf("%q came back as %q, %v", id, got, ok)
		}
		for who, no := range map[string]func() (string, bool){
			"bob":            func() (string, bool) { return ids.Unbind("bob", text) },
			"a name cut off": func() (string, bool) { return ids.Unbind("an", text[:23]+"n"+id) },
			"another server": func() (string, bool) { return NewTaskIDs("t", secret).Unbind("ann", text) },
			"another secret": func() (string, bool) { return NewTaskIDs("s", secret[1:]).Unbind("ann", text) },
			"no secret":      func() (string, bool) { return NewTaskIDs("s", nil).Unbind("ann", text) },
			"another id":     func() (string, bool) { return ids.Unbind("ann", text+"x") },
			"the id itself":  func() (string, bool) { return ids.Unbind("ann", id) },
		} {
			if _, ok := no(); ok {
				t.Errorf("%q is good for %s", text, who)
			}
		}
	}
}
