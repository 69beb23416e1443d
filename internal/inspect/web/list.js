// The list of records, of which only those in sight are in the page, and the detail of one.
import { post } from "./api.js";
import { curl, replay } from "./command.js";
import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { body, diff, exactID, failed, parse, pending, took } from "./store.js";

const rowHeight = 24;

const arrows = { "down c2s": "→|  ", "down s2c": "←|  ", "up c2s": "  |→", "up s2c": "  |←" };
const ms = (n) => n === undefined ? "" : n < 1 ? Math.round(n * 1000) + " µs" : n < 10_000 ? n.toFixed(n < 10 ? 1 : 0) + " ms" : (n / 1000).toFixed(0) + " s";

/** Escaped shows characters that one does not see, and those that turn text round. */
export const escaped = (s) => String(s).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
  (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

/** Subject says what a record is about. */
export function subject(r) {
  const v = r.v, e = v.event, x = v.http, id = v.id === undefined ? "" : "#" + exactID(r);
  const words = (...all) => escaped(all.filter((w) => w !== undefined && w !== "").join(" "));
  if (["request", "response", "notification", "drop"].includes(v.kind)) {
    const state = v.code ? "error " + v.code : v.failed ? "failed" : v.kind === "response" ? "ok" : v.kind === "drop" ? "dropped: " + (v.why ?? "") :
      r.cancelled && !r.answer ? "cancelled" : r.over ?? (pending(r) ? "no answer yet" + (v.earlier ? ", began earlier" : "") : "");
    return words(v.method ?? v.kind, v.name, id, state);
  }
  if (x) return words(x.method, x.path ?? x.url, x.status, v.kind === "refused" ? "refused" : "", x.rule, x.why ?? v.why, x.err);
  if (v.kind === "gap") return (v.lost ?? 1) + " records are missing here";
  if (e) return words(v.kind, v.str, e.code, v.method, v.name, id, e.what, e.step, e.pid && "pid " + e.pid, e.program, e.client, e.version, e.rev, e.text, v.raw, v.why, e.err);
  return words(v.kind, v.why);
}

function Row({ r, on, open }) {
  const v = r.v;
  return html`<div class=${"row" + (on ? " on" : "") + (failed(v) ? " bad" : "")} onClick=${() => open(r)}>
    <span class="t">${r.t ? new Date(r.t).toISOString().slice(11, 23) : ""}</span><span class="srv">${escaped(v.srv ?? "")}</span>
    <span class="ses">${escaped(v.ses ?? "")}</span><span class="arrow mono">${arrows[v.hop + " " + v.dir] ?? "  |"}</span>
    <span class="what">${subject(r)}</span><span class="took">${v.kind === "request" ? "" : ms(took(r))}</span><span class="size">${v.size ?? ""}</span></div>`;
}

/** Records shows the list with its filter. */
export function Records({ store, chosen, open, filter, setFilter }) {
  const box = useRef(null);
  const [, again] = useState(0);
  const [follow, setFollow] = useState(true);
  useEffect(() => store.watch(() => again((n) => n + 1)), [store]);
  useEffect(() => { store.filter(parse(filter)); }, [filter]);
  useEffect(() => { if (follow && box.current) box.current.scrollTop = store.shown.length * rowHeight; });
  const top = box.current?.scrollTop ?? 0, height = box.current?.clientHeight ?? 600;
  const first = Math.max(0, Math.floor(top / rowHeight) - 10), last = Math.min(store.shown.length, Math.ceil((top + height) / rowHeight) + 10);
  const scrolled = () => {
    const b = box.current;
    setFollow(b.scrollTop + b.clientHeight > b.scrollHeight - 2 * rowHeight);
    again((n) => n + 1);
  };
  return html`<div class="filter">
      <input type="search" value=${filter} onInput=${(e) => setFilter(e.target.value)} aria-label="filter"
        placeholder="method: tool: id: dir:c2s|s2c hop:down|up ses: srv: kind: status:ok|err|401|pending|late slow:500ms text, ! in front: not" />
      <span class="dim">${store.shown.length} of ${store.all.length}</span></div>
    <div class="list mono" ref=${box} onScroll=${scrolled}>
      <div style=${{ height: store.shown.length * rowHeight + "px" }}></div>
      <div class="rows" style=${{ transform: `translateY(${first * rowHeight}px)` }}>
        ${store.shown.slice(first, last).map((r) => html`<${Row} key=${r.v.seq || r.raw} r=${r} on=${r === chosen} open=${open} />`)}</div></div>`;
}

const Marked = ({ parts }) => html`<pre>${parts.map(([text, differs]) => differs ? html`<mark>${escaped(text)}</mark>` : escaped(text))}</pre>`;

/** Detail shows one record: a message at both ends of the bridge, with what differs marked. */
export function Detail({ store, r, open, close, may }) {
  const v = r.v, cause = store.bySeq.get(v.cause), made = cause ? undefined : store.all.find((o) => o.v.cause === v.seq && v.seq);
  const [before, after] = cause ? [cause, r] : made ? [r, made] : [r, undefined];
  const [left, right] = after ? diff(body(before), body(after)) : [[[body(r), false]]];
  const [said, say] = useState({});
  const command = said.r === r && said.text; // of another record: it is no longer shown
  const copy = (text) => { say({ r, text }); navigator.clipboard?.writeText(text).catch(() => {}); }; // it is shown, too: a browser may refuse
  const request = curl(store, r);
  const head = (r) => html`<div class="dim">${r.v.hop === "down" ? "client" : "server"} end, seq ${r.v.seq}, ${r.v.size ?? 0} bytes${r.v.bridge_us ? ", bridge " + ms(r.v.bridge_us / 1000) : ""}${r.v.str ? ", stream " + escaped(r.v.str) : ""}</div>`;
  return html`<section class="detail">
    <div class="filter"><strong>${subject(r)}</strong><span class="dim">${escaped(v.srv ?? "")} ${escaped(v.ses ?? "")} ${v.era ?? ""} ${v.tr ?? ""}</span>
      ${r.answer && html`<button onClick=${() => open(r.answer)}>answer</button>`}
      ${may === "act" && pending(r) && v.hop === "down" && v.dir === "c2s" && html`<button onClick=${() => post("sessions/" + v.ses + "/cancel", `{"id":${exactID(r)}}`).then(() => {}, (e) => alert(e.message))}>cancel</button>`}
      ${request && html`<button onClick=${() => copy(request)}>copy as curl</button>`}
      ${v.ses && v.msg && html`<button title="of the session, from the file that 'save trace' writes" onClick=${() => copy(replay(r))}>replay</button>`}
      <button onClick=${close}>close</button></div>
    ${command && html`<pre class="command">${escaped(command)}</pre>`}
    ${after ? html`<div class="both"><div>${head(before)}<${Marked} parts=${left} /></div><div>${head(after)}<${Marked} parts=${right} /></div></div>`
      : body(r) && html`<${Marked} parts=${left} />`}
    ${v.earlier && html`<p class="dim">It came before anybody looked: its text is not known.</p>`}
    ${v.http && html`<pre>${escaped(exchange(v.http))}</pre>`}
    ${v.redacted && html`<p class="dim">redacted: ${escaped([v.redacted].flat().join(", "))}</p>`}
    ${v.event && html`<pre>${escaped(JSON.stringify(v.event, null, 1))}</pre>`}</section>`;
}

function exchange(x) {
  const lines = (h, mark) => Object.entries(h ?? {}).flatMap(([k, all]) => [all].flat().map((one) => mark + k + ": " + one));
  return [`> ${x.method ?? ""} ${x.path ?? x.url ?? ""} ${x.proto ?? ""}`, ...lines(x.req, "> "), `< ${x.status ?? ""}`, ...lines(x.resp, "< ")].join("\n");
}
