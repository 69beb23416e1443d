package streamclient

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/toolheader"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	maxModernListPages = 100              // how many pages the bridge itself asks for of a server's list of tools
	modernListTimeout  = 10 * time.Second // how long it may take to get all pages of the list that the bridge itself asks for
	maxModernTools     = 1 << 15          // how many tools modernTools remembers

	// modernToolTimeout is how long a call waits for the list of tools; then the call goes
	// on without. Most tools have no headers, and a server that wants some says so (ME4).
	// After that the call waits for the whole modernListTimeout.
	modernToolTimeout = 2 * time.Second

	// modernListPause is how long the bridge does not ask for the list again after the
	// server took too long to answer or refuse the last time. A call that needs the list
	// (ME4) asks for it all the same.
	modernListPause = time.Minute
)

// modernTool is what is known of a tool.
type modernTool struct {
	params     []toolheader.Param // the arguments that a call repeats in headers; nil: none
	err        error              // why the tool cannot be called: its annotations are invalid; nil: it can
	learnedSeq uint64             // the number under which this was learned, also that no list has the tool; the newer, the higher. 0: nothing is known
}

// modernTools remembers the tools that were seen in lists, and the names that
// no list had. Nothing depends on its being right: a server that wants other
// headers says so (ME4).
type modernTools struct {
	mu              sync.Mutex            // guards what follows
	lastLearnedSeq  uint64                // learnedSeq of what was learned last
	byName          map[string]modernTool // what was learned, by the name of the tool
	listing         *modernListing        // the walk through the list that goes on; nil: the bridge itself does not ask for the list now
	noListingBefore time.Time             // until then only a call that needs the list has the bridge ask for it (modernListPause); zero: any call has
}

// modernListing is one walk of the bridge itself through the server's list of tools.
type modernListing struct {
	began time.Time     // when the walk began
	done  chan struct{} // closed when the walk has ended
	ok    bool          // the server has answered each request of the walk, perhaps with an error; to be read after done
}

// lookUp returns what was learned of a tool after afterSeq. If that is nothing, it returns the
// walk to wait for; if mustBegin, the caller has to begin the walk. l is nil if the tool is
// known, and also during modernListPause, unless the walk is needed or goes on already.
func (t *modernTools) lookUp(name string, afterSeq uint64, needed bool) (tool modernTool, l *modernListing, mustBegin bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tool = t.byName[name]; tool.learnedSeq > afterSeq {
		return tool, nil, false
	}
	if t.listing != nil {
		return modernTool{}, t.listing, false
	}
	if !needed && time.Now().Before(t.noListingBefore) {
		return modernTool{}, nil, false
	}
	t.listing = &modernListing{began: time.Now(), done: make(chan struct{})}
	return modernTool{}, t.listing, true
}

// endListing ends a walk that was made for the sake of the tool called name, of which nothing was learned after
// afterSeq before. ok: the server has answered, perhaps with an error. If the tool was in no page, that is noted.
func (t *modernTools) endListing(l *modernListing, ok bool, name string, afterSeq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listing = nil
	l.ok = ok
	close(l.done)
	switch now := time.Now(); {
	case ok && t.byName[name].learnedSeq <= afterSeq: // there is none in the list: it need not be looked for again
		t.put(name, modernTool{})
	case !ok && now.Sub(l.began) > modernToolTimeout:
		t.noListingBefore = now.Add(modernListPause)
	}
}

// put enters what was learned of the tool called name, and returns it with its learnedSeq. If there are
// too many tools, any one of the others makes room: it is asked for again when somebody calls it. The
// caller holds mu.
func (t *modernTools) put(name string, tool modernTool) modernTool {
	t.lastLearnedSeq++
	tool.learnedSeq = t.lastLearnedSeq
	if t.byName == nil {
		t.byName = make(map[string]modernTool)
	}
	if _, known := t.byName[name]; !known && len(t.byName) >= maxModernTools {
		for other := range t.byName {
			delete(t.byName, other)
			break
		}
	}
	t.byName[name] = tool
	return tool
}

// learn enters the tools of a list, also those that are invalid, and returns the invalid ones that
// were not known to be invalid.
func (t *modernTools) learn(tools []toolheader.Tool) (excluded []toolheader.Tool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.noListingBefore = time.Time{} // somebody was answered
	for _, tool := range tools {
		if tool.Err != nil && t.byName[tool.Name].err == nil {
			excluded = append(excluded, tool)
		}
		t.put(tool.Name, modernTool{params: tool.Params, err: tool.Err})
	}
	return excluded
}

// forget forgets all tools, because the server's list has changed. The next call of a tool has the bridge ask for the list
// again, but during modernListPause only one that needs it (lookUp).
func (t *modernTools) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.byName)
}

// toolOf returns what is known of the tool that call is for, learned after afterSeq.
// If that is nothing, the bridge asks for the list of tools first; so few
// clients call what they have not seen in a list that one does it for all who
// wait (ME3, ME4). The zero modernTool means that nothing could be learned: in
// modernToolTimeout, or modernListTimeout if it is needed; because the server gave no
// answer; or because the list is not asked for now (modernListPause). The call goes on without,
// unless its ctx is done, which also ends the wait.
func (c *modernConn) toolOf(call *modernCall, name string, afterSeq uint64, needed bool) modernTool {
	wait := modernToolTimeout
	if needed {
		wait = modernListTimeout
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		tool, l, mustBegin := c.tools.lookUp(name, afterSeq, needed)
		switch {
		case l == nil:
			return tool
		case mustBegin && !c.Go(func() { c.tools.endListing(l, c.fetchTools(call), name, afterSeq) }):
			c.tools.endListing(l, false, name, afterSeq)
		case time.Since(l.began) >= wait: // others have waited for it in vain
			return modernTool{}
		}
		select {
		case <-l.done:
			if !l.ok {
				return modernTool{}
			}
		case <-timeout.C:
			return modernTool{}
		case <-call.ctx.Done():
			return modernTool{}
		}
	}
}

// fetchTools asks for all pages of the server's list of tools; c.tools learns
// them. Each request has the _meta of call, without progressToken and log
// level: nobody would get the progress and log messages. It does not end with
// call, because other calls wait for it, too. False: a page got no answer. An
// error response is an answer.
func (c *modernConn) fetchTools(call *modernCall) bool {
	ctx, cancel := context.WithTimeout(httpdial.Unattended(c.Context()), modernListTimeout) // the call itself asks for a sign-in
	defer cancel()
	params := []byte("{}")
	if meta := call.msg.Lookup("params", "_meta"); meta != nil {
		params = jsonrpc.With(params, "_meta", jsonrpc.Without(meta, "progressToken", era.KeyLogLevel))
	}
	for range maxModernListPages {
		page := c.newCall(ctx, jsonrpc.NewRequest(c.ownID(), "tools/list", params))
		page.isOwn = true
		answer, fault := c.ask(page)
		if fault != nil {
			c.log.With(fault.LogAttrs()...).Warn("could not ask for the tools before one is called")
			return false
		}
		next := answer.Lookup("result", "nextCursor")
		if _, ok := jsonrpc.Text(next); !ok {
			return true
		}
		params = jsonrpc.With(params, "cursor", next)
	}
	c.log.Warn("the server's list of tools has no end", "pages", maxModernListPages)
	return true
}

// withoutInvalidTools returns the answer to call; if that is a list of tools, without those whose
// annotations are invalid (ME3). c.tools learns all tools of the list, the invalid ones with what is wrong with them.
func (c *modernConn) withoutInvalidTools(call *modernCall, answer jsonrpc.Message) jsonrpc.Message {
	if call.method != "tools/list" || answer.IsError() {
		return answer
	}
	for _, tool := range c.tools.learn(toolheader.Tools(answer.Result())) {
		c.log.Warn("tool left out: its definition is invalid", "tool", fmt.Sprintf("%.100q", tool.Name), "reason", tool.Err)
	}
	if kept, excluded := toolheader.RemoveInvalidTools(answer.Result()); len(excluded) > 0 {
		return answer.WithResult(kept)
	}
	return answer
}
