// The records that the page has, and the filter. Work is done in slices, so that the page scrolls
// meanwhile.
const maxRecords = 100_000;
const maxChars = 96_000_000;
const slice = 12; // milliseconds of work at a time
export const late = 10_000; // milliseconds

/** @typedef {{v: any, raw: string, t: number, answer?: Rec, cancelled?: boolean, over?: string}} Rec */

export class Store {
  /** @type {Rec[]} */ all = [];
  /** @type {Rec[]} */ shown = [];
  bySeq = new Map();
  open = new Map();
  early = new Map(); // answers whose requests are not there: what happens at a time comes in any order
  chars = 0;
  match = () => true;
  #run = 0;
  /** @type {{came: Rec[], gone: Set<Rec>} | undefined} */ #meanwhile; // of a filter that is at work
  #watch = new Set();
  #due = false;

  watch(f) { this.#watch.add(f); return () => this.#watch.delete(f); }

  changed() {
    if (this.#due) return;
    this.#due = true;
    setTimeout(() => { this.#due = false; for (const f of this.#watch) f(); }, 80);
  }

  /** Add takes lines of a trace. What is none is left out. */
  add(lines) {
    for (const raw of lines) {
      let v;
      try { v = JSON.parse(raw); } catch { continue; }
      if (v === null || typeof v !== "object" || typeof v.kind !== "string") continue;
      const r = { v, raw, t: Date.parse(v.ts) || 0 };
      if (v.earlier && this.open.has(place(v) + v.dir + " " + exactID(r))) continue; // it is there already
      insert(this.all, r);
      this.#meanwhile?.came.push(r);
      this.chars += raw.length;
      if (v.seq) this.bySeq.set(v.seq, r);
      this.#pair(r);
      if (this.match(r)) insert(this.shown, r);
    }
    if (this.all.length > maxRecords || this.chars > maxChars) this.#forget();
    this.changed();
  }

  /** Pair notes which answer belongs to which request. */
  #pair(r) {
    const v = r.v, at = place(v);
    const id = exactID(r);
    if (v.kind === "request") {
      const key = at + v.dir + " " + id, early = this.early.get(key), before = this.open.get(key);
      if (before?.v.earlier) {
        for (const list of [this.all, this.shown]) if (list.includes(before)) list.splice(list.indexOf(before), 1);
        this.#meanwhile?.gone.add(before);
      }
      if (early && early.v.seq > v.seq) { r.answer = early; this.early.delete(key); } else this.open.set(key, r);
    }
    if (v.kind === "note" && ["over", "unanswered"].includes(v.event?.code)) {
      const q = this.open.get(at + v.dir + " " + id);
      if (q) { q.over = v.event.text; this.open.delete(at + v.dir + " " + id); }
    }
    if (v.kind === "response") {
      const key = at + (v.dir === "c2s" ? "s2c" : "c2s") + " " + id;
      const q = this.open.get(key);
      if (q) { q.answer = r; this.open.delete(key); } else this.early.set(key, r);
      if (this.early.size > 1000) this.early.delete(this.early.keys().next().value);
    }
    if (v.method === "notifications/cancelled" && v.msg?.params) {
      const q = this.open.get(at + v.dir + " " + JSON.stringify(v.msg.params.requestId));
      if (q) q.cancelled = true;
    }
  }

  #forget() {
    let n = 0;
    for (; this.all.length - n > maxRecords * 0.9 || this.chars > maxChars * 0.9; n++) this.chars -= this.all[n].raw.length;
    const gone = new Set(this.all.splice(0, n));
    for (const r of gone) this.bySeq.delete(r.v.seq);
    for (const waits of [this.open, this.early]) for (const [key, r] of waits) if (gone.has(r)) waits.delete(key);
    let i = 0;
    while (i < this.shown.length && gone.has(this.shown[i])) i++;
    this.shown.splice(0, i);
    this.filter(this.match); // one that is at work has lost its place
  }

  /** Filter chooses the records anew, in slices. Those that come and go meanwhile count at the end. */
  async filter(match) {
    const run = ++this.#run;
    this.match = match;
    const from = this.all.slice(), shown = [], meanwhile = { came: [], gone: new Set() };
    this.#meanwhile = meanwhile;
    let until = performance.now() + slice;
    for (let i = 0; i < from.length; i++) {
      if (match(from[i])) shown.push(from[i]);
      if (i % 256 !== 0 || performance.now() < until) continue;
      await new Promise((done) => setTimeout(done));
      if (run !== this.#run) return;
      until = performance.now() + slice;
    }
    this.#meanwhile = undefined;
    for (const r of meanwhile.came) if (match(r)) insert(shown, r);
    this.shown = meanwhile.gone.size ? shown.filter((r) => !meanwhile.gone.has(r)) : shown;
    this.changed();
  }
}

/** Place says where a message passed. */
const place = (v) => v.ses + " " + v.hop + " ";

/** Insert appends a record, in front of those nearby whose numbers are greater. */
function insert(all, r) {
  let at = all.length;
  for (const least = at - 64; r.v.seq && at > 0 && at > least && all[at - 1].v.seq > r.v.seq;) at--;
  if (at === all.length) all.push(r); else all.splice(at, 0, r);
}

const keys = {
  method: (v) => v.method, tool: (v) => v.method === "tools/call" ? v.name : undefined, dir: (v) => v.dir, hop: (v) => v.hop,
  ses: (v) => v.ses, srv: (v) => v.srv, kind: (v) => v.kind, id: (v, r) => exactID(r),
};

/** Parse reads a filter, in the words that `mcp-bridge trace` has. */
export function parse(text) {
  const groups = new Map();
  for (const word of text.match(/\S+/g) ?? []) {
    const not = word.startsWith("!") && word.length > 1;
    const rest = not ? word.slice(1) : word;
    const at = rest.indexOf(":");
    const key = at > 0 && (keys[rest.slice(0, at)] || ["status", "slow"].includes(rest.slice(0, at))) ? rest.slice(0, at) : "";
    const is = condition(key, key ? rest.slice(at + 1) : rest);
    const group = key && key !== "slow" ? key + not : "" + groups.size;
    if (!groups.has(group)) groups.set(group, { not, any: [] });
    groups.get(group).any.push(is);
  }
  const all = [...groups.values()];
  return (r) => all.every((g) => g.any.some((is) => is(r)) !== g.not);
}

const plain = (s) => s.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

function condition(key, value) {
  if (key === "status") return (r) => status(r, value);
  if (key === "slow") {
    const m = /^([\d.]+)(us|ms|s|m)$/.exec(value);
    const least = m ? m[1] * { us: 0.001, ms: 1, s: 1000, m: 60000 }[m[2]] : Infinity;
    return (r) => took(r) >= least;
  }
  if (key) {
    const of = keys[key];
    if (key === "id") return (r) => of(r.v, r) === value || of(r.v, r) === JSON.stringify(value);
    const like = new RegExp("^" + value.split("*").map(plain).join(".*") + "$", "s");
    return (r) => { const x = of(r.v); return x !== undefined && like.test(x); };
  }
  const want = new RegExp(plain(value), "i");
  return (r) => want.test(r.raw);
}

function status(r, value) {
  const v = r.v;
  switch (value) {
    case "err": return failed(v);
    case "ok": return (v.kind === "response" || v.http?.status > 0) && !failed(v);
    case "pending": return pending(r);
    case "late": return took(r) >= late && !r.cancelled;
  }
  if (/^[1-5]xx$/.test(value)) return Math.floor((v.http?.status ?? 0) / 100) === +value[0];
  return v.code === +value || v.http?.status === +value;
}

export const pending = (r) => r.v.kind === "request" && !r.answer && !r.cancelled && !r.over;

export function failed(v) {
  return !!(v.code || v.failed || v.kind === "drop" || v.kind === "gap" || v.kind === "refused" || v.http?.status >= 400 || v.http?.err || v.event?.err);
}

/** Took returns milliseconds; undefined: nothing is known. */
export function took(r) {
  if (r.v.kind === "request") return r.answer ? r.answer.t - r.t : r.cancelled || r.over ? undefined : Date.now() - r.t;
  const us = r.v.http ? r.v.http.us : r.v.dur_us;
  return us === undefined ? undefined : us / 1000;
}

/** ExactID returns an id as it is spelled: numbers may be longer than JavaScript keeps. */
export function exactID(r) {
  const { raw, v } = r, at = v.id === undefined ? -1 : raw.indexOf(',"id":');
  return at < 0 ? "" : value(raw, at + 6);
}

/** Body returns the text of a message as it is spelled, "": there is none. */
export function body(r) {
  const at = r.raw.indexOf(',"msg":');
  if (at >= 0 && r.v.msg !== undefined) return value(r.raw, at + 7);
  const tail = r.v.tail ? " …[" + r.v.cut + " bytes are not kept]… " + r.v.tail : "";
  return (r.v.raw ?? r.v.b64 ?? "") + tail;
}

/** Value returns the JSON value that begins somewhere in a valid text. */
function value(raw, from) {
  let depth = 0, i = from;
  for (; i < raw.length; i++) {
    const c = raw[i];
    if (c === '"') {
      for (i++; raw[i] !== '"'; i++) if (raw[i] === "\\") i++;
      if (depth === 0) return raw.slice(from, i + 1);
    } else if (c === "{" || c === "[") depth++;
    else if (c === "}" || c === "]") {
      if (depth === 0) break;
      if (--depth === 0) return raw.slice(from, i + 1);
    } else if (c === "," && depth === 0) break;
  }
  return raw.slice(from, i);
}

/** Diff splits two texts into parts: [text, differs][]. */
export function diff(a, b) {
  const x = a.match(tokens) ?? [], y = b.match(tokens) ?? [];
  let head = 0, tail = 0;
  while (head < x.length && head < y.length && x[head] === y[head]) head++;
  while (tail < x.length - head && tail < y.length - head && x[x.length - 1 - tail] === y[y.length - 1 - tail]) tail++;
  const p = x.slice(head, x.length - tail), q = y.slice(head, y.length - tail);
  const [left, right] = p.length * q.length > 1_000_000 ? [p.map((t) => [t, true]), q.map((t) => [t, true])] : common(p, q);
  const ends = (all, mid) => join([[all.slice(0, head).join(""), false], ...mid, [all.slice(all.length - tail).join(""), false]]);
  return [ends(x, left), ends(y, right)];
}

const tokens = /"(?:[^"\\]|\\.)*"?|[\w.+-]+|[^]/gs;

function common(p, q) {
  const w = q.length + 1, n = new Uint16Array((p.length + 1) * w);
  for (let i = p.length - 1; i >= 0; i--) {
    for (let j = q.length - 1; j >= 0; j--) n[i * w + j] = p[i] === q[j] ? n[(i + 1) * w + j + 1] + 1 : Math.max(n[(i + 1) * w + j], n[i * w + j + 1]);
  }
  const left = [], right = [];
  for (let i = 0, j = 0; i < p.length || j < q.length;) {
    if (i < p.length && j < q.length && p[i] === q[j]) { left.push([p[i++], false]); right.push([q[j++], false]); }
    else if (j === q.length || i < p.length && n[(i + 1) * w + j] >= n[i * w + j + 1]) left.push([p[i++], true]);
    else right.push([q[j++], true]);
  }
  return [left, right];
}

function join(parts) {
  const all = [];
  for (const [text, differs] of parts) {
    if (all.length && all[all.length - 1][1] === differs) all[all.length - 1][0] += text;
    else if (text) all.push([text, differs]);
  }
  return all;
}
