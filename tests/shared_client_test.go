package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A slot is a client of a shared server, which knows what is its own: all its
// ids and tokens are those of everybody else.
type slot struct {
	name   string
	site   *site
	modern bool
	over   string // "mcp" or "ws"
	caps   string // modern: as spelled

	n      int // of its calls
	talker talker
	heard  map[string]int // updates, by URI
	mu     sync.Mutex     // guards heard
	more   chan struct{}  // holds one when there is something in heard that is new
	hangup context.CancelFunc
	acked  chan struct{} // closed when it is known that updates will come
	once   sync.Once
}

func newGuest(name string, s *site, modern bool, over string) *slot {
	return &slot{name: name, site: s, modern: modern, over: over, caps: `{}`, heard: map[string]int{}, more: make(chan struct{}, 1), acked: make(chan struct{})}
}

func (g *slot) uri() string { return "a:" + g.name }

// modernTalker speaks Streamable HTTP as 2026-07-28 has it.
type modernTalker struct{ *site }

func (c *modernTalker) exchange(ctx context.Context, request string, heard func(string)) (string, error) {
	resp, err := c.post(ctx, request)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		body, err := io.ReadAll(resp.Body)
		if !strings.Contains(string(body), `"jsonrpc"`) {
			return "", &refusal{resp.StatusCode, resp.Header, string(body)}
		}
		return strings.TrimSpace(string(body)), err
	}
	in := c.events(resp)
	answer, err := untilAnswer(in, heard)
	if err == nil {
		_, err = io.Copy(io.Discard, in.in) // it ends after the answer
	}
	return answer, err
}

func (c *modernTalker) post(ctx context.Context, request string) (*http.Response, error) {
	var m struct {
		Method string
		Params struct{ Name, TaskID string }
	}
	if err := json.Unmarshal([]byte(request), &m); err != nil {
		return nil, err
	}
	h := http.Header{"Mcp-Protocol-Version": {modernVersion}, "Mcp-Method": {m.Method}}
	if name := m.Params.Name + m.Params.TaskID; name != "" { // one of both
		h.Set("Mcp-Name", name)
	}
	return c.request(ctx, http.MethodPost, "/mcp", request, h)
}

func (c *modernTalker) notify(context.Context, string) error {
	return errors.New("there is nothing to notify")
}
func (c *modernTalker) close() {}

// open greets the bridge where that is due, and asks to hear of its resource.
func (g *slot) open(ctx context.Context) error {
	var err error
	life, cancel := context.WithCancel(context.Background())
	g.hangup = cancel
	switch {
	case g.modern && g.over == "mcp":
		c := &modernTalker{g.site}
		g.talker = c
		var resp *http.Response
		if resp, err = c.post(life, g.listenRequest()); err == nil {
			go g.listen(c.events(resp))
			select {
			case <-g.acked:
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
	case g.modern:
		var c *wsTalker
		if c, err = g.site.openWS(ctx); err == nil {
			g.talker = c
			err = g.notice(ctx, g.listenRequest(), func() bool { return g.isAcked() })
		}
	default:
		if g.talker, err = g.site.open(ctx, g.over); err == nil && g.over == "ws" {
			_, err = g.talker.exchange(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":"sub","method":"resources/subscribe","params":{"uri":%q}}`, g.uri()), nil)
			g.once.Do(func() { close(g.acked) })
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", g.name, err)
	}
	return nil
}

func (g *slot) isAcked() bool {
	select {
	case <-g.acked:
		return true
	default:
		return false
	}
}

// listens reports whether the client hears of its resource.
func (g *slot) listens() bool { return g.modern || g.over == "ws" }

func (g *slot) meta(token string) string {
	var out []string
	if token != "" {
		out = append(out, `"progressToken":`+token)
	}
	if g.modern {
		out = append(out, fmt.Sprintf(`%q:%q,%q:%s`, metaVersion, modernVersion, metaCaps, g.caps))
	}
	return `"_meta":{` + strings.Join(out, ",") + `}`
}

func (g *slot) listenRequest() string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"listen","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[%q]},%s}}`, g.uri(), g.meta(""))
}

// listen takes what comes on a stream of its own.
func (g *slot) listen(in *stream) {
	defer in.body.Close()
	for {
		e, err := in.next()
		if err != nil {
			return
		}
		if e.data != "" {
			g.update(e.data)
		}
	}
}

// notice reads what comes on the one channel until ok.
func (g *slot) notice(ctx context.Context, say string, ok func() bool) error {
	c := g.talker.(*wsTalker)
	if say != "" {
		if err := c.notify(ctx, say); err != nil {
			return err
		}
	}
	for !ok() {
		_, data, err := c.conn.Read(ctx)
		if err != nil {
			return err
		}
		if !g.update(string(data)) {
			return fmt.Errorf("%s heard %.300s", g.name, data)
		}
	}
	return nil
}

// update takes what is about the subscription, and nothing else. What is
// somebody else's is no update.
func (g *slot) update(text string) bool {
	var m struct {
		Method string
		Params struct {
			URI  string
			Meta map[string]json.RawMessage `json:"_meta"`
		}
	}
	if json.Unmarshal([]byte(text), &m) != nil || g.modern && string(m.Params.Meta[metaSubscription]) != `"listen"` {
		return false
	}
	switch m.Method {
	case "notifications/subscriptions/acknowledged":
		g.once.Do(func() { close(g.acked) })
		return true
	case "notifications/resources/updated":
		if m.Params.URI != g.uri() {
			return false
		}
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		return !g.modern // it has not asked for them
	default:
		return false
	}
	g.mu.Lock()
	g.heard[m.Params.URI]++
	g.mu.Unlock()
	select {
	case g.more <- struct{}{}:
	default:
	}
	return true
}

func (g *slot) updates() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.heard[g.uri()]
}

// call makes one call and checks everything that comes. In id and token it is
// every other client's call.
func (g *slot) call(ctx context.Context, do string) (answer string, err error) {
	g.n++
	id, token := fmt.Sprint(g.n%10), fmt.Sprint(g.n%3)
	request := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"t","arguments":{"who":%q,"n":%d,"do":%q},%s}}`, id, g.name, g.n, do, g.meta(token))
	progress := 0
	var wrong error
	answer, err = g.talker.exchange(ctx, request, func(text string) {
		if g.update(text) {
			return
		}
		want := fmt.Sprintf(`"progressToken":%s,"progress":%d,"message":"%s/%d/%d`, token, progress+1, g.name, g.n, progress)
		progress++
		if !strings.Contains(text, want) || strings.Contains(text, metaSubscription) {
			wrong = errors.Join(wrong, fmt.Errorf("it heard %.300s, want %s", text, want))
		}
	})
	switch err = errors.Join(err, wrong); {
	case err != nil:
	case !strings.Contains(answer, `"id":`+id+`,`):
		err = fmt.Errorf("the answer to %s is %.300s", id, answer)
	case do == "progress" && progress != 3 || do != "progress" && do != "flood" && progress != 0:
		err = fmt.Errorf("%d notifications came for a call that is to %s", progress, do)
	case (do == "echo" || do == "progress" || do == "fail") && !strings.Contains(answer, fmt.Sprintf(`"who":%q,"n":%d`, g.name, g.n)):
		err = fmt.Errorf("what came is somebody else's: %.300s", answer)
	}
	if err != nil {
		err = fmt.Errorf("%s, call %d (%s): %w", g.name, g.n, do, err)
	}
	return answer, err
}

// abandon makes a call that hangs, and cancels it when the server has it.
func (g *slot) abandon(ctx context.Context, b *brain) error {
	if !g.modern && g.over == "mcp" { // its talker waits for the answer
		_, err := g.call(ctx, "echo")
		return err
	}
	g.n++
	request := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":{"who":%q,"n":%d,"do":"hang"},%s}}`, g.n%10, g.name, g.n, g.meta("0"))
	key := errand{Who: g.name, N: g.n}.key()
	if c, ok := g.talker.(*modernTalker); ok {
		call, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := c.post(call, request); err == nil {
				resp.Body.Close()
			}
		}()
		err := b.hears(ctx, key, b.calls)
		cancel()
		<-done
		return errors.Join(err, b.hears(ctx, key, b.stopped))
	}
	c := g.talker.(*wsTalker)
	if err := c.notify(ctx, request); err != nil {
		return err
	}
	if err := b.hears(ctx, key, b.calls); err != nil {
		return err
	}
	if err := c.notify(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, g.n%10)); err != nil {
		return err
	}
	return b.hears(ctx, key, b.stopped)
}

// hears waits until a call is in a book.
func (b *brain) hears(ctx context.Context, key string, book map[string]int) error {
	for {
		b.mu.Lock()
		n, changed := book[key], b.changed
		b.mu.Unlock()
		if n > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the server does not hear of %s: %w", key, ctx.Err())
		}
	}
}

// caughtUp waits until the client has heard of its resource n times.
func (g *slot) caughtUp(ctx context.Context, n int) error {
	enough := func() bool { return g.updates() >= n }
	if g.over == "ws" {
		if err := g.notice(ctx, "", enough); err != nil {
			return fmt.Errorf("%s: %d updates of %d: %w", g.name, g.updates(), n, err)
		}
		return nil
	}
	for !enough() {
		select {
		case <-g.more:
		case <-ctx.Done():
			return fmt.Errorf("%s: %d updates of %d", g.name, g.updates(), n)
		}
	}
	return nil
}

func (g *slot) close() {
	g.hangup()
	if g.talker != nil {
		g.talker.close()
	}
}

// within bounds what a client does.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// drain reads what a connection still has, until its end.
func drain(r io.Reader) error {
	_, err := io.Copy(io.Discard, bufio.NewReader(r))
	return err
}
