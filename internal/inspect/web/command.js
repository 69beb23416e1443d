// The commands that say again what a record shows. They hold no secret: where one was, is a name in capitals.
import { body } from "./store.js";

const quoted = (s) => "'" + String(s).replace(/[^\x20-\x7e\u00a0-\uffff]/g, "").replace(/'/g, "'\\''") + "'"; // what a terminal would obey is left out
const own = new Set(["host", "connection", "content-length", "transfer-encoding", "accept-encoding", "user-agent", "x-forwarded-for", "forwarded"]);
const mark = "[redacted]";

/** Exchange returns the HTTP exchange that has carried a message to a server, as far as one can tell; undefined: it is not known. */
function exchange(store, r) {
  if (r.v.http) return r.v;
  const at = store.all.lastIndexOf(r);
  for (let i = Math.max(0, at - 200); i < store.all.length && i < at + 2000; i++) {
    const { v, t } = store.all[i];
    if (v.kind === "http" && v.http?.method === "POST" && v.ses === r.v.ses && v.hop === r.v.hop && v.http.in === r.v.size && t <= r.t) return v;
  }
}

/** Curl returns the command that sends a message again; "": it has not gone to a server over HTTP, or is not kept as a whole. */
export function curl(store, r) {
  const v = r.v;
  if (v.hop !== "down" && v.hop !== "up" || v.http === undefined && (v.dir !== "c2s" || !["http", "sse"].includes(v.tr) || v.cut || v.msg === undefined)) return "";
  const x = exchange(store, r)?.http ?? {};
  const url = x.url ?? (v.hop === "down" ? "http://BRIDGE" : "https://SERVER") + (x.path ?? "/mcp");
  const lines = ["curl --globoff -i -X " + quoted(x.method ?? "POST") + " --url " + quoted(url.startsWith("/") ? "http://BRIDGE" + url : url)];
  for (const [name, value] of Object.entries(x.req ?? usual(v))) {
    if (own.has(name.toLowerCase())) continue;
    for (const one of [value].flat()) lines.push("-H " + quoted(name + ": " + String(one).replaceAll(mark, name.toUpperCase().replaceAll("-", "_"))));
  }
  if (!v.http) lines.push("--data-raw " + quoted(body(r)).replaceAll(mark, "SECRET"));
  return lines.join(" \\\n  ");
}

/** Usual returns the headers of a message whose exchange is not known. */
function usual(v) {
  const h = { "Content-Type": "application/json", Accept: "application/json, text/event-stream" };
  const revision = v.msg?.params?._meta?.["io.modelcontextprotocol/protocolVersion"];
  if (revision === undefined) return v.method === "initialize" ? h : { ...h, "Mcp-Session-Id": "MCP_SESSION_ID" };
  if (v.name !== undefined) h["Mcp-Name"] = v.name;
  return { ...h, "Mcp-Protocol-Version": revision, "Mcp-Method": v.method };
}

/** Replay returns the command that says a session again, from the file that "save trace" writes. */
export function replay(r) {
  return "mcp-bridge replay --allow-redacted --session " + quoted(r.v.ses ?? "") + " --hop " + (r.v.hop === "up" ? "up" : "down") + " mcp-bridge.trace.jsonl -- COMMAND";
}
