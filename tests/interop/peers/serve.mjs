// How the servers on the TypeScript SDK 2.x are reached:
//
//   stdio    both eras, as the SDK's own entry point does it: the first message decides
//   legacy   stdio, wired by hand as before the SDK knew of 2026-07-28
//   http     Streamable HTTP: 2026-07-28, and sessions for the revisions before it
//   plain    Streamable HTTP as the SDK serves it by itself: both eras, no sessions
//
// newServer makes a server for a connection, a session or a request. It gets
// what tells of changes: in the modern era of HTTP, where a server is one
// request long, its own messages reach nobody.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { localhostHostValidation, NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from '@modelcontextprotocol/node';
import { createMcpHandler, isLegacyRequest } from '@modelcontextprotocol/server';
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';

export async function serve(newServer, mode = 'stdio') {
  if (mode === 'stdio') serveStdio(() => newServer());
  else if (mode === 'legacy') await newServer().connect(new StdioServerTransport());
  else if (mode === 'http') serveHTTP(newServer, false);
  else if (mode === 'plain') serveHTTP(newServer, true);
  else throw new Error(`no such transport: ${mode}`);
}

function serveHTTP(newServer, plain) {
  const handler = createMcpHandler(() => newServer(handler.notify), plain ? {} : { legacy: 'reject' });
  const modern = toNodeHandler(handler);
  const sessions = new Map();

  async function legacy(req, res, body) {
    const id = req.headers['mcp-session-id'];
    let transport = sessions.get(id);
    if (!transport && id) {
      res.writeHead(404).end();
      return;
    }
    if (!transport) {
      transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
        onsessionclosed: (id) => sessions.delete(id),
      });
      await newServer().connect(transport);
    }
    await transport.handleRequest(req, res, body);
  }

  const hostIsOurs = localhostHostValidation();
  const http = createServer(async (req, res) => {
    if (!hostIsOurs(req, res)) return;
    try {
      const chunks = await Array.fromAsync(req);
      const text = Buffer.concat(chunks).toString();
      const body = text === '' ? undefined : JSON.parse(text);
      if (!plain && await isLegacyRequest(await toWebRequest(req, body))) await legacy(req, res, body);
      else await modern(req, res, body);
    } catch (err) {
      console.error(err);
      if (!res.headersSent) res.writeHead(400).end();
    }
  });
  http.listen(0, '127.0.0.1', () => console.error(`listening url=http://127.0.0.1:${http.address().port}/mcp`));
  process.on('SIGINT', () => process.exit(0));
}
