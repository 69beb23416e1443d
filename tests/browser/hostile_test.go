package browser

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Whatever records hold, the page shows it as text: nothing of it is run, obeyed or loaded.
func TestHostile(t *testing.T) {
	ctx := browser(t)
	r := newRun(t)
	r.start(t)
	r.open(t, ctx, actToken)
	until(t, ctx, ": live")
	do(t, ctx, `window.seen = [];
		for (const name of ["alert", "confirm", "prompt", "open"]) window[name] = () => { seen.push(name); };
		addEventListener("securitypolicyviolation", (e) => seen.push("policy: " + e.violatedDirective + " " + e.blockedURI));
		addEventListener("error", (e) => seen.push("error: " + e.message));
		addEventListener("unhandledrejection", (e) => seen.push("rejection: " + e.reason));
		window.elements = () => document.querySelectorAll("script,iframe,img,svg,object,embed,base,form,a,link,meta,style").length;
		window.before = elements()`)
	// Some come through the bridge, and all kinds of them as the bridge would send them.
	session := r.session(t)
	for _, name := range []string{"<img src=x onerror=window.pwned=1>", "\u202egpj.exe\u009b31m", "__proto__", "</pre><script>window.pwned=2</script>"} {
		quoted, _ := json.Marshal(name)
		r.post(t, session, `{"jsonrpc":"2.0","id":`+string(quoted)+`,"method":`+string(quoted)+`,"params":{"name":`+string(quoted)+`}}`)
	}
	click(t, ctx, "Messages")
	until(t, ctx, "<img src=x onerror=window.pwned=1>")
	for _, line := range chunks(t, 1000) {
		quoted, err := json.Marshal(line)
		must(t, err)
		eval[bool](t, ctx, `(async () => { const { store } = await import("/app.js"); store.add(`+string(quoted)+`.split("\n")); return true; })()`)
	}
	const look = `(async () => {
		const shown = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
		const list = document.querySelector(".list"), hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;
		let opened = 0;
		for (let at = 0; at <= list.scrollHeight; at += 4800) {
			list.scrollTop = at;
			await shown();
			for (const row of [...document.querySelectorAll(".row")].slice(10, 13)) {
				row.click();
				await shown();
				opened++;
				const wrong = hidden.exec(document.body.innerText);
				if (wrong) return "at " + at + ": " + JSON.stringify(document.body.innerText.slice(Math.max(0, wrong.index - 200), wrong.index + 20));
			}
		}
		return opened > 90 ? "" : "only " + opened + " records were opened";
	})()`
	if wrong := eval[string](t, ctx, look); wrong != "" {
		t.Error(wrong)
	}
	for _, words := range []string{"method:*script* !pwned", "ses:s1 kind:* slow:1us", "status:err [(", "__proto__"} {
		quoted, _ := json.Marshal(words)
		do(t, ctx, `const i = document.querySelector("input[type=search]"); i.value = `+string(quoted)+`; i.dispatchEvent(new Event("input", { bubbles: true }))`)
	}
	for _, view := range []string{"Overview", "Sessions", "Timeline", "Processes", "Notes", "Metrics", "Messages"} {
		click(t, ctx, view)
		until(t, ctx, "mcp-bridge")
		eval[bool](t, ctx, `new Promise((done) => setTimeout(() => done(true), 200))`)
	}
	got := eval[string](t, ctx, `JSON.stringify([seen, typeof pwned, document.title, elements() - before, location.pathname, ({}).polluted === undefined])`)
	if want := `[[],"undefined","mcp-bridge",0,"/",true]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// chunks returns hostile lines, many at a time.
func chunks(t *testing.T, most int) (all []string) {
	t.Helper()
	print := exec.Command("go", "run", "./tests/hostile/print", "5", "10000")
	print.Dir, print.Stderr = "../..", os.Stderr
	out, err := print.Output()
	must(t, err)
	lines := strings.Split(strings.ToValidUTF8(string(out), "\ufffd"), "\n")
	for len(lines) > 0 {
		n := min(most, len(lines))
		all = append(all, strings.Join(lines[:n], "\n"))
		lines = lines[n:]
	}
	return all
}
