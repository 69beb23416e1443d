// The script of client.mjs on the TypeScript SDK 2.x, in both eras. A job also
// has the version that its client is pinned to; without one, the client asks
// the server.
import {
  Client,
  LOG_LEVEL_META_KEY,
  SSEClientTransport,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const patience = 30_000;
const blob = 'é'.repeat(1 << 19);

// The SDK has a WebSocket no more, but takes any transport.
class WebSocketTransport {
  constructor(url) {
    this.url = url;
  }
  start() {
    this.socket = new WebSocket(this.url, 'mcp');
    this.socket.onmessage = (e) => this.onmessage?.(JSON.parse(e.data));
    this.socket.onclose = () => this.onclose?.();
    return new Promise((resolve, reject) => {
      this.socket.onopen = resolve;
      this.socket.onerror = () => reject(new Error('the WebSocket failed'));
    });
  }
  async send(message) {
    this.socket.send(JSON.stringify(message));
  }
  async close() {
    this.socket?.close();
  }
}

function transportTo({ command, url, via }) {
  if (command) return new StdioClientTransport({ command: command[0], args: command.slice(1), stderr: 'inherit', env: process.env });
  if (url.startsWith('ws:')) return new WebSocketTransport(url);
  if (via === 'sse') return new SSEClientTransport(new URL(url));
  return new StreamableHTTPClientTransport(new URL(url));
}

function negotiation(version) {
  if (version === '') return { versionNegotiation: { mode: 'auto' } };
  if (version >= '2026-07-28') return { versionNegotiation: { mode: { pin: version } } };
  return { supportedProtocolVersions: [version] };
}

// play runs the script and returns what the client saw. One that is stuck must
// not keep from view what has become of the others.
async function play(job) {
  let stuck;
  const late = new Promise((_, reject) => {
    stuck = setTimeout(() => reject(new Error(`stuck in ${job.at}`)), 3 * patience);
  });
  return Promise.race([playAll(job), late]).finally(() => clearTimeout(stuck));
}

async function playAll(job) {
  const { to, plan, version } = job;
  const name = `client-${to.n}.`;
  const out = { elicited: [], sampled: [], tools: [], pages: 0, resources: [], templates: [], prompts: [] };
  const logs = [];
  const updated = [];
  const progress = {};
  let changed = () => {};
  let logging = false;

  function note(list, item) {
    list.push(item);
    changed();
  }

  // until waits for a state of what the handlers collect.
  async function until(what, ok) {
    const end = AbortSignal.timeout(patience);
    while (!ok()) {
      await new Promise((resolve, reject) => {
        changed = resolve;
        end.onabort = () => reject(new Error(`${what} did not come`));
      });
    }
  }

  const client = new Client(
    { name: 'interop', version: '1' },
    // Without a plan for roots it would be asked for them whenever the server likes.
    { capabilities: { ...(plan.roots && { roots: { listChanged: true } }), sampling: {}, elicitation: {} }, ...negotiation(version) },
  );
  client.setRequestHandler('elicitation/create', (r) => {
    note(out.elicited, r.params.message);
    return { action: 'accept', content: { name, username: name } };
  });
  client.setRequestHandler('sampling/createMessage', (r) => {
    note(out.sampled, r.params.messages[0].content.text);
    const text = `Hello from 👨‍👩‍👧 ${name}`;
    return { model: 'test-model', role: 'assistant', content: { type: 'text', text }, stopReason: 'endTurn' };
  });
  if (plan.roots) client.setRequestHandler('roots/list', () => ({ roots: [{ uri: `file:///srv/${name}`, name: 'data' }] }));
  client.setNotificationHandler('notifications/message', (n) => note(logs, `${n.params.level}: ${n.params.data}`));
  client.setNotificationHandler('notifications/resources/updated', (n) => note(updated, n.params.uri));
  client.setNotificationHandler('notifications/progress', (n) => {
    note((progress[n.params.progressToken] ??= []), `${n.params.progress}/${n.params.total}`);
  });
  const modern = () => client.getProtocolEra() === 'modern';

  // call returns the whole result as text.
  async function call(what, progressToken, signal) {
    const params = { name: what.name, arguments: what.args, _meta: {} };
    if (progressToken) params._meta.progressToken = progressToken;
    if (logging && modern()) params._meta[LOG_LEVEL_META_KEY] = 'debug';
    return JSON.stringify(await client.callTool(params, { timeout: patience, signal }));
  }

  // started waits for the first progress of a call.
  const started = (token) => until('progress', () => progress[token]?.length > 0);

  // The SDK's own methods for lists hide the pages.
  async function pages(method, key) {
    const all = [];
    let cursor;
    do {
      const page = await client.request({ method, params: cursor && { cursor } });
      all.push(...page[key].map((x) => JSON.stringify(x)));
      cursor = page.nextCursor;
      if (key === 'tools') out.pages++;
    } while (cursor);
    return all;
  }

  // echo sends a megabyte there and back.
  async function echo() {
    const args = Object.fromEntries(Object.entries(plan.echo.args).map(([k, v]) => [k, v.replaceAll('{blob}', blob)]));
    const text = await call({ name: plan.echo.name, args });
    out.echo = text.replaceAll(blob, '{blob}');
    if (out.echo.length > 1 << 10) throw new Error(`of a megabyte came back ${text.length} characters that are something else`);
  }

  const matching = () => logs.filter((l) => l.includes(plan.logMatch));
  const takeLogs = () => until('log messages', () => matching().length >= plan.logs);

  async function log() {
    if (!modern()) await client.setLoggingLevel('debug');
    if (!plan.log) return; // see subscribe
    logging = true;
    await call(plan.log);
    logging = false;
    await takeLogs();
  }

  // subscribe returns what ends the subscription.
  async function subscribeTo(uri) {
    if (!modern()) {
      await client.subscribeResource({ uri });
      return () => client.unsubscribeResource({ uri });
    }
    const subscription = await client.listen({ resourceSubscriptions: [uri] });
    if (!subscription.honoredFilter.resourceSubscriptions?.includes(uri)) {
      throw new Error(`the subscription covers ${JSON.stringify(subscription.honoredFilter)}`);
    }
    return () => subscription.close();
  }

  async function subscribe() {
    const unsubscribe = await subscribeTo(plan.subscribe);
    if (plan.touch) await call(plan.touch);
    await until('the update', () => updated.includes(plan.subscribe));
    if (!plan.log) await takeLogs();
    if (plan.touch?.name === 'toggle-subscriber-updates') await call(plan.touch);
    await unsubscribe();
  }

  // cancel gives a call up at its first progress; the session must go on.
  async function cancel() {
    const stop = new AbortController();
    const result = call(plan.slow, 'cancel', stop.signal);
    result.catch(() => {});
    await started('cancel');
    stop.abort(new Error('given up'));
    await result.then(
      () => { throw new Error('the cancelled call was answered'); },
      (err) => { if (!String(err.message).includes('given up')) throw err; },
    );
    out.cancelled = true;
    if (plan.cancelled) out.told = await call(plan.cancelled);
    await (modern() ? call(plan.progress) : client.ping());
  }

  // drop cuts the connections below a call at its first progress.
  async function drop() {
    const result = call(plan.slow, 'drop');
    if (to.cut) {
      await started('drop');
      await fetch(to.cut);
    }
    out.resumed = await result;
    await until('all progress', () => progress.drop.length >= plan.slowSteps);
  }

  const transport = transportTo(to);
  const step = (what, done) => ((job.at = what), done).catch((err) => { throw new Error(what, { cause: err }); });
  await step('initialize', client.connect(transport));
  out.version = client.getNegotiatedProtocolVersion();
  out.server = client.getServerVersion().name;
  out.caps = JSON.stringify(client.getServerCapabilities());
  out.tools = await step('list tools', pages('tools/list', 'tools'));
  if (client.getServerCapabilities().resources) {
    out.resources = await step('list resources', pages('resources/list', 'resources'));
    out.templates = await step('list templates', pages('resources/templates/list', 'resourceTemplates'));
    out.prompts = await step('list prompts', pages('prompts/list', 'prompts'));
  }
  out.result = await step('call with progress', call(plan.progress, 'progress'));
  await until('progress', () => progress.progress?.length >= plan.steps);
  if (plan.echo) await step('a megabyte', echo());
  if (plan.logs) await step('log', log());
  if (plan.elicit) out.elicit = await step('elicit', call(plan.elicit));
  if (plan.sample) out.sample = await step('sample', call(plan.sample));
  if (plan.roots) out.roots = await step('roots', call(plan.roots));
  if (plan.subscribe) await step('subscribe', subscribe());
  await step('cancel', cancel());
  if (to.drop) await step('drop', drop());
  if (!modern() && transport.terminateSession) await step('end the session', transport.terminateSession());
  await client.close();
  // What came twice or should not have come at all is in here, too.
  out.progress = progress.progress;
  out.dropped = progress.drop;
  if (plan.logs) out.logs = matching();
  out.updated = [...new Set(updated)].sort();
  return out;
}

// Node ends when nothing is open any more, whatever is waited for.
const awake = setInterval(() => {}, patience);
const jobs = JSON.parse(process.argv[2]);
const ended = await Promise.allSettled(jobs.map(play));
clearInterval(awake);
const told = (err) => (err?.cause ? `${err.message}: ${told(err.cause)}` : String(err));
console.log(JSON.stringify(ended.map((e) => (e.status === 'fulfilled' ? { transcript: e.value } : { error: told(e.reason) }))));
// A client that failed may still have something open.
if (ended.some((e) => e.status === 'rejected')) process.exit(0);
