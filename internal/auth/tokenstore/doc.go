// Package tokenstore keeps the credentials of remote servers in files that all
// processes of a user share. It knows no HTTP and no MCP, and has no goroutine
// of its own (but see [Open] about the keyring).
//
// In the folder are:
//
//	v1/cred/KEY.json       a credential: tokens, what they are for, recent token requests
//	v1/cred/KEY.lock       kernel lock for refresh and every write
//	v1/cred/KEY.login      kernel lock of the sign-in under way
//	v1/cred/KEY.login.json what others may know of that sign-in
//	v1/client/ISSUER.json  the registrations at one issuer
//	v1/client/ISSUER.lock  kernel lock for them
//	v1/meta/KEY.json       metadata of the server and its issuer
//	v1/meta/KEY.lock       kernel lock for it
//	v1/seal.lock           kernel lock for the key in the keyring
//
// Folders have mode 0700, files 0600. Lock files are empty and are never
// deleted: two processes with different files of one name would both have the
// lock. The content of a sign-in is not in the file that is locked, because a
// locked file cannot be read on Windows.
//
// # What is checked
//
// On Unix a folder or file is refused with [ErrUnsafe] if it belongs to another
// user, if its mode gives others any right, or if it is a symbolic link. That
// goes for the store's own folders, not for those above them. On Windows links
// are refused; owner and permissions are not checked: the default folder is in
// the user's profile, which others but administrators cannot read.
//
// # How files change
//
// A file is never changed in place. Its successor is written beside it, brought
// to the disk, and renamed over it, under the kernel lock; so a reader, which
// needs no lock, gets the old content or the new one. The kernel releases a
// lock when its holder dies. Where the file system has no locks the store
// refuses to work ([ErrNoLocks]).
//
// A file that cannot be understood is renamed to NAME.broken-TIME, kept, and
// reported once with [ErrBroken]. A file of a later format is left alone and
// reported with [ErrNewer]. Fields that this version does not know are lost
// with the next write; so a field that matters comes with a later format.
//
// # Secrets
//
// A token, key or client secret is a [Secret], whose text no formatting, logging
// or encoding shows. No error of this package has one in its text.
package tokenstore
