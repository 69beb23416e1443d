package streamhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

const (
	r26     = "2026-07-28"
	keyV    = `"io.modelcontextprotocol/protocolVersion"`
	keyCaps = `"io.modelcontextprotocol/clientCapabilities"`
	meta26  = `"_meta":{` + keyV + `:"` + r26 + `",` + keyCaps + `:{}}`
)

// modernSite is a Handler for both eras, with a server for each modern request.
type modernSite struct {
	*site
	calls chan *served
}

// served is the server of one modern request, played by the test.
type served struct{ *server }

func newModern(t *testing.T, opts streamhttp.HandlerOptions) (*modernSite, *user) {
	t.Helper()
	return newModernOver(t, nil, opts)
}

func newModernOver(t *testing.T, protocols *http.Protocols, opts streamhttp.HandlerOptions) (*modernSite, *user) {
	t.Helper()
	calls := make(chan *served, 2000)
	opts.Modern = bridge.HandlerFunc(func(ctx context.Context, conn bridge.Conn) error {
		p := &served{&server{Conn: conn, t: t, ctx: ctx, quit: make(chan error, 1), left: make(chan struct{})}}
		defer close(p.left)
		calls <- p
		return <-p.quit
	})
	s := &modernSite{calls: calls}
	if protocols == nil {
		s.site = newSite(t, opts)
	} else {
		s.site = newSiteOver(t, protocols, opts)
	}
	t.Cleanup(func() { // before the site is closed
		for {
			select {
			case p := <-calls:
				p.quits(nil)
			default:
				return
			}
		}
	})
	return s, &user{site: s.site}
}

// server returns that of the next request; there must be one by now.
func (s *modernSite) server() *served {
	s.t.Helper()
	synctest.Wait()
	select {
	case p := <-s.calls:
		s.t.Cleanup(func() { p.quits(nil) })
		return p
	default:
		s.t.Fatal("the request has not reached a server")
		return nil
	}
}

// unserved wants no request to have reached a server.
func (s *modernSite) unserved() {
	s.t.Helper()
	synctest.Wait()
	select {
	case p := <-s.calls:
		p.quits(nil)
		s.t.Error("the request has reached a server")
	default:
	}
}

// quits lets ServeConn return, once.
func (p *served) quits(err error) {
	select {
	case p.quit <- err:
	default:
	}
}

// answers sends the response and lets ServeConn return.
func (p *served) answers(text string) {
	p.t.Helper()
	p.says(text)
	p.quits(nil)
}

// request26 is a modern request. params are members without braces; "": none but _meta.
func request26(id, method, params string) string {
	if params != "" {
		params += ","
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + meta26 + `}}`
}

// ask26 posts a modern request with the headers that go with it, but for those
// that are given.
func (u *user) ask26(id, method, params string, headers ...string) *reply {
	u.t.Helper()
	return u.post(request26(id, method, params), with26(method, params, headers)...)
}

func with26(method, params string, headers []string) []string {
	all := []string{"Mcp-Protocol-Version: " + r26, "Mcp-Method: " + method}
	for _, key := range []string{`"name":"`, `"uri":"`, `"taskId":"`} {
		if _, rest, ok := strings.Cut(params, key); ok {
			name, _, _ := strings.Cut(rest, `"`)
			all = append(all, "Mcp-Name: "+name)
		}
	}
	for _, h := range headers {
		name, _, _ := strings.Cut(h, ":")
		kept := all[:0]
		for _, o := range all {
			if !strings.HasPrefix(o, name+":") {
				kept = append(kept, o)
			}
		}
		all = append(kept, h)
	}
	return all
}

// cancelled wants the client to have gone for the server: it gets one
// cancellation with this id, and nothing can be sent.
func (p *served) cancelled(id string) {
	p.t.Helper()
	synctest.Wait()
	if p.ctx.Err() == nil || context.Cause(p.ctx) == bridge.ErrClosing {
		p.t.Errorf("the context is done because of %v", context.Cause(p.ctx))
	}
	p.getsText(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	p.ended()
	if err := p.Send(context.Background(), message(result(id))); err == nil {
		p.t.Error("an answer was sent to a client that has gone")
	}
}

// hungUp is cancelled, of a client that has hung up: nobody looks at once.
func (p *served) hungUp(id string) {
	p.t.Helper()
	time.Sleep(21 * time.Millisecond)
	p.cancelled(id)
}

// ended wants Receive to say that nothing more comes.
func (p *served) ended() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	if m, err := bridgetest.Recv(ctx, p); err != io.EOF {
		p.t.Errorf("Recv = %s, %v; want io.EOF", m.Bytes(), err)
	}
}

// waits wants Receive to wait.
func (p *served) waits() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	if m, err := bridgetest.Recv(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
		p.t.Errorf("Recv = %s, %v; want it to wait", m.Bytes(), err)
	}
}

// isModern wants nothing on the reply that 2026-07-28 does not have (MI2, MI14).
func (r *reply) isModern() *reply {
	r.t.Helper()
	r.isPlain()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.HasID || e.Retry != 0 || e.Name != "" {
			r.t.Errorf("an event has fields that it must not have: %+v", e)
		}
	}
	return r
}

func failure(id string, code int, data string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"m"%s}}`, id, code, data)
}

func note26(text string) string {
	return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + text + `"}}`
}
