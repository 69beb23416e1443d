// The API of the bridge. The token comes in the fragment of the URL, which no server and no log
// sees, and stays in this tab.
const key = "mcp-bridge-token";
if (location.hash.startsWith("#token=")) {
  sessionStorage.setItem(key, decodeURIComponent(location.hash.slice(7)));
  history.replaceState(null, "", location.pathname);
}

/** @returns {Record<string, string>} */
const headers = (more = {}) => ({ Authorization: "Bearer " + (sessionStorage.getItem(key) ?? ""), ...more });

/** Get asks for JSON. */
export async function get(path) {
  const r = await fetch("api/v1/" + path, { headers: headers(), cache: "no-store" });
  if (!r.ok) throw new Failed(r.status, (await r.text()).trim());
  return r.json();
}

/** Post asks for an action. A body that is text is JSON already. */
export async function post(path, body) {
  const r = await fetch("api/v1/" + path, { method: "POST", headers: headers(), body: typeof body === "string" ? body : body && JSON.stringify(body) });
  if (!r.ok) throw new Failed(r.status, (await r.text()).trim());
}

/** Download has the browser keep what is at a path. */
export async function download(path, name) {
  const r = await fetch("api/v1/" + path, { headers: headers() });
  if (!r.ok) throw new Failed(r.status, (await r.text()).trim());
  const a = document.createElement("a");
  a.href = URL.createObjectURL(await r.blob());
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 60_000);
}

export class Failed extends Error {
  constructor(status, text) { super(text || "status " + status); this.status = status; }
}

/**
 * Follow reads records for ever: lines get each batch of them, state gets "live" or why there are
 * none. After a break it goes on where it was.
 */
export async function follow(lines, state) {
  let last = "";
  for (let pause = 500; ; pause = Math.min(pause * 2, 10_000)) {
    try {
      const r = await fetch("api/v1/stream?from=start", { headers: headers(last ? { "Last-Event-ID": last } : {}), cache: "no-store" });
      if (!r.ok) throw new Failed(r.status, (await r.text()).trim());
      state("live");
      pause = 500;
      const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        rest += value;
        const end = rest.lastIndexOf("\n\n");
        if (end < 0) continue;
        const whole = rest.slice(0, end);
        rest = rest.slice(end + 2);
        const all = [];
        for (const line of whole.split("\n")) {
          if (line.startsWith("data: ")) all.push(line.slice(6));
          else if (line.startsWith("id: ")) last = line.slice(4);
        }
        if (all.length) lines(all);
      }
      state("the bridge has gone; trying again");
    } catch (e) {
      state(e instanceof Failed && e.status < 500 ? e.message : "the bridge cannot be reached; trying again");
      if (e instanceof Failed && (e.status === 401 || e.status === 403)) return;
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}
