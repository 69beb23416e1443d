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
	busName      = "org.freedesktop.DBus"  // the bus name of the bus itself, and its interface
	busPath      = "/org/freedesktop/DBus" // the object of the bus itself
	noObjectPath = "/"                     // what stands for "no object", such as no prompt

	serviceName           = "org.freedesktop.secrets"         // the bus name of the keyring
	servicePath           = "/org/freedesktop/secrets"        // the object of the keyring as a whole
	loginCollectionPath   = servicePath + "/collection/login" // the collection that the user's login unlocks
	defaultCollectionPath = servicePath + "/aliases/default"  // the collection that is the default

	serviceInterface    = "org.freedesktop.Secret.Service"    // the interface of the keyring as a whole (servicePath)
	collectionInterface = "org.freedesktop.Secret.Collection" // the interface of collections
	itemInterface       = "org.freedesktop.Secret.Item"       // the interface of items, the secrets in a collection
	promptInterface     = "org.freedesktop.Secret.Prompt"     // the interface of prompts, questions to the user
)

// Get returns the secret of a user of a service in the keyring. found is false if there is none. It ends with
// ctx.
func Get(ctx context.Context, service, user string) (secret string, found bool, err error) {
	b, err := dialSessionBus(ctx)
	if err != nil {
		return "", false, err
	}
	defer b.close() // which also ends the session of the Secret Service
	collection, err := b.unlockedCollection()
	if err != nil {
		return "", false, err
	}
	r, err := b.callMethod(methodCall{serviceName, collection, collectionInterface, "SearchItems", "a{ss}"},
		func(w *dbusWriter) { w.writeAttributes(service, user) }, "ao")
	if err != nil {
		return "", false, err
	}
	items := r.readStrings()
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
	r, err = b.callMethod(methodCall{serviceName, items[0], itemInterface, "GetSecret", "o"},
		func(w *dbusWriter) { w.writeString(session) }, "(oayays)")
	if err != nil {
		return "", false, err
	}
	r.skipTo(8)
	_, _ = r.readString(), r.readBytes() // the session, and what encryption would need
	value := r.readBytes()
	return string(value), r.err == nil, r.err
}

// Set stores the secret of a user of a service in the keyring, in place of an older one. It ends with ctx.
func Set(ctx context.Context, service, user, secret string) error {
	b, err := dialSessionBus(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	session, err := b.openSession()
	if err != nil {
		return err
	}
	collection, err := b.unlockedCollection()
	if err != nil {
		return err
	}
	r, err := b.callMethod(methodCall{serviceName, collection, collectionInterface, "CreateItem", "a{sv}(oayays)b"}, func(w *dbusWriter) {
		w.writeArray(8, func() {
			w.padTo(8)
			w.writeString(itemInterface + ".Label")
			w.writeSignature("s")
			w.writeString(fmt.Sprintf("Password for '%s' on '%s'", user, service))
			w.padTo(8)
			w.writeString(itemInterface + ".Attributes")
			w.writeSignature("a{ss}")
			w.writeAttributes(service, user)
		})
		w.padTo(8)
		w.writeString(session)
		w.writeBytes("")
		w.writeBytes(secret)
		w.writeString("text/plain; charset=utf8")
		w.writeUint32(1) // true: in place of an item with these attributes
	}, "oo")
	if err != nil {
		return err
	}
	_ = r.readString() // the item
	return b.promptUser(r)
}

// writeAttributes writes the attributes by which the secret of a user of a service is found. They are those
// of github.com/zalando/go-keyring.
func (w *dbusWriter) writeAttributes(service, user string) {
	w.writeArray(8, func() {
		for _, s := range [][2]string{{"service", service}, {"username", user}} {
			w.padTo(8)
			w.writeString(s[0])
			w.writeString(s[1])
		}
	})
}

// openSession returns the path of a session of the keyring in which secrets pass unencrypted: the bus is this
// machine's, and the user's.
func (b *busConn) openSession() (string, error) {
	r, err := b.callMethod(methodCall{serviceName, servicePath, serviceInterface, "OpenSession", "sv"}, func(w *dbusWriter) {
		w.writeString("plain")
		w.writeSignature("s")
		w.writeString("")
	}, "vo")
	if err != nil {
		return "", err
	}
	switch kind := r.readSignature(); kind { // of what encryption would need: GNOME's answers s, as the specification has it
	case "s":
		_ = r.readString()
	case "ay": // KDE's (ksecretd)
		_ = r.readBytes()
	default:
		return "", fmt.Errorf("the keyring has answered OpenSession with a value of type %q", kind)
	}
	session := r.readString()
	return session, r.err
}

// unlockedCollection returns the path of the collection that the user's login unlocks, or else of the default
// one, and unlocks it.
func (b *busConn) unlockedCollection() (string, error) {
	r, err := b.callMethod(methodCall{serviceName, servicePath, "org.freedesktop.DBus.Properties", "Get", "ss"}, func(w *dbusWriter) {
		w.writeString(serviceInterface)
		w.writeString("Collections")
	}, "v")
	if err != nil {
		return "", err
	}
	r.readVariantType("ao")
	collection := defaultCollectionPath
	if slices.Contains(r.readStrings(), loginCollectionPath) {
		collection = loginCollectionPath
	}
	if r.err != nil {
		return "", r.err
	}
	return collection, b.unlock(collection)
}

// unlock unlocks a collection or an item, by its path. The keyring may ask the user for that; an error if the
// user does not want it.
func (b *busConn) unlock(object string) error {
	r, err := b.callMethod(methodCall{serviceName, servicePath, serviceInterface, "Unlock", "ao"}, func(w *dbusWriter) {
		w.writeArray(4, func() { w.writeString(object) })
	}, "aoo")
	if err != nil {
		return err
	}
	_ = r.readStrings() // what was not locked
	return b.promptUser(r)
}

// promptUser reads the path of a prompt from the reply r, has the keyring show it to the user, and waits for
// the answer; an error if the user dismisses it. It does nothing if the path is noObjectPath.
func (b *busConn) promptUser(r *dbusReader) error {
	prompt := r.readString()
	if r.err != nil || prompt == noObjectPath {
		return r.err
	}
	rule := fmt.Sprintf("type='signal',sender='%s',path='%s',interface='%s'", serviceName, prompt, promptInterface)
	if _, err := b.callMethod(methodCall{busName, busPath, busName, "AddMatch", "s"}, func(w *dbusWriter) { w.writeString(rule) }, ""); err != nil {
		return err
	}
	if _, err := b.callMethod(methodCall{serviceName, prompt, promptInterface, "Prompt", "s"}, func(w *dbusWriter) { w.writeString("") }, ""); err != nil {
		return err
	}
	m, err := b.awaitSignal(prompt, promptInterface, "Completed")
	if err != nil {
		return err
	}
	r, err = m.bodyReader("bv")
	if err != nil {
		return err
	}
	if dismissed := r.readUint32() != 0; dismissed && r.err == nil {
		return errors.New("the user has dismissed its question")
	}
	return r.err
}
