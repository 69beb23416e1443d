package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// taskServer is a remote server of 2026-07-28 that makes a task of each call and
// knows nothing of who calls. Ids of its tasks can be guessed.
type taskServer struct {
	*upstream
	mu   sync.Mutex
	made int
}

func newTaskServer(t testing.TB) *taskServer {
	s := &taskServer{upstream: unstarted(t)}
	s.before = s.serve
	s.Start()
	return s
}

const task = `"status":"working","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":null`

func (s *taskServer) serve(w http.ResponseWriter, r *http.Request, body string) bool {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			TaskID        string
			Notifications struct{ TaskIDs []string }
		}
	}
	_ = json.Unmarshal([]byte(body), &m)
	result := func(members string) { reply(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{%s}}`, m.ID, members)) }
	known := strings.HasPrefix(m.Params.TaskID, "task-")
	switch {
	case m.Method == "initialize":
		w.WriteHeader(http.StatusBadRequest)
		reply(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no","data":{"supported":[%q]}}}`, m.ID, modernVersion))
	case m.Method == "server/discover":
		result(`"resultType":"complete","supportedVersions":["` + modernVersion + `"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"ttlMs":0,"cacheScope":"private"`)
	case m.Method == "tools/list":
		result(`"resultType":"complete","tools":[{"name":"work","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"`)
	case m.Method == "tools/call":
		s.mu.Lock()
		s.made++
		id := s.made
		s.mu.Unlock()
		result(fmt.Sprintf(`"resultType":"task","taskId":"task-%d",%s`, id, task))
	case m.Method == "subscriptions/listen":
		say := sse(w)
		ids, _ := json.Marshal(m.Params.Notifications.TaskIDs)
		about := fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/subscriptionId":%s}`, m.ID)
		say(`data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"taskIds":%s},%s}}`, ids, about)
		for _, id := range m.Params.Notifications.TaskIDs {
			say(`data: {"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":%q,%s,%s}}`, id, task, about)
		}
		say(`data: {"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}`, m.ID, about)
	case !strings.HasPrefix(m.Method, "tasks/"):
		return false
	case !known || r.Header.Get("Mcp-Name") != m.Params.TaskID:
		reply(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such task"}}`, m.ID))
	case m.Method == "tasks/get":
		result(fmt.Sprintf(`"resultType":"complete","taskId":%q,%s`, m.Params.TaskID, task))
	default:
		result(`"resultType":"complete"`)
	}
	return true
}

// taskClient is a client of it, over one transport and with one token.
type taskClient struct {
	t testing.TB
	talker
	n int
}

func (s *site) tasks(t testing.TB, over string) *taskClient {
	t.Helper()
	if over == "mcp" {
		return &taskClient{t: t, talker: &modernTalker{s}}
	}
	c, err := s.openWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return &taskClient{t: t, talker: c}
}

// ask sends a request and returns its answer, and what came before that.
func (c *taskClient) ask(method, params string) (answer string, before []string) {
	c.t.Helper()
	c.n++
	meta := fmt.Sprintf(`"_meta":{%q:%q,%q:{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`, metaVersion, modernVersion, metaCaps)
	answer, err := c.exchange(within(c.t, harness.Patience), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s,%s}}`, c.n, method, params, meta),
		func(m string) { before = append(before, m) })
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	return answer, before
}

// begin makes a task and returns its id.
func (c *taskClient) begin() string {
	c.t.Helper()
	answer, _ := c.ask("tools/call", `"name":"work","arguments":{}`)
	id := taskOf(answer)
	if id == "" || !strings.Contains(answer, `"resultType":"task"`) {
		c.t.Fatalf("no task was made: %s", answer)
	}
	return id
}

func taskOf(message string) string {
	var m struct{ Result, Params struct{ TaskID string } }
	_ = json.Unmarshal([]byte(message), &m)
	return m.Result.TaskID + m.Params.TaskID
}

// may wants everything that can be done with a task to work, under that id.
func (c *taskClient) may(id string) {
	c.t.Helper()
	if answer, _ := c.ask("tasks/get", fmt.Sprintf(`"taskId":%q`, id)); taskOf(answer) != id {
		c.t.Errorf("tasks/get of %q: %s", id, answer)
	}
	for _, method := range []string{"tasks/update", "tasks/cancel"} {
		if answer, _ := c.ask(method, fmt.Sprintf(`"taskId":%q`, id)); !strings.Contains(answer, `"complete"`) {
			c.t.Errorf("%s of %q: %s", method, id, answer)
		}
	}
	answer, before := c.ask("subscriptions/listen", fmt.Sprintf(`"notifications":{"taskIds":[%q]}`, id))
	if strings.Contains(answer, `"error"`) || len(before) < 2 ||
		!strings.Contains(before[0], fmt.Sprintf(`"taskIds":[%q]`, id)) || taskOf(before[1]) != id {
		c.t.Errorf("subscriptions/listen to %q: %q and then %s", id, before, answer)
	}
}

// mayNot wants nothing to be possible with a task.
func (c *taskClient) mayNot(params ...string) {
	c.t.Helper()
	for _, p := range params {
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			if _, code, text := errorOf(c.t, first(c.ask(method, p))); code != -32602 && code != -32600 {
				c.t.Errorf("%s with %s: %d %s", method, p, code, text)
			}
		}
	}
}

func first(answer string, _ []string) string { return answer }

// TestTasksBelongToPrincipals: A6. A task of 2026-07-28 belongs to the name under
// which it was made, whoever shares the server, on every transport, also after the
// bridge has started anew; to others it is not there, and they do not reach the
// server with it however they spell it.
func TestTasksBelongToPrincipals(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"auto", "shared", "session", "principal", "request"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			u := newTaskServer(t)
			who, tokens := principals(t, isolation == "auto" || isolation == "request")
			annToken, bobToken := tokens[0], tokens[1]
			start := func() *site {
				argv := append([]string{bridgeBin, "serve", "--listen", "127.0.0.1:0", "--isolation", isolation}, who...)
				return serveArgv(t, nil, append(argv, u.URL)...).site()
			}
			s := start()
			ann := s.bearer(annToken).tasks(t, "mcp")
			id := ann.begin()
			ann.may(id)
			s.bearer(annToken).tasks(t, "ws").may(id)
			again := start().bearer(annToken)
			again.tasks(t, "mcp").may(id)

			raw := "task-1"
			if id == raw {
				t.Error("the task's id is the server's own")
			}
			reached := len(u.bodies(isTask))
			for _, over := range []string{"mcp", "ws"} {
				bob := s.bearer(bobToken).tasks(t, over)
				bob.mayNot(fmt.Sprintf(`"taskId":%q`, id), fmt.Sprintf(`"taskId":%q`, raw))
				if over == "ws" { // where no header says it, too
					own := bob.begin()
					bob.mayNot(fmt.Sprintf(`"taskId":%q,"taskId":%q`, raw, own), fmt.Sprintf(`"taskId":%q,"taskid":%q`, own, raw),
						fmt.Sprintf(`"TASKID":%q`, raw), `"taskId":7`)
				}
				for _, p := range []string{
					fmt.Sprintf(`"notifications":{"taskIds":[%q]}`, id), fmt.Sprintf(`"notifications":{"taskIds":[%q]}`, raw),
					fmt.Sprintf(`"notifications":{"taskids":[%q]}`, raw), fmt.Sprintf(`"notifications":{},"Notifications":{"taskIds":[%q]}`, raw),
				} {
					if _, code, _ := errorOf(t, first(bob.ask("subscriptions/listen", p))); code != -32602 && code != -32600 {
						t.Errorf("bob listens with %s: %d", p, code)
					}
				}
			}
			if now := u.bodies(isTask); len(now) != reached {
				t.Errorf("what bob says of ann's task reached the server: %q", now[reached:])
			}
			ann.may(id)
		})
	}
}

// isTask reports whether a request names a task.
func isTask(r seen) bool { return strings.Contains(strings.ToLower(r.body), "taskid") }

// TestTasksWithoutNames: J5. Where clients have no names, ids of tasks pass as they are.
func TestTasksWithoutNames(t *testing.T) {
	t.Parallel()
	u := newTaskServer(t)
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", u.URL).site()
	for i, over := range []string{"mcp", "ws"} {
		c := s.tasks(t, over)
		id := c.begin()
		if want := fmt.Sprintf("task-%d", i+1); id != want {
			t.Errorf("over %s the task's id is %q, want %q", over, id, want)
		}
		c.may(id)
	}
}
