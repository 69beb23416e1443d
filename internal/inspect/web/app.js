import { html, render, useEffect, useState, useRef } from "./vendor/htm-preact.js";
import { download, follow, get, post } from "./api.js";
import { Store } from "./store.js";
import { Detail, Records, escaped } from "./list.js";
import { Timeline } from "./timeline.js";

export const store = new Store();
const views = ["Overview", "Sessions", "Timeline", "Messages", "Processes", "Notes", "Metrics"];
const history = new Map(); // of a server: what was measured, each second
const ago = (t) => { const s = Math.max(0, Math.round((Date.now() - Date.parse(t)) / 1000)); return s < 120 ? s + " s" : s < 7200 ? Math.round(s / 60) + " min" : Math.round(s / 3600) + " h"; };
const num = (n) => n ? n < 10 ? n.toFixed(1) : Math.round(n).toString() : "0";

const tell = (e) => alert(e.message);

function usePolled(path, every = 1000) {
  const [value, set] = useState(null);
  useEffect(() => {
    let over = false;
    const ask = () => get(path).then((v) => { if (!over) set(v); }, () => {}).finally(() => { if (!over) timer = setTimeout(ask, every); });
    let timer = 0;
    ask();
    return () => { over = true; clearTimeout(timer); };
  }, [path]);
  return value;
}

/** Button asks for an action; what goes wrong is said beside it. */
function Button({ path, body, children, right, sure }) {
  const [failed, fail] = useState("");
  if (right !== "act") return null;
  const run = () => { if (!sure || confirm(sure)) post(path, body).then(() => fail(""), (e) => fail(e.message)); };
  return html`<button onClick=${run}>${children}</button>${failed && html` <span class="bad">${failed}</span>`}`;
}

function Overview({ right, show }) {
  const list = usePolled("servers")?.servers ?? [];
  return html`<table><thead><tr><th>server</th><th>state</th><th class="n">running</th><th class="n">sessions</th><th class="n">calls</th><th class="n">answers/s</th>
      <th class="n">errors/s</th><th class="n">p50 ms</th><th class="n">p99 ms</th><th>last error</th><th></th></tr></thead><tbody>
    ${list.map((s) => html`<tr key=${s.name}><td><button onClick=${() => show("srv:" + s.name)}>${escaped(s.name)}</button></td>
      <td class=${s.ready ? "" : "bad"}>${s.ready ? "ready" : "not ready"}</td><td class="n">${s.running}</td><td class="n">${s.sessions}</td>
      <td class=${"n" + (s.oldest > 10 ? " bad" : "")}>${s.calls}${s.oldest > 1 ? " (" + Math.round(s.oldest) + " s)" : ""}</td><td class="n">${num(s.rate)}</td>
      <td class="n">${num(s.failed)}</td><td class="n">${num(s.p50)}</td><td class="n">${num(s.p99)}</td><td class="bad">${escaped(s.lastError ?? "")}</td>
      <td><${Button} right=${right} path=${"servers/" + encodeURIComponent(s.name) + "/restart"} sure=${"Restart " + escaped(s.name) + "? Calls in progress may finish."}>restart<//></td></tr>`)}
  </tbody></table>`;
}

function Sessions({ right, show }) {
  const list = usePolled("sessions")?.sessions ?? [];
  return html`<table><thead><tr><th>session</th><th>server</th><th>client</th><th>transport</th><th>revision</th><th>principal</th><th>remote</th><th class="n">pid</th>
      <th class="n">since</th><th class="n">calls</th><th class="n">waiting</th><th></th></tr></thead><tbody>
    ${list.map((s) => html`<tr key=${s.name}><td><button onClick=${() => show("ses:" + s.name)}>${s.name}</button></td><td>${escaped(s.server)}</td>
      <td>${escaped((s.client ?? "") + " " + (s.version ?? ""))}</td><td>${s.transport}</td><td>${escaped((s.era ?? "") + " " + (s.revision ?? ""))}</td><td>${escaped(s.principal ?? "")}</td>
      <td>${escaped(s.remote ?? "")}</td><td class="n">${s.pid ?? ""}</td><td class="n">${ago(s.began)}</td><td class="n">${s.calls}</td><td class="n">${s.waiting}</td>
      <td><${Button} right=${right} path=${"sessions/" + s.name + "/end"} sure=${"End session " + s.name + "?"}>end<//></td></tr>`)}
  </tbody></table>${list.length === 0 && html`<p class="dim">No client is connected.</p>`}`;
}

const percents = new Map(); // of a process: its CPU time when it was asked for last, and how much of a processor it had since then

/** Percent returns how much of a processor a process has had since it was asked for before. */
function percent(p) {
  if (!p.usage || p.ended) return "";
  const key = p.pid + p.began, now = performance.now(), before = percents.get(key), took = before && (now - before.at) / 1000;
  if (before && took < 0.5) return before.shown;
  const shown = before && took < 10 ? Math.round(Math.max(0, p.usage.cpuSeconds - before.cpu) / took * 100) + " %" : "";
  percents.set(key, { cpu: p.usage.cpuSeconds, at: now, shown });
  if (percents.size > 2000) percents.delete(percents.keys().next().value);
  return shown;
}

const bytes = (n) => n < 1e6 ? Math.round(n / 1e3) + " kB" : n < 1e10 ? (n / 1e6).toFixed(n < 1e7 ? 1 : 0) + " MB" : (n / 1e9).toFixed(0) + " GB";

function Processes({ right }) {
  const list = usePolled("processes")?.processes ?? [];
  const [pid, choose] = useState(0);
  const [, again] = useState(0);
  useEffect(() => store.watch(() => again((n) => n + 1)), []);
  const lines = [];
  for (let i = store.all.length - 1; i >= 0 && lines.length < 500; i--) {
    const v = store.all[i].v;
    if (v.kind === "stderr" && (!pid || v.event?.pid === pid)) lines.unshift(v.event?.pid + ": " + (v.raw ?? v.b64 ?? ""));
  }
  return html`<table><thead><tr><th class="n">pid</th><th>program</th><th>server</th><th>session</th><th>since</th><th class="n">CPU</th><th class="n">CPU time</th><th class="n">memory</th><th>state</th><th></th></tr></thead><tbody>
    ${list.map((p) => html`<tr key=${p.pid + p.began}><td class="n"><button onClick=${() => choose(pid === p.pid ? 0 : p.pid)}>${p.pid}</button></td><td>${escaped(p.program)}</td>
      <td>${escaped(p.server)}</td><td>${p.session ?? ""}</td><td>${ago(p.began)}</td>
      <td class="n">${percent(p)}</td><td class="n">${p.usage ? p.usage.cpuSeconds.toFixed(p.usage.cpuSeconds < 100 ? 2 : 0) + " s" : ""}</td><td class="n">${p.usage ? bytes(p.usage.residentBytes) : ""}</td>
      <td class=${p.ended && p.err && !p.asked ? "bad" : ""}>${p.ended ? "ended " + ago(p.ended) + " ago" + (p.asked ? ", asked to" : "") + (p.err ? ": " + escaped(p.err) : "") : p.step ? "stopping: " + p.step : "runs"}</td>
      <td>${!p.ended && html`<${Button} right=${right} path=${"processes/" + p.pid + "/kill"} sure=${"Kill process " + p.pid + "?"}>kill<//>`}</td></tr>`)}
  </tbody></table><h2>stderr ${pid ? "of " + pid : ""}</h2><pre class="stderr">${lines.map(escaped).join("\n") || "nothing since this page was opened"}</pre>`;
}

function Notes({ show }) {
  const list = (usePolled("notes")?.notes ?? []).toReversed();
  return html`<table><tbody>${list.map((n) => html`<tr><td>${new Date(n.time).toLocaleTimeString()}</td><td>${escaped(n.server)}</td>
    <td>${n.session && html`<button onClick=${() => show("ses:" + n.session)}>${n.session}</button>`}</td><td>${escaped(n.code)}</td><td>${escaped(n.text)}</td></tr>`)}</tbody></table>
    ${list.length === 0 && html`<p class="dim">Nothing looked wrong so far.</p>`}`;
}

function Plot({ values, title }) {
  const canvas = useRef(null);
  useEffect(() => {
    const c = canvas.current, g = c.getContext("2d"), most = Math.max(...values, 1e-9);
    c.width = c.clientWidth; c.height = c.clientHeight;
    g.strokeStyle = getComputedStyle(c).getPropertyValue("--accent");
    g.beginPath();
    values.forEach((v, i) => g.lineTo(i / 300 * c.width, c.height - 2 - v / most * (c.height - 4)));
    g.stroke();
  });
  return html`<div>${title}: ${num(values.at(-1))}, at most ${num(Math.max(...values, 0))}</div><canvas class="plot" ref=${canvas}></canvas>`;
}

function Metrics() {
  const list = usePolled("servers")?.servers ?? [];
  for (const s of list) {
    const h = history.get(s.name) ?? [];
    if (h.at(-1) !== s) h.push(s); // else it is drawn again, and nothing new was measured
    if (h.length > 300) h.shift();
    history.set(s.name, h);
  }
  return list.map((s) => html`<section key=${s.name}><h2>${escaped(s.name)}</h2>${[["rate", "answers/s"], ["calls", "calls in progress"], ["p50", "p50 ms"], ["p99", "p99 ms"]]
    .map(([key, title]) => html`<${Plot} title=${title} values=${history.get(s.name).map((m) => m[key])} />`)}</section>`);
}

function App() {
  const [view, go] = useState("Overview");
  const [state, setState] = useState("connecting");
  const [filter, setFilter] = useState("");
  const [chosen, open] = useState(null);
  const about = usePolled("", 3000);
  useEffect(() => { follow((lines) => store.add(lines), setState); }, []);
  const show = (words) => { setFilter(words); go("Messages"); };
  const right = about?.right, level = (about?.logLevel ?? "").toLowerCase();
  const page = {
    Overview: () => html`<${Overview} right=${right} show=${show} />`, Sessions: () => html`<${Sessions} right=${right} show=${show} />`,
    Timeline: () => html`<${Timeline} store=${store} open=${open} />`, Messages: () => html`<${Records} store=${store} chosen=${chosen} open=${open} filter=${filter} setFilter=${setFilter} />`,
    Processes: () => html`<${Processes} right=${right} />`, Notes: () => html`<${Notes} show=${show} />`, Metrics: () => html`<${Metrics} />`,
  };
  const fill = view === "Timeline" || view === "Messages";
  return html`<header><h1>mcp-bridge</h1>${views.map((v) => html`<button class="tab" aria-current=${v === view ? "page" : undefined} onClick=${() => go(v)}>${v}</button>`)}
      <button onClick=${() => download("records", "mcp-bridge.trace.jsonl").catch(tell)}>save trace</button>
      ${right === "act" && level && html`<label>log <select value=${level} onChange=${(e) => post("log", { level: e.target.value }).catch(tell)}>
        ${["trace", "debug", "info", "warn", "error", "off"].map((l) => html`<option value=${l}>${l}</option>`)}</select></label>`}
      <span class=${"state" + (state === "live" ? "" : " bad")} role="status">${about ? escaped(about.name) + ", pid " + about.pid + ": " : ""}${state}</span></header>
    <main class=${fill ? "fill" : ""}>${page[view]()}${fill && chosen && html`<${Detail} store=${store} r=${chosen} open=${open} close=${() => open(null)} may=${right} />`}</main>`;
}

render(html`<${App} />`, document.getElementById("app"));
