package streamclient

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/toolheader"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ME2: Mcp-Name goes as base64 where it must.
func TestModernNameEncoding(t *testing.T) {
	testModern(t, nil, func(t *modernTest) {
		for i, c := range []struct{ raw, header string }{
			{`za\u017c\u00f3\u0142\u0107`, "=?base64?emHFvMOzxYLEhw==?="},
			{` x `, "=?base64?IHgg?="},
			{`=?base64?a?=`, "=?base64?PT9iYXNlNjQ/YT89?="},
			{`a b`, "a b"},
			{`a\r\nX-Evil: y`, "=?base64?YQ0KWC1FdmlsOiB5?="},
		} {
			id := fmt.Sprint(i)
			t.send(modern(id, "prompts/get", `"name":"`+c.raw+`"`))
			t.want(echoed(id, "prompts/get"))
			seen := t.server.requests("prompts/get")[i].header
			if got := seen.Get("Mcp-Name"); got != c.header || seen.Get("X-Evil") != "" {
				t.Errorf("%s went as %q, want %q", c.raw, got, c.header)
			}
		}
	})
}

// comparesRaw answers as servers do that compare Mcp-Name without decoding it.
func comparesRaw(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
	name, _ := jsonrpc.Text(m.Lookup("params", "name"))
	if r.Header.Get("Mcp-Name") == name {
		return false
	}
	writeStatus(w, 400, failure(m, "-32020", "header mismatch: Mcp-Name header value is not the body's"))
	return true
}

// comparesDecoded answers as the specification wants it.
func comparesDecoded(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
	name, _ := jsonrpc.Text(m.Lookup("params", "name"))
	if got, err := toolheader.DecodeValue(r.Header.Get("Mcp-Name")); err == nil && got == name {
		return false
	}
	writeStatus(w, 400, failure(m, "-32020", "Bad Request: the Mcp-Name header is wrong"))
	return true
}

// ME2: a server that knows no base64 gets names as they are, from the second
// attempt on, for good and over all Conns; and base64 again when it has learned.
func TestModernRawNames(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) { s.onPost = comparesRaw }, func(t *modernTest) {
		get := func(id, name string) {
			t.Helper()
			t.send(modern(id, "prompts/get", `"name":"`+name+`"`))
			t.want(echoed(id, "prompts/get"))
		}
		wantNames := func(names ...string) {
			t.Helper()
			var got []string
			for _, r := range t.server.requests("prompts/get") {
				got = append(got, r.header.Get("Mcp-Name"))
			}
			if fmt.Sprint(got) != fmt.Sprint(names) {
				t.Errorf("Mcp-Name was %q, want %q", got, names)
			}
			t.server.mu.Lock()
			t.server.seen = nil
			t.server.mu.Unlock()
		}
		get("1", "é")
		get("2", "ü")
		get("3", "plain")
		wantNames("=?base64?w6k=?=", "é", "ü", "plain")
		again, err := t.client.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.conn.Close(nil)
		t.conn = again
		defer again.Close(nil)
		get("1", "é")
		wantNames("é")
		// What HTTP cannot carry raw is not tried.
		t.send(modern("5", "prompts/get", `"name":"a\nb"`))
		if m := t.recv(); string(m.Lookup("error", "code")) != "-32020" {
			t.Errorf("received %s", m.Bytes())
		}
		wantNames("=?base64?YQpi?=")
		t.server.script(comparesDecoded)
		get("6", "é")
		get("7", "ü")
		wantNames("é", "=?base64?w6k=?=", "=?base64?w7w=?=")
	})
}

// ME2: a refusal that other names do not help is passed on, and nothing is
// learned from it.
func TestModernNameRefused(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			writeStatus(w, 400, failure(m, "-32020", "I do not like your Mcp-Name"))
			return true
		}
	}, func(t *modernTest) {
		for range 2 {
			t.send(modern("1", "prompts/get", `"name":"é"`))
			t.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"I do not like your Mcp-Name"}}`)
			t.wantSeen("prompts/get", "prompts/get")
			if t.client.sendRawNames.Load() {
				t.Error("it has learned that names go raw")
			}
		}
		t.send(modern("1", "prompts/get", `"name":"plain"`))
		t.recv()
		t.wantSeen("prompts/get")
	})
}

const (
	regionTool  = `{"name":"deploy","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"Count"},"s":{"type":"string"}}}}`
	zoneTool    = `{"name":"deploy","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Zone"}}}}`
	plainTool   = `{"name":"plain","inputSchema":{"type":"object"}}`
	invalidTool = `{"name":"broken","inputSchema":{"type":"object","properties":{"p":{"type":"number","x-mcp-header":"P"}}}}`
)

// toolServer is a server with a list of tools, which may change, that insists
// on the headers of the tool deploy.
type toolServer struct {
	mu    sync.Mutex
	pages []string // the tools of each page
}

func (s *toolServer) set(pages ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages = pages
}

func (s *toolServer) serve(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
	s.mu.Lock()
	pages := s.pages
	s.mu.Unlock()
	switch m.Method() {
	case "tools/list":
		writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","method":"notifications/message"}`))
		page := 0
		if cursor, ok := jsonrpc.Text(m.Lookup("params", "cursor")); ok {
			page = int(cursor[0] - '0')
		}
		next := ""
		if page+1 < len(pages) {
			next = fmt.Sprintf(`,"nextCursor":"%d"`, page+1)
		}
		writeSSE(w, sseEvent("", result(m, `{"tools":[`+pages[page]+`]`+next+`}`)))
		return true
	case "tools/call":
		for _, tool := range toolheader.Tools([]byte(`{"tools":[` + strings.Join(pages, ",") + `]}`)) {
			name, _ := jsonrpc.Text(m.Lookup("params", "name"))
			if tool.Name != name {
				continue
			}
			if err := toolheader.CheckHeaders(tool.Params, m.Lookup("params", "arguments"), r.Header); err != nil {
				writeStatus(w, 400, failure(m, "-32020", err.Error()))
				return true
			}
		}
	}
	return false
}

func testTools(t *testing.T, pages []string, f func(t *modernTest, s *toolServer)) {
	t.Helper()
	tools := &toolServer{pages: pages}
	testModern(t, func(s *fakeServer, o *ModernOptions) { s.onPost = tools.serve }, func(t *modernTest) { f(t, tools) })
}

// callTool makes a tools/call that must succeed.
func (t *modernTest) callTool(id, name, arguments string) {
	t.Helper()
	t.send(modern(id, "tools/call", `"name":"`+name+`","arguments":`+arguments))
	t.want(echoed(id, "tools/call"))
}

// ME3: what a list says about headers is done with the calls that follow, and
// the list is not asked for again.
func TestModernParamHeaders(t *testing.T) {
	testTools(t, []string{regionTool + "," + plainTool}, func(t *modernTest, s *toolServer) {
		t.send(modern("1", "tools/list", ""))
		t.want(`{"jsonrpc":"2.0","method":"notifications/message"}`)
		t.want(`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + regionTool + "," + plainTool + `]}}`)
		t.callTool("2", "deploy", `{"region":"us-west1","n":42.0,"s":"x"}`)
		t.callTool("3", "deploy", `{"region":"zażółć","n":null}`)
		t.callTool("4", "plain", `{"region":"r"}`)
		t.callTool("5", "deploy", `{"region":"","n":9007199254740993}`)
		t.callTool("6", "deploy", `{"n":-42.50}`)
		var got []string
		for _, r := range t.server.requests("tools/call") {
			got = append(got, fmt.Sprint(r.header["Mcp-Param-Region"], r.header["Mcp-Param-Count"], r.header["Mcp-Param-S"]))
		}
		if want := "[[us-west1] [42] [] [=?base64?emHFvMOzxYLEhw==?=] [] [] [] [] [] [] [9007199254740993] [] [] [-42.5] []]"; fmt.Sprint(got) != want {
			t.Errorf("headers were %v, want %s", got, want)
		}
		if values := t.server.requests("tools/call")[3].header["Mcp-Param-Region"]; len(values) != 1 || values[0] != "" {
			t.Errorf("an empty argument went as %q", values) // ME2
		}
		t.wantSeen("tools/list", "tools/call", "tools/call", "tools/call", "tools/call", "tools/call")
	})
}

// ME2, ME4: a server that takes an empty header for a missing one gets it in
// base64, from the second attempt on.
func TestModernParamEmpty(t *testing.T) {
	tools := &toolServer{pages: []string{regionTool}}
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/call" && r.Header.Get("Mcp-Param-Region") == "" {
				writeStatus(w, 400, failure(m, "-32020", "header mismatch: missing Mcp-Param-Region header"))
				return true
			}
			return tools.serve(w, r, m)
		}
	}, func(t *modernTest) {
		for _, id := range []string{"1", "2"} {
			t.callTool(id, "deploy", `{"region":""}`)
		}
		if got := t.server.requests("tools/call")[2].header["Mcp-Param-Region"]; len(got) != 1 || got[0] != "=?base64??=" {
			t.Errorf("it went as %q", got)
		}
		t.wantSeen("tools/list", "tools/call", "tools/list", "tools/call", "tools/call")
	})
}

// ME3: invalid tools are cut out of lists, which else stay as they are, and the
// log says why, once. They cannot be called.
func TestModernInvalidTools(t *testing.T) {
	testTools(t, []string{regionTool + ",  " + invalidTool + "," + plainTool}, func(t *modernTest, s *toolServer) {
		for _, id := range []string{"1", "2"} {
			t.send(modern(id, "tools/list", ""))
			t.wantRelated(id, `{"jsonrpc":"2.0","method":"notifications/message"}`)
			t.wantRelated(id, `{"jsonrpc":"2.0","id":`+id+`,"result":{"tools":[`+regionTool+","+plainTool+`]}}`)
		}
		if log := t.log.String(); strings.Count(log, "tool left out") != 1 || !strings.Contains(log, "broken") || !strings.Contains(log, "not string, integer or boolean") {
			t.Errorf("the log says %s", log)
		}
		t.send(modern("3", "tools/call", `"name":"broken"`))
		if m := t.recv(); string(m.Lookup("error", "code")) != "-32602" || m.Related() != m.ID() {
			t.Errorf("received %s", m.Bytes())
		}
		t.wantSeen("tools/list", "tools/list")
	})
}

// ME3, ME4: a tool that was in no list is looked for first, on all pages, in the
// name of the call but without what would report on it; one that is in no list at all is looked
// for once. The answers are nobody's.
func TestModernUnknownTool(t *testing.T) {
	testTools(t, []string{plainTool, invalidTool, regionTool}, func(t *modernTest, s *toolServer) {
		t.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"deploy","arguments":{"region":"r"},"_meta":{"traceparent":"00-1","progressToken":5,` +
			`"io.modelcontextprotocol/logLevel":"debug","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}}`)
		t.want(echoed("1", "tools/call"))
		lists := t.server.requests("tools/list")
		meta := `{"traceparent":"00-1","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}`
		for i, cursor := range []string{"", "1", "2"} {
			got := lists[i].msg
			if c, _ := jsonrpc.Text(got.Lookup("params", "cursor")); string(got.Lookup("params", "_meta")) != meta || c != cursor {
				t.Errorf("page %d was asked for by %s", i, lists[i].body)
			}
			if lists[i].header.Get("Mcp-Method") != "tools/list" || lists[i].header.Get("Mcp-Protocol-Version") != "2026-07-28" {
				t.Errorf("page %d was asked for with %v", i, lists[i].header)
			}
		}
		t.wantSeen("tools/list", "tools/list", "tools/list", "tools/call")
		t.callTool("2", "hidden", "{}")
		t.callTool("3", "hidden", "{}")
		t.callTool("4", "plain", "{}")
		t.send(modern("5", "tools/call", `"name":"broken"`))
		if m := t.recv(); !m.IsError() {
			t.Errorf("received %s", m.Bytes())
		}
		t.wantSeen("tools/list", "tools/list", "tools/list", "tools/call", "tools/call", "tools/call")
		t.wantNothing(time.Hour)
	})
}

// ME3: many calls of unknown tools at once cost one list.
func TestModernUnknownToolOnce(t *testing.T) {
	testTools(t, []string{regionTool + "," + plainTool}, func(t *modernTest, s *toolServer) {
		release := make(chan struct{})
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/list" {
				<-release
			}
			return s.serve(w, r, m)
		})
		for i := range 20 {
			t.send(modern(fmt.Sprint(i), "tools/call", `"name":"`+[]string{"deploy", "plain"}[i%2]+`","arguments":{"region":"r"}`))
		}
		t.send(cancelOf("0")) // the one that may have asked
		synctest.Wait()
		close(release)
		for range 19 {
			if m := t.recv(); m.IsError() || m.ID() == jsonrpc.IntID(0) {
				t.Errorf("received %s", m.Bytes())
			}
		}
		t.one("tools/list")
	})
}

// ME3: a list that cannot be had keeps no call from being made; a server
// without one is asked once.
func TestModernNoList(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/list" {
				time.Sleep(100 * time.Millisecond) // all wait for the one, and less than modernToolTimeout
				cut()
			}
			return false
		}
	}, func(t *modernTest) {
		for _, id := range []string{"1", "2", "3"} {
			t.send(modern(id, "tools/call", `"name":"x"`))
		}
		for range 3 {
			if m := t.recv(); m.IsError() {
				t.Errorf("received %s", m.Bytes())
			}
		}
		t.wantSeen("tools/list", "tools/list", "tools/call", "tools/call", "tools/call")
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/list" {
				writeStatus(w, 404, failure(m, "-32601", "no such method"))
				return true
			}
			return false
		})
		t.callTool("2", "x", "{}")
		t.callTool("3", "x", "{}")
		t.wantSeen("tools/list", "tools/call", "tools/call")
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/list" {
				<-r.Context().Done()
			}
			return false
		})
		began := time.Now()
		t.callTool("4", "y", "{}")
		if d := time.Since(began); d != modernToolTimeout {
			t.Errorf("the call has waited for %v", d)
		}
		t.wantSeen("tools/list", "tools/call")
		time.Sleep(modernListTimeout + modernListPause)
		// A list without end.
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/list" {
				writeJSON(w, result(m, `{"tools":[],"nextCursor":"again"}`))
				return true
			}
			return false
		})
		t.callTool("5", "z", "{}")
		if n := len(t.server.requests("tools/list")); n != maxModernListPages {
			t.Errorf("%d pages were asked for", n)
		}
	})
}

// ME4: when the schema has changed between list and call, the call succeeds all
// the same: refused, listed again, sent again. A refusal that no list explains
// is passed on.
func TestModernSchemaChanges(t *testing.T) {
	testTools(t, []string{regionTool}, func(t *modernTest, s *toolServer) {
		t.callTool("1", "deploy", `{"region":"r"}`)
		s.set(zoneTool)
		t.callTool("2", "deploy", `{"region":"r"}`)
		t.callTool("3", "deploy", `{"region":"r"}`)
		t.wantSeen("tools/list", "tools/call", "tools/call", "tools/list", "tools/call", "tools/call")

		// It became invalid: the refusal says more than we could.
		s.set(`{"name":"deploy","inputSchema":{"properties":{"region":{"type":"string","x-mcp-header":"Zone"},"a":{"x-mcp-header":""}}}}`)
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/call" {
				writeStatus(w, 400, failure(m, "-32020", "no"))
				return true
			}
			return s.serve(w, r, m)
		})
		t.send(modern("4", "tools/call", `"name":"deploy"`))
		t.want(`{"jsonrpc":"2.0","id":4,"error":{"code":-32020,"message":"no"}}`)
		t.wantSeen("tools/call", "tools/list")

		// The list has not changed.
		s.set(zoneTool)
		t.send(modern("5", "tools/list", ""))
		t.recv()
		t.recv()
		t.send(modern("6", "tools/call", `"name":"deploy","arguments":{"region":"r"}`))
		t.want(`{"jsonrpc":"2.0","id":6,"error":{"code":-32020,"message":"no"}}`)
		t.wantSeen("tools/list", "tools/call", "tools/list")
		t.send(modern("7", "prompts/get", `"name":"deploy"`))
		t.recv()
		t.wantSeen("prompts/get")

		// The list changes all the time.
		n := 0
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			n++
			s.set(strings.Replace(zoneTool, "Zone", fmt.Sprint("Zone", n), 1))
			if m.Method() == "tools/call" {
				writeStatus(w, 400, failure(m, "-32020", "no"))
				return true
			}
			return s.serve(w, r, m)
		})
		t.send(modern("8", "tools/call", `"name":"deploy","arguments":{"region":"r"}`))
		t.want(`{"jsonrpc":"2.0","id":8,"error":{"code":-32020,"message":"no"}}`)
		t.wantSeen("tools/call", "tools/list", "tools/call")
	})
}

// ME10: list_changed makes that the tools are asked for again.
func TestModernListChanged(t *testing.T) {
	testTools(t, []string{regionTool}, func(t *modernTest, s *toolServer) {
		t.callTool("1", "deploy", `{"region":"r"}`)
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "subscriptions/listen" {
				writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
				<-r.Context().Done()
				return true
			}
			return s.serve(w, r, m)
		})
		s.set(zoneTool)
		t.send(modern("2", "subscriptions/listen", ""))
		t.wantRelated("2", `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		t.callTool("3", "deploy", `{"region":"r"}`)
		t.wantSeen("tools/list", "tools/call", "subscriptions/listen", "tools/list", "tools/call")
	})
}

// What is remembered of tools is bounded.
func TestModernToolsBounded(t *testing.T) {
	var tools modernTools
	for i := range 3 * maxModernTools {
		tools.learn([]toolheader.Tool{{Name: fmt.Sprint(i)}})
		if len(tools.byName) > maxModernTools {
			t.Fatalf("%d tools are remembered", len(tools.byName))
		}
	}
	if _, l, _ := tools.lookUp(fmt.Sprint(3*maxModernTools-1), 0, false); l != nil {
		t.Error("the newest is not")
	}
}

// The table of tools is bounded, and what is learned once it is full costs
// little of it: nothing if the tool is known, else one of the others (ME3).
func TestModernToolsFull(t *testing.T) {
	var tools modernTools
	for i := range maxModernTools {
		tools.learn([]toolheader.Tool{{Name: fmt.Sprint(i)}})
	}
	region := []toolheader.Param{{Header: "Mcp-Param-Region", Path: []string{"region"}, Type: toolheader.String}}
	known := func() (n int) {
		for i := range maxModernTools {
			if tool := tools.byName[fmt.Sprint(i)]; tool.learnedSeq > 0 {
				n++
			}
		}
		return n
	}
	tools.learn([]toolheader.Tool{{Name: "7", Params: region}})
	if tool, _, _ := tools.lookUp("7", 0, false); len(tool.params) != 1 || known() != maxModernTools {
		t.Errorf("after news of a known tool %d are known, and its parameters are %v", known(), tool.params)
	}
	for i, name := range []string{"new", "newer"} {
		tools.learn([]toolheader.Tool{{Name: name, Params: region}})
		if tool, _, _ := tools.lookUp(name, 0, false); len(tool.params) != 1 || known() < maxModernTools-1-i || len(tools.byName) != maxModernTools {
			t.Errorf("after %s %d of the others are known, of %d; its parameters are %v", name, known(), len(tools.byName), tool.params)
		}
	}
}

// ME4: a server that wants headers is asked for its tools, however it has answered
// before.
func TestModernListIsNeededAfterFailure(t *testing.T) {
	testTools(t, []string{regionTool}, func(t *modernTest, s *toolServer) {
		broken := true
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/list" && broken {
				time.Sleep(modernToolTimeout + time.Second)
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
			return s.serve(w, r, m)
		})
		t.send(modern("1", "tools/call", `"name":"deploy","arguments":{"region":"r"}`))
		if m := t.recv(); !m.IsError() {
			t.Errorf("without its list: %s", m.Bytes())
		}
		time.Sleep(modernListTimeout)
		broken = false
		t.send(modern("2", "tools/call", `"name":"deploy","arguments":{"region":"r"}`))
		if m := t.recv(); m.IsError() {
			t.Errorf("the list is there again: %s", m.Bytes())
		}
	})
}
