// Package signin makes of a user's settings a credential of a remote server (package client), and gets a person
// to sign in: in a process of its own, in a browser, or with a code on another device.
//
// No error, no log line and no other text that this package makes contains a token, a code, a verifier or a secret.
package signin
