// A Streamable HTTP server on the TypeScript SDK 1.x whose calls can be
// resumed: one tool, "slow", and an event store. It prints its URL on stderr.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';

// EventStore keeps events in order. An id names its stream: "stream/number".
class EventStore {
  events = [];
  async storeEvent(streamId, message) {
    const id = `${streamId}/${this.events.length}`;
    this.events.push({ id, streamId, message });
    return id;
  }
  async getStreamIdForEventId(id) {
    return this.events.find((e) => e.id === id)?.streamId;
  }
  async replayEventsAfter(lastId, { send }) {
    const at = this.events.findIndex((e) => e.id === lastId);
    const streamId = this.events[at].streamId;
    for (const e of this.events.slice(at + 1)) {
      if (e.streamId === streamId) await send(e.id, e.message);
    }
    return streamId;
  }
}

function newServer() {
  const server = new McpServer({ name: 'resumable', version: '1' });
  server.registerTool('slow', { inputSchema: { steps: z.number(), seconds: z.number() } }, async (args, extra) => {
    for (let i = 1; i <= args.steps; i++) {
      await new Promise((resolve) => setTimeout(resolve, (args.seconds * 1000) / args.steps));
      const params = { progressToken: extra._meta.progressToken, progress: i, total: args.steps };
      await extra.sendNotification({ method: 'notifications/progress', params });
    }
    return { content: [{ type: 'text', text: 'done' }] };
  });
  return server;
}

const sessions = new Map();
const http = createServer(async (req, res) => {
  let transport = sessions.get(req.headers['mcp-session-id']);
  if (!transport && req.headers['mcp-session-id']) {
    res.writeHead(404).end();
    return;
  }
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      eventStore: new EventStore(),
      onsessioninitialized: (id) => sessions.set(id, transport),
      onsessionclosed: (id) => sessions.delete(id),
    });
    await newServer().connect(transport);
  }
  await transport.handleRequest(req, res);
});
http.listen(0, '127.0.0.1', () => console.error(`listening url=http://127.0.0.1:${http.address().port}/mcp`));
process.on('SIGINT', () => process.exit(0));
