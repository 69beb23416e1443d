// The server of gopeer on the TypeScript SDK 2.x: a tool for each step of the
// script. See serve.mjs for how it is reached.
import { setTimeout as pause } from 'node:timers/promises';
import { fromJsonSchema, inputRequired, McpServer, ResourceTemplate } from '@modelcontextprotocol/server';
import { serve } from '../peers/serve.mjs';

const patience = 15_000;
const says = (text) => ({ content: [{ type: 'text', text }] });

// The SDK's order of what it was answered depends on the era.
function sorted(x) {
  if (Array.isArray(x)) return x.map(sorted);
  if (x instanceof Object) return Object.fromEntries(Object.keys(x).sort().map((key) => [key, sorted(x[key])]));
  return x;
}

// hung counts the calls of each client that hung until they were cancelled.
const hung = new Map();

serve((notify) => {
  const server = new McpServer(
    { name: 'sdk', version: '1' },
    { capabilities: { logging: {}, resources: { subscribe: true, listChanged: true }, tools: { listChanged: true }, prompts: { listChanged: true } } },
  );
  const inputSchema = fromJsonSchema({ type: 'object', properties: { text: { type: 'string' } } });
  const add = (name, run) => server.registerTool(name, { inputSchema }, async ({ text }, ctx) => run(text, ctx));
  // In the words of 2026-07-28; on a connection of an older revision, the SDK
  // makes real requests of it.
  const ask = (name, question) =>
    add(name, (text, ctx) => {
      const got = ctx.mcpReq.inputResponses?.answer;
      return got ? says(JSON.stringify(sorted(got))) : inputRequired({ inputRequests: { answer: question(text) } });
    });
  const progress = (ctx, at) =>
    ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken: ctx.mcpReq._meta?.progressToken, progress: at, total: 3 } });

  add('echo', (text) => says(text));
  add('count', async (_text, ctx) => {
    if (ctx.mcpReq._meta?.progressToken !== undefined) for (const at of [1, 2, 3]) await progress(ctx, at);
    return says('done');
  });
  add('log', async (text, ctx) => {
    await ctx.mcpReq.log('warning', text);
    return says('done');
  });
  ask('elicit', (message) => inputRequired.elicit({ message, requestedSchema: { type: 'object', properties: { name: { type: 'string' } } } }));
  ask('sample', (text) => inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text } }], maxTokens: 10 }));
  // With params, which the Go SDK's client cannot do without.
  ask('roots', () => ({ method: 'roots/list', params: {} }));
  add('touch', async (uri) => {
    await (notify ? notify.resourceUpdated(uri) : server.server.sendResourceUpdated({ uri }));
    return says('done');
  });
  add('hang', async (who, ctx) => {
    await progress(ctx, 1);
    const { signal } = ctx.mcpReq;
    await new Promise((resolve) => (signal.aborted ? resolve() : signal.addEventListener('abort', resolve)));
    hung.set(who, (hung.get(who) ?? 0) + 1);
    return says('cancelled');
  });
  add('cancelled', async (who) => {
    for (const end = Date.now() + patience; Date.now() < end; await pause(10)) {
      if (hung.get(who) > 0) return says('a call was cancelled');
    }
    throw new Error('no call was cancelled');
  });
  for (let i = 0; i < 5; i++) server.registerResource(`item ${i}`, `test://item/${i}`, {}, () => ({ contents: [] }));
  server.registerResource('items', new ResourceTemplate('test://item/{id}', { list: undefined }), {}, () => ({ contents: [] }));
  server.registerPrompt('hello', {}, () => ({ messages: [] }));
  server.server.setRequestHandler('resources/subscribe', () => ({}));
  server.server.setRequestHandler('resources/unsubscribe', () => ({}));
  return server;
}, process.argv[2]);
