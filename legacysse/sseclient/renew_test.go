package sseclient

import (
	"testing"
	"testing/synctest"
	"time"
)

// SS7, ST9: who asks for it is told, once the session was renewed, that what it
// listens for may have changed.
func TestTellRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{NotifyAfterRenewal: true})
		s := u.initializes("2024-11-05")
		u.sends(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a"}}`)
		f.posted()
		s.say(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		u.gets()
		s.end()
		time.Sleep(defaultReconnectDelay)
		s = f.stream(2)
		u.reinitialized(s)
		p := f.posted()
		u.getsNothing()
		s.say(`{"jsonrpc":"2.0","id":` + new(msg(p.text)).ID().String() + `,"result":{}}`)
		u.getsText(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a"}}`)
		u.getsNothing()
	})
}
