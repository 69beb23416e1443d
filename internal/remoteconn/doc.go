// Package remoteconn is what the Conns to remote servers have in common, whatever the
// transport: their life and the queue of what the server says (Base), the slots of
// goroutines (Slots), the requests in progress with what a new session has to be told
// (Ledger), and the renewal of a session (Ledger.RenewSession).
//
// Lock order: the Ledger's lock, then Base's own. Both are held for a moment only, and
// never while something is sent or delivered.
//
// Delivery order: Base.Deliver hands on one message at a time. Messages of one
// goroutine, which is one stream of the server, keep their order.
package remoteconn
