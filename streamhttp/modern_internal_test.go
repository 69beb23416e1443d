package streamhttp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/toolheader"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// A Mcp-Name header is accepted if it means the name, and never otherwise;
// what toolheader.EncodeValue makes of a name always is (MI5, MI6).
func FuzzServerModernName(f *testing.F) {
	for _, s := range []string{"", "t", " t ", "é", "=?base64?SGVsbG8=?=", "=?base64?SGVsbG8?=", "=?BASE64?SGVsbG8=?=", "a\tb", "\"\\", "Hello", "=?base64?=", "=?base64??=", "\u007f"} {
		f.Add(s, s)
		f.Add("Hello", s)
	}
	h := NewHandler(nil, HandlerOptions{Modern: atOnce})
	f.Cleanup(func() { h.Close() })
	f.Fuzz(func(t *testing.T, name, header string) {
		if !utf8.ValidString(name) {
			t.Skip()
		}
		raw, _ := json.Marshal(name)
		accepts := func(value string) bool {
			no := h.checkHeaders(http.Header{wire.HeaderMCPMethod: {"tools/call"}, wire.HeaderMCPName: {value}}, "tools/call", &requestFacts{name: raw})
			return no == nil
		}
		if got, want := accepts(header), meansName(header, name); got != want {
			t.Errorf("header %q, name %q: accepted %v, want %v", header, name, got, want)
		}
		if encoded := toolheader.EncodeValue(name); !accepts(encoded) {
			t.Errorf("%q is not accepted for %q", encoded, name)
		}
	})
}

// meansName is MI6, said another way.
func meansName(header, name string) bool {
	header = strings.Trim(header, " \t")
	if strings.ContainsFunc(header, func(r rune) bool { return r != '\t' && (r < 0x20 || r > 0x7e) }) {
		return false
	}
	const start, end = "=?base64?", "?="
	if strings.HasPrefix(header, start) && strings.HasSuffix(header, end) && len(header) >= len(start)+len(end) {
		text := header[len(start) : len(header)-len(end)]
		got, err := base64.StdEncoding.DecodeString(text)
		return err == nil && string(got) == name && base64.StdEncoding.EncodeToString(got) == text
	}
	return header == name
}

// Whatever is posted, the reply is one, an error carries the id that could be
// read (J4), and what is served as modern has headers that say the same as its
// body, as another reader of JSON sees it (MI5, MI8).
func FuzzServerModernPOST(f *testing.F) {
	const m = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` + m + `}}`,
		`{"jsonrpc":"2.0","id":"a","method":"resources/read","params":{` + m + `,"uri":"t"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","name":"u",` + m + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n\u0061me":"\u0074",` + m + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `[]`, `{`, ``,
	} {
		for _, version := range []string{"2026-07-28", "2025-11-25", "", "x"} {
			f.Add(body, version, "tools/call", "t")
		}
	}
	h := NewHandler(nil, HandlerOptions{Modern: atOnce})
	f.Cleanup(func() { h.Close() })
	f.Fuzz(func(t *testing.T, body, version, method, name string) {
		if strings.Contains(body, "initialize") {
			t.Skip() // there is no legacy server
		}
		r := httptest.NewRequest("POST", "http://127.0.0.1/mcp", strings.NewReader(body))
		r.Header = http.Header{"Content-Type": {wire.TypeJSON}}
		for key, value := range map[string]string{wire.HeaderVersion: version, wire.HeaderMCPMethod: method, wire.HeaderMCPName: name} {
			if value != "" {
				r.Header[key] = []string{value}
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !slices.Contains([]int{200, 202, 400, 404}, w.Code) {
			t.Fatalf("status %d", w.Code)
		}
		if w.Code == 202 {
			return
		}
		reply, err := jsonrpc.Parse(bytes.Clone(w.Body.Bytes()))
		if err != nil || reply.IsError() != (w.Code != 200) {
			t.Fatalf("status %d with %q", w.Code, w.Body)
		}
		if asked, err := jsonrpc.Parse([]byte(body)); err == nil && asked.Kind() == jsonrpc.Request && asked.ID() != reply.ID() {
			t.Errorf("the reply has the id %s, want %s (J4)", reply.ID(), asked.ID())
		}
		if w.Code != 200 {
			return
		}
		var said struct {
			Method string
			Params struct {
				Name, URI, TaskID any
				Meta              map[string]any `json:"_meta"`
			}
		}
		if err := json.Unmarshal([]byte(body), &said); err != nil {
			t.Fatalf("served, but no JSON: %v", err)
		}
		if said.Params.Meta["io.modelcontextprotocol/protocolVersion"] != trimHeaderSpace(version) || trimHeaderSpace(version) != "2026-07-28" || said.Method != trimHeaderSpace(method) {
			t.Errorf("served: %s with version %q, method %q", body, version, method)
		}
	})
}

// deadlines is a ResponseWriter that knows its write deadline.
type deadlines struct {
	nowhere
	until atomic.Pointer[time.Time]
	set   chan struct{}
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.until.Store(&t)
	select {
	case d.set <- struct{}{}:
	default:
	}
	return nil
}

// A write is broken off by the end of its own context, for good, and by no other's.
func TestServerModernReply(t *testing.T) {
	d := &deadlines{set: make(chan struct{}, 1)}
	p := &reply{ResponseWriter: d}
	one, endOne := context.WithCancel(t.Context())
	two, endTwo := context.WithCancel(t.Context())
	bridgetest.Must(t, p.beginWrite(one))
	waiter := p.aborter()
	p.endWrite()
	bridgetest.Must(t, p.beginWrite(two))
	late := one.Done()
	endOne()
	p.abortFor(late) // as the context does
	waiter()
	if d.until.Load() != nil {
		t.Error("a write was broken off because of another one")
	}
	p.endWrite()
	if err := p.beginWrite(one); err != context.Canceled {
		t.Errorf("a write for an ended context begins: %v", err)
	}
	bridgetest.Must(t, p.beginWrite(two))
	endTwo()
	<-d.set
	if err := p.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil || !d.until.Load().Equal(longAgo) {
		t.Errorf("the write goes on: %v", err)
	}
	p.releaseConn()
	d.until.Store(nil)
	p.abortFor(two.Done())
	if d.until.Load() != nil {
		t.Error("the reply was broken off after it was left to net/http")
	}
}
