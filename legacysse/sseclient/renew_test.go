package sseclient

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
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

// LE16: a client's initialize that comes while the bridge initializes a session in its place gets a session of its own, at once.
func TestInitializeDuringRenewal(t *testing.T) {
	for name, answered := range map[string]bool{"before the answer": false, "while settings are restored": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				u := f.dial(Options{})
				s := u.initializes("2024-11-05")
				u.sends(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a"}}`)
				f.posted()
				s.say(`{"jsonrpc":"2.0","id":2,"result":{}}`)
				u.gets()
				s.end()
				time.Sleep(defaultReconnectDelay)
				s = f.stream(2)
				if answered {
					u.reinitialized(s)
				}
				f.posted()
				u.initializesAgain(3)
				<-s.over
			})
		})
	}
}

// LE16: the bridge has initialized a session in the place of a client whose initialize had failed. When that client tries again, it
// gets a session of its own.
func TestInitializeAfterRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onGET = func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(503); return true }
		u := f.dial(Options{})
		u.sends(initializeText)
		u.getsError("0", "http_status")
		f.set(func() { f.onGET = nil })
		time.Sleep(defaultReconnectDelay)
		s := f.stream(1)
		u.reinitialized(s)
		u.sends(callText)
		f.wantPost(callText)
		u.initializesAgain(2, "session_lost")
		<-s.over
	})
}

// initializesAgain sends initialize, and wants it on a session of its own: that of the nth stream. Before its answer the client gets
// errors with these reasons for the call of callText.
func (u *user) initializesAgain(n int, reasons ...string) {
	u.t.Helper()
	u.sends(initializeText)
	s := u.f.stream(n)
	for _, reason := range reasons {
		u.getsError("1", reason)
	}
	if p, path := u.f.posted(), fmt.Sprintf("/message?s=%d", n-1); p.text != initializeText || p.path != path {
		u.t.Errorf("posted %s to %s, want %s to %s", p.text, p.path, initializeText, path)
	}
	answer := `{"jsonrpc":"2.0","id":0,"result":` + string(initializeResult("2024-11-05")) + `}`
	s.say(answer)
	u.getsText(answer)
	u.sends(initializedText)
	u.f.wantPost(initializedText)
	u.sends(initializeText)
	if m := u.gets(); string(m.Lookup("error", "code")) != "-32600" {
		u.t.Errorf("a second initialize is answered with %s", m.Bytes())
	}
	u.f.wantNoPost()
	u.getsNothing()
}

// signIn is an Authorize that refuses each unattended GET, and lets all others pass.
type signIn struct{ base http.RoundTripper }

func (a signIn) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && httpdial.IsUnattended(r.Context()) {
		return nil, &httpdial.Fault{Reason: httpdial.ReasonAuthRequired, Status: 401, Text: "Sign-in needed"}
	}
	return a.base.RoundTrip(r)
}

// A request that waits for somebody to sign in, when the server is found to have another transport, is left to the Conn that takes over.
func TestUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{ReportWrongTransport: true, AuthorizeTimeout: time.Minute,
			Authorize: func(base http.RoundTripper) http.RoundTripper { return signIn{base} }})
		s := u.initializes("2024-11-05")
		signedIn := make(chan struct{})
		f.set(func() {
			f.onGET = func(w http.ResponseWriter, r *http.Request) bool { <-signedIn; w.WriteHeader(405); return true }
		})
		s.end()
		time.Sleep(defaultReconnectDelay)
		synctest.Wait() // the unattended attempt was refused
		u.sends(callText, `{"jsonrpc":"2.0","id":2,"method":"ping"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		close(signedIn)
		_, err := bridgetest.Recv(t.Context(), u)
		wrongTransport, ok := errors.AsType[*WrongTransportError](err)
		if !ok || wrongTransport.EndedSession == nil || len(wrongTransport.Unsent) != 1 || string(wrongTransport.Unsent[0].Bytes()) != callText {
			t.Errorf("Recv = %#v", err)
		}
		f.wantNoPost()
	})
}
