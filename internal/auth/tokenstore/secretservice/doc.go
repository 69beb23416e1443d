// Package secretservice keeps secrets in the keyring of a Linux desktop: the Secret Service, which is reached over the
// bus of the user's session (D-Bus). It knows what this needs of D-Bus and no more, as the libraries for it serve
// objects, know all transports and convert any type: they would make the program 340 KB larger.
//
// Its functions may be called concurrently; each has a connection of its own, which it closes. They wait 10 seconds for
// each answer, and as long as their ctx lasts for a user who is asked to unlock the keyring.
package secretservice
