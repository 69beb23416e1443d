// Package wrap puts the bridge into the configuration of a desktop client, between the client
// and one of its servers, and takes it out again.
//
// A client's file is edited as text. The server's command becomes the bridge, and its args
// get the bridge's own in front; every other byte stays: comments, white space, trailing commas.
// The edit says by itself what was there, so that taking it out gives the old bytes, whatever the
// client has changed elsewhere meanwhile.
package wrap
