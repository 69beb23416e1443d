package sessionstate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func parse(t *testing.T, text string) jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func request(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s}}`, id, method, params)
}

// LE5: a new session is told what the old one knew, in the client's words.
func TestRemember(t *testing.T) {
	var b State[int]
	opens := request("1", "initialize", `"protocolVersion":"2025-06-18", "x" : 1.0`)
	b.NoteInitialize(parse(t, opens))
	initialize, initialized := b.OpeningMessages()
	if got := string(initialize.Bytes()); got != strings.Replace(opens, `"id":1`, `"id":`+initialize.ID().String(), 1) {
		t.Errorf("initialize became %s", got)
	}
	if initialized.Method() != "notifications/initialized" || initialized.Kind() != jsonrpc.Notification {
		t.Errorf("initialized is %s", initialized.Bytes())
	}
	b.InitializedNotification = parse(t, `{"jsonrpc":"2.0","method":"notifications/initialized","params":{"x":1}}`)
	if _, own := b.OpeningMessages(); string(own.Bytes()) != string(b.InitializedNotification.Bytes()) {
		t.Errorf("the client's initialized became %s", own.Bytes())
	}
	for i, step := range [][2]string{
		{"logging/setLevel", `"level":"info"`},
		{"logging/setLevel", `"level":"debug"`},
		{"resources/subscribe", `"uri":"file:///a"`},
		{"resources/subscribe", `"uri":"file:///b"`},
		{"resources/subscribe", `"uri":"file:///b"`},
		{"resources/subscribe", `"uri":"file:///c"`},
		{"resources/unsubscribe", `"uri":"file:///a"`},
		{"tools/call", `"uri":"file:///d","level":"d"`},
	} {
		if !b.RememberSetting(parse(t, request(fmt.Sprint(10+i), step[0], step[1]))) {
			t.Errorf("there is no room for %s", step)
		}
	}
	settings := func() (all []string) {
		seen := map[jsonrpc.ID]bool{}
		for _, m := range b.SettingRequests() {
			if seen[m.ID()] || !strings.HasPrefix(m.ID().String(), `"mcp-bridge-`) {
				t.Errorf("id %s", m.ID())
			}
			seen[m.ID()] = true
			all = append(all, m.Method()+" "+string(m.Params()))
		}
		slices.Sort(all)
		return all
	}
	want := []string{`logging/setLevel {"level":"debug"}`, `resources/subscribe {"uri":"file:///b"}`, `resources/subscribe {"uri":"file:///c"}`}
	if got := settings(); !slices.Equal(got, want) {
		t.Errorf("settings %q, want %q", got, want)
	}
	b.InitializeSucceeded = true
	var heir State[string]
	if heir.AdoptHandoff(b.Handoff(1), "gone"); !heir.InitializeSucceeded {
		t.Error("who inherits a session that the client has begun does not know it")
	}
	b.NoteInitialize(parse(t, opens))
	if b.InitializeSucceeded {
		t.Error("a session counts as begun before initialize was answered")
	}
	if got := settings(); len(got) != 0 || b.InitializedNotification.Kind() != jsonrpc.Invalid {
		t.Errorf("after the client has begun anew: %q, %s", got, b.InitializedNotification.Bytes())
	}
	for i := range maxSubscriptions + 1 {
		ok := b.RememberSetting(parse(t, request("1", "resources/subscribe", fmt.Sprintf(`"uri":"file:///%d"`, i))))
		if ok != (i < maxSubscriptions) {
			t.Fatalf("subscription %d: %v", i, ok)
		}
	}
}

// LE15: what the client answers goes to the session that has asked, with the
// id as it was spelled there, and no two open requests look the same.
func TestAsked(t *testing.T) {
	var b State[string]
	ask := func(session, id string) jsonrpc.Message {
		t.Helper()
		m, ok := b.NoteServerRequest(session, parse(t, request(id, "roots/list", "")))
		if !ok {
			t.Error("there is no room")
		}
		return m
	}
	answered := func(id, session, want string) {
		t.Helper()
		got, m, ok := b.RouteResponse(parse(t, `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`))
		if got != session || ok != (session != "") || m.ID().String() != want {
			t.Errorf("the answer to %s goes to %q as %s, want %q, %s", id, got, m.ID(), session, want)
		}
	}
	if m := ask("old", "1.0"); m.ID().String() != "1.0" {
		t.Errorf("the first request became %s", m.ID())
	}
	ask("old", `"a"`)
	ask("old", `"b"`)
	answered(`"\u0061"`, "old", `"a"`)
	answered(`"a"`, "", `"a"`) // once

	again := ask("new", "1.0")
	if id := again.ID().String(); id == "1.0" || !strings.HasPrefix(id, `"mcp-bridge-`) {
		t.Errorf("two requests with the id %s are open", id)
	}
	other := ask("new", `"c"`)
	if other.ID().String() != `"c"` {
		t.Errorf("an id that is free became %s", other.ID())
	}
	var gone []string
	for _, m := range b.CancelNotifications("old", "it is lost") {
		gone = append(gone, m.Method()+" "+string(m.Params()))
	}
	slices.Sort(gone)
	if want := []string{`notifications/cancelled {"requestId":"b","reason":"it is lost"}`, `notifications/cancelled {"requestId":1.0,"reason":"it is lost"}`}; !slices.Equal(gone, want) {
		t.Errorf("withdrawn are %q, want %q", gone, want)
	}
	answered("1.0", "old", "1.0") // it was on its way
	answered(again.ID().String(), "new", "1.0")

	cancel := func(session, id, want string) {
		t.Helper()
		m := b.ForgetCancelled(session, jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":`+id+`,"reason":"x"}`)))
		if m.CancelledID().String() != want || !strings.Contains(string(m.Params()), `"reason":"x"`) {
			t.Errorf("the cancellation of %s is %s, want %s", id, m.Bytes(), want)
		}
	}
	cancel("new", `"b"`, `"b"`) // it is the old session's, and stays
	answered(`"b"`, "old", `"b"`)
	ask("old", "7")
	second := ask("new", "7")
	cancel("new", "7", second.ID().String())
	answered(second.ID().String(), "", second.ID().String())
	cancel("new", `"\u0063"`, `"c"`)
	answered("7", "old", "7")
}

// What is remembered for the sake of a server is bounded; what belongs to a
// session that is gone makes room first.
func TestAskedBounded(t *testing.T) {
	var b State[int]
	ask := func(session, i int) bool {
		_, ok := b.NoteServerRequest(session, jsonrpc.NewRequest(jsonrpc.IntID(int64(i)), "ping", nil))
		return ok
	}
	for session := range 3 {
		for i := range maxServerRequests {
			if !ask(session, i) {
				t.Fatalf("session %d: no room for request %d", session, i)
			}
		}
		if ask(session, maxServerRequests) || len(b.serverRequests) > maxServerRequests {
			t.Fatalf("session %d: %d requests are remembered", session, len(b.serverRequests))
		}
	}
}

// ST9, C.3: what may have changed with a new session is what the server tells of,
// and what is subscribed.
func TestChanged(t *testing.T) {
	var b State[int]
	b.RememberSetting(parse(t, request("1", "resources/subscribe", `"uri":"b:\u0062"`)))
	b.RememberSetting(parse(t, request("2", "resources/subscribe", `"uri":"a"`)))
	answer := parse(t, `{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":false},"resources":{"subscribe":true}}}}`)
	var got []string
	for _, m := range b.ChangeNotifications(answer) {
		got = append(got, m.Method()+" "+string(m.Params()))
	}
	want := []string{"notifications/tools/list_changed ", `notifications/resources/updated {"uri":"a"}`, `notifications/resources/updated {"uri":"b:\u0062"}`}
	if !slices.Equal(got, want) {
		t.Errorf("told is %q, want %q", got, want)
	}
}
