//go:build linux

package secretservice

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Names and objects of the Secret Service (specifications.freedesktop.org/secret-service).
const (
	busName  = "org.freedesktop.DBus"
	busPath  = "/org/freedesktop/DBus"
	noObject = "/"

	serviceName  = "org.freedesktop.secrets"
	servicePath  = "/org/freedesktop/secrets"
	loginPath    = servicePath + "/collection/login"
	defaultAlias = servicePath + "/aliases/default"

	serviceInterface    = "org.freedesktop.Secret.Service"
	collectionInterface = "org.freedesktop.Secret.Collection"
	itemInterface       = "org.freedesktop.Secret.Item"
	promptInterface     = "org.freedesktop.Secret.Prompt"
)

// Get returns the secret of a user of a service. found is false if there is none. It ends with ctx.
func Get(ctx context.Context, service, user string) (secret string, found bool, err error) {
	b, err := dialSession(ctx)
	if err != nil {
		return "", false, err
	}
	defer b.close() // which also ends the session of the Secret Service
	collection, err := b.collection()
	if err != nil {
		return "", false, err
	}
	r, err := b.call(call{serviceName, collection, collectionInterface, "SearchItems", "a{ss}"},
		func(w *writer) { w.attributes(service, user) }, "ao")
	if err != nil {
		return "", false, err
	}
	items := r.strings()
	if r.err != nil || len(items) == 0 {
		return "", false, r.err
	}
	if err := b.unlock(items[0]); err != nil {
		return "", false, err
	}
	session, err := b.openSession()
	if err != nil {
		return "", false, err
	}
	r, err = b.call(call{serviceName, items[0], itemInterface, "GetSecret", "o"},
		func(w *writer) { w.string(session) }, "(oayays)")
	if err != nil {
		return "", false, err
	}
	r.align(8)
	_, _ = r.string(), r.bytes() // the session, and what encryption would need
	value := r.bytes()
	return string(value), r.err == nil, r.err
}

// Set stores a secret, in place of an older one. It ends with ctx.
func Set(ctx context.Context, service, user, secret string) error {
	b, err := dialSession(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	session, err := b.openSession()
	if err != nil {
		return err
	}
	collection, err := b.collection()
	if err != nil {
		return err
	}
	r, err := b.call(call{serviceName, collection, collectionInterface, "CreateItem", "a{sv}(oayays)b"}, func(w *writer) {
		w.array(8, func() {
			w.align(8)
			w.string(itemInterface + ".Label")
			w.signature("s")
			w.string(fmt.Sprintf("Password for '%s' on '%s'", user, service))
			w.align(8)
			w.string(itemInterface + ".Attributes")
			w.signature("a{ss}")
			w.attributes(service, user)
		})
		w.align(8)
		w.string(session)
		w.bytes("")
		w.bytes(secret)
		w.string("text/plain; charset=utf8")
		w.uint32(1) // true: in place of an item with these attributes
	}, "oo")
	if err != nil {
		return err
	}
	_ = r.string() // the item
	return b.prompt(r)
}

// attributes writes those by which an item is found. They are those of github.com/zalando/go-keyring.
func (w *writer) attributes(service, user string) {
	w.array(8, func() {
		for _, s := range [][2]string{{"service", service}, {"username", user}} {
			w.align(8)
			w.string(s[0])
			w.string(s[1])
		}
	})
}

// openSession returns a session in which secrets pass as they are: the bus is this machine's, and the user's.
func (b *bus) openSession() (string, error) {
	r, err := b.call(call{serviceName, servicePath, serviceInterface, "OpenSession", "sv"}, func(w *writer) {
		w.string("plain")
		w.signature("s")
		w.string("")
	}, "vo")
	if err != nil {
		return "", err
	}
	switch kind := r.signature(); kind { // of what encryption would need: GNOME's answers s, as the specification has it
	case "s":
		_ = r.string()
	case "ay": // KDE's (ksecretd)
		_ = r.bytes()
	default:
		return "", fmt.Errorf("the keyring has answered OpenSession with a value of type %q", kind)
	}
	session := r.string()
	return session, r.err
}

// collection returns the collection that the user's login unlocks, or else the default one; unlocked.
func (b *bus) collection() (string, error) {
	r, err := b.call(call{serviceName, servicePath, "org.freedesktop.DBus.Properties", "Get", "ss"}, func(w *writer) {
		w.string(serviceInterface)
		w.string("Collections")
	}, "v")
	if err != nil {
		return "", err
	}
	r.variant("ao")
	collection := defaultAlias
	if slices.Contains(r.strings(), loginPath) {
		collection = loginPath
	}
	if r.err != nil {
		return "", r.err
	}
	return collection, b.unlock(collection)
}

// unlock unlocks a collection or an item. The Secret Service may ask the user for it.
func (b *bus) unlock(object string) error {
	r, err := b.call(call{serviceName, servicePath, serviceInterface, "Unlock", "ao"}, func(w *writer) {
		w.array(4, func() { w.string(object) })
	}, "aoo")
	if err != nil {
		return err
	}
	_ = r.strings() // what was not locked
	return b.prompt(r)
}

// prompt has the Secret Service ask the user what the reply names next, if it names anything, and waits for the answer.
func (b *bus) prompt(r *reader) error {
	prompt := r.string()
	if r.err != nil || prompt == noObject {
		return r.err
	}
	rule := fmt.Sprintf("type='signal',sender='%s',path='%s',interface='%s'", serviceName, prompt, promptInterface)
	if _, err := b.call(call{busName, busPath, busName, "AddMatch", "s"}, func(w *writer) { w.string(rule) }, ""); err != nil {
		return err
	}
	if _, err := b.call(call{serviceName, prompt, promptInterface, "Prompt", "s"}, func(w *writer) { w.string("") }, ""); err != nil {
		return err
	}
	m, err := b.signal(prompt, promptInterface, "Completed")
	if err != nil {
		return err
	}
	r, err = m.read("bv")
	if err != nil {
		return err
	}
	if dismissed := r.uint32() != 0; dismissed && r.err == nil {
		return errors.New("the user has dismissed its question")
	}
	return r.err
}
