// The timeline: spans from request to answer in lanes, on a canvas.
import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { failed, pending } from "./store.js";

const laneHeight = 18;
const lanes = ["client → server", "server → client", "notifications", "streams and HTTP", "processes"];

function laneOf(v) {
  if (v.kind === "request") return v.dir === "c2s" ? 0 : 1;
  if (v.kind === "notification") return 2;
  if (v.kind === "http" || v.kind === "stream" || v.kind === "refused") return 3;
  if (v.kind === "process" || v.kind === "stderr" || v.kind === "noise") return 4;
  return -1;
}

export function Timeline({ store, open }) {
  const canvas = useRef(null);
  const [span, setSpan] = useState(60_000);
  const [end, setEnd] = useState(0); // 0: now
  const drawn = useRef([]);
  const draw = () => { if (canvas.current) drawn.current = paint(canvas.current, store, span, end || Date.now()); };
  useEffect(() => {
    draw();
    const stop = store.watch(draw);
    const timer = setInterval(() => { if (!end) draw(); }, 500);
    return () => { stop(); clearInterval(timer); };
  }, [span, end]);
  const pick = (e) => {
    const hit = drawn.current.findLast((d) => e.offsetX >= d.x - 2 && e.offsetX <= d.x + d.w + 2 && e.offsetY >= d.y && e.offsetY <= d.y + laneHeight);
    if (hit) open(hit.r);
  };
  return html`<div class="filter">
      <button onClick=${() => setSpan(span / 2)}>closer</button><button onClick=${() => setSpan(Math.min(span * 2, 86_400_000))}>wider</button>
      <button onClick=${() => setEnd((end || Date.now()) - span / 2)}>earlier</button><button onClick=${() => setEnd(0)}>now</button>
      <span class="dim">${Math.round(span / 1000)} s; a click opens a message</span></div>
    <canvas ref=${canvas} onClick=${pick} role="img" aria-label="requests and their answers over time"></canvas>`;
}

function paint(canvas, store, span, end) {
  const w = canvas.clientWidth, h = canvas.clientHeight, scale = devicePixelRatio || 1;
  canvas.width = w * scale;
  canvas.height = h * scale;
  const g = canvas.getContext("2d");
  g.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const colour = { text: style.color, bad: style.getPropertyValue("--bad"), good: style.getPropertyValue("--accent") };
  g.font = "12px system-ui";
  g.fillStyle = colour.text;
  const start = end - span, left = 130, all = [];
  const x = (t) => left + (t - start) / span * (w - left);
  const rows = new Map(); // of a session and lane: when each of its rows is free again
  const top = new Map();
  let next = 20;
  for (let i = 0; i <= 6; i++) g.fillText(new Date(start + span * i / 6).toLocaleTimeString(), left + i * (w - left) / 6 - 20, 12);
  for (let i = first(store.shown, start - 600_000); i < store.shown.length && all.length < 5000; i++) {
    const r = store.shown[i], lane = laneOf(r.v);
    if (lane < 0 || r.t > end) continue;
    const until = r.answer ? r.answer.t : r.v.http ? r.t + (r.v.http.us ?? 0) / 1000 : pending(r) ? Date.now() : r.t;
    if (until < start) continue;
    const key = (r.v.ses ?? "") + " " + lane;
    if (!rows.has(key)) {
      rows.set(key, []);
      top.set(key, next);
      g.fillStyle = colour.text;
      g.fillText((r.v.ses ?? r.v.srv ?? "") + " " + lanes[lane], 4, next + 13, left - 8);
      next += laneHeight * 3;
    }
    const free = rows.get(key);
    let row = free.findIndex((t) => t <= r.t);
    if (row < 0) row = Math.min(free.length, 2);
    free[row] = until;
    const at = Math.max(x(r.t), left), y = top.get(key) + row * laneHeight, width = Math.max(x(until) - at, 2);
    if (y > h) continue;
    g.fillStyle = failed(r.v) || r.answer && failed(r.answer.v) || pending(r) ? colour.bad : colour.good;
    g.globalAlpha = 0.55;
    g.fillRect(at, y, width, laneHeight - 3);
    g.globalAlpha = 1;
    g.fillStyle = colour.text;
    if (width > 40) g.fillText((r.v.method ?? r.v.kind) + " " + (r.v.name ?? ""), at + 3, y + 12, width - 6);
    all.push({ x: at, y, w: width, r });
  }
  return all;
}

/** First returns the index of the first record that is not before a time: they are nearly sorted. */
function first(all, t) {
  let low = 0, high = all.length;
  while (low < high) {
    const mid = low + high >> 1;
    if (all[mid].t < t) low = mid + 1; else high = mid;
  }
  return low;
}
