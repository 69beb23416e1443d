package inspect

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Server is what the API says of a configured server.
type Server struct {
	Name          string  `json:"name"`                  // the name of the server
	Description   string  `json:"description,omitempty"` // what the configuration says of the server; "": nothing
	Remote        bool    `json:"remote"`                // the server is reached at a URL; false: the bridge runs it
	Ready         bool    `json:"ready"`                 // the server runs, or nothing speaks against starting it
	Running       int     `json:"running"`               // how many processes run; of a remote server, how many connections are open
	LastError     string  `json:"lastError,omitempty"`   // what was wrong last; "": nothing since the server has answered
	Sessions      int     `json:"sessions"`              // how many sessions clients have with it
	Calls         int     `json:"calls"`                 // how many calls of clients are in progress
	OldestCallAge float64 `json:"oldest,omitempty"`      // for how many seconds the oldest call in progress has waited; 0: there is none, or it has not waited for a second
}

// Options say what is shown. All but Addresses, Restart and Logger are needed.
type Options struct {
	Name string // what this run is called: "serve", or "connect" and the name of the server

	// Addresses are those at which clients reach the bridge; nil: its client has started it.
	Addresses []string

	Observer *observe.Observer // what is watched: it tells its Watchers what passes and what happens
	Recorder *trace.Recorder   // makes records of what passes, also for others than the Inspector
	Ring     *trace.Ring       // holds the latest records; the Inspector has the Recorder fill it while somebody looks

	// Servers returns the configured servers, with their state now.
	Servers func() []Server

	// Restart replaces a server by a new one: calls in progress may finish. nil: that cannot be done.
	Restart func(server string) error

	// CancelCall cancels the call in progress of a session that has this id; false: there is no such call.
	CancelCall func(session string, id jsonrpc.ID) bool

	// WaitingCalls returns the requests, in both directions, that have no answer yet.
	WaitingCalls func() []observe.WaitingCall

	Level    func() hclog.Level // returns the level of the log
	SetLevel func(hclog.Level)  // changes the level of the log

	// Logger gets a line for each action that somebody has taken over the API. nil means no logging.
	Logger hclog.Logger
}

// Inspector answers requests about a running bridge. Its methods may be called concurrently.
type Inspector struct {
	opts         Options            // New's, with a Logger
	began        time.Time          // when the Inspector was made, with the run
	epoch        string             // tells this Inspector from others: it stands before the positions in the Ring that viewers get, because those of another one mean nothing here
	state        *state             // which sessions and processes there are
	stats        *stats             // what was answered in the last minute, while somebody has a stream open
	stop         func()             // ends the watching of events
	viewers      viewers            // who has a stream open
	ctx          context.Context    // the context of all streams: done once Close is called
	closeStreams context.CancelFunc // ends ctx
}

// New returns an Inspector, which from now on keeps track of sessions and processes. Close ends it.
func New(o Options) *Inspector {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	i := &Inspector{opts: o, began: time.Now(), state: newState(o.Recorder.Redact), stats: newStats()}
	i.epoch = strconv.FormatInt(i.began.UnixNano(), 36)
	i.stop = o.Observer.WatchEvents(i.state)
	i.ctx, i.closeStreams = context.WithCancel(context.Background())
	return i
}

// Close ends all streams, and the watching of events. It does not wait for the streams' Handlers.
func (i *Inspector) Close() {
	i.closeStreams()
	i.stop()
}

// Control returns the Handler of the API for a socket that nobody but the user can reach: whoever connects may
// do everything.
func (i *Inspector) Control() http.Handler { return i.handler(&guard{}) }

// Page returns the Handler of a listener for browsers: the page, its API and profiles of the process. t says who may do what. local says
// that the listener is bound to this machine alone: then requests for another host name are refused.
func (i *Inspector) Page(t *Tokens, local bool) http.Handler {
	g := &guard{tokens: t, loopbackOnly: local}
	api := i.handler(g)
	mux := http.NewServeMux()
	mux.Handle("/api/", api)
	act := func(h http.HandlerFunc) http.Handler {
		return i.requireRight(g, RightAct, func(w http.ResponseWriter, r *http.Request, _ caller) { h(w, r) })
	}
	mux.Handle("GET /debug/pprof/", act(pprof.Index))
	mux.Handle("GET /debug/pprof/cmdline", http.NotFoundHandler()) // there may be secrets in it
	mux.Handle("GET /debug/pprof/profile", act(pprof.Profile))
	mux.Handle("GET /debug/pprof/trace", act(pprof.Trace))
	mux.Handle("GET /debug/pprof/symbol", act(pprof.Symbol))
	mux.Handle("/", pageHandler())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		if no := g.check(r); no != nil {
			no.write(w)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// setSecurityHeaders sets the headers of every reply that tell a browser what the page may do, and that nothing is cached.
func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; "+
		"base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// apiHandler answers a request of the API. by is who has sent it, and has the right to.
type apiHandler func(w http.ResponseWriter, r *http.Request, by caller)

// requireRight returns a Handler that refuses requests of those who do not have the needed right, and has handle answer the others.
func (i *Inspector) requireRight(g *guard, needed Right, handle apiHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		by, no := g.authorize(r, needed)
		if no != nil {
			no.write(w)
			return
		}
		handle(w, r, by)
	})
}

// handler returns the Handler of the API, for a listener with the guard g.
func (i *Inspector) handler(g *guard) http.Handler {
	mux := http.NewServeMux()
	see := func(path string, of func() any) {
		mux.Handle("GET /api/v1/"+path, i.requireRight(g, RightView, func(w http.ResponseWriter, _ *http.Request, _ caller) { reply(w, of()) }))
	}
	mux.Handle("GET /api/v1/{$}", i.requireRight(g, RightView, func(w http.ResponseWriter, _ *http.Request, by caller) { reply(w, i.about(by.right)) }))
	see("servers", func() any { return map[string]any{"servers": i.servers()} })
	see("sessions", func() any { return map[string]any{"sessions": i.sessions()} })
	see("processes", func() any { return map[string]any{"processes": i.state.processList()} })
	see("notes", func() any { return map[string]any{"notes": i.state.noteList()} })
	mux.Handle("GET /api/v1/records", i.requireRight(g, RightView, i.records))
	mux.Handle("GET /api/v1/stream", i.requireRight(g, RightView, i.stream))
	mux.Handle("POST /api/v1/servers/{name}/restart", i.requireRight(g, RightAct, i.restart))
	mux.Handle("POST /api/v1/sessions/{name}/end", i.requireRight(g, RightAct, i.endSession))
	mux.Handle("POST /api/v1/sessions/{name}/cancel", i.requireRight(g, RightAct, i.cancel))
	mux.Handle("POST /api/v1/processes/{pid}/kill", i.requireRight(g, RightAct, i.kill))
	mux.Handle("POST /api/v1/log", i.requireRight(g, RightAct, i.setLevel))
	return mux
}

// About is what the API says of the bridge itself, at /api/v1/.
type About struct {
	PID      int       `json:"pid"`      // the process id of the bridge
	Name     string    `json:"name"`     // what the run is called: "serve", or "connect" and the name of the server
	Version  string    `json:"version"`  // the version of the program
	Began    time.Time `json:"began"`    // when the run has begun
	Servers  []string  `json:"servers"`  // the names of the servers
	LogLevel string    `json:"logLevel"` // the level of the log now
	Right    string    `json:"right"`    // what the one who asks may do: view or act
	Viewers  int       `json:"viewers"`  // how many streams are open

	Addresses []string `json:"addresses,omitempty"` // the addresses at which clients reach the bridge
}

// about returns what the API says of the bridge now to somebody with this right.
func (i *Inspector) about(right Right) About {
	a := About{PID: os.Getpid(), Name: i.opts.Name, Version: buildinfo.Version(), Began: i.began, Right: right.String(), Viewers: i.viewers.count(), Servers: []string{}, LogLevel: i.opts.Level().String(), Addresses: i.opts.Addresses}
	for _, s := range i.opts.Servers() {
		a.Servers = append(a.Servers, s.Name)
	}
	return a
}

// serverWithStats is a Server with what was counted of its answers in the last minute. That is only counted while somebody has a
// stream open.
type serverWithStats struct {
	Server
	lastMinute
}

// servers returns what the API says of the servers now.
func (i *Inspector) servers() []serverWithStats {
	list := []serverWithStats{}
	now := time.Now()
	for _, s := range i.opts.Servers() {
		s.LastError = i.opts.Recorder.Redact(s.LastError)
		list = append(list, serverWithStats{s, i.stats.measure(s.Name, now)})
	}
	return list
}

// sessions returns what the API says of the open sessions now, with how many requests of the client wait in each.
func (i *Inspector) sessions() []session {
	list := i.state.sessionList()
	waiting := map[string]int{}
	for _, w := range i.opts.WaitingCalls() {
		if w.Dir == observe.ToServer {
			waiting[w.Session.Name]++
		}
	}
	for at := range list {
		list[at].Waiting = waiting[list[at].Name]
	}
	return list
}

// restart answers a request to restart a server.
func (i *Inspector) restart(w http.ResponseWriter, r *http.Request, by caller) {
	if i.opts.Restart == nil {
		http.Error(w, "a server cannot be restarted here: its process serves one session, which ends with it", http.StatusConflict)
		return
	}
	name := r.PathValue("name")
	i.finishAction(w, i.opts.Restart(name), "the server is restarted", "server", name, "by", by.name)
}

// endSession answers a request to end a session.
func (i *Inspector) endSession(w http.ResponseWriter, r *http.Request, by caller) {
	s := i.state.session(r.PathValue("name"))
	if s == nil {
		http.Error(w, "there is no such session", http.StatusNotFound)
		return
	}
	s.Stop()
	i.finishAction(w, nil, "the session is ended", "server", s.Server, "session", s.Name, "by", by.name)
}

// cancel answers a request to cancel a call of a session. The body has the id of the call.
func (i *Inspector) cancel(w http.ResponseWriter, r *http.Request, by caller) {
	var wanted struct{ ID json.RawMessage }
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10)).Decode(&wanted)
	id, ok := jsonrpc.ParseID(wanted.ID)
	if err != nil || !ok {
		http.Error(w, `write {"id":42}`, http.StatusBadRequest)
		return
	}
	session := r.PathValue("name")
	if !i.opts.CancelCall(session, id) {
		http.Error(w, "the session has no such call in progress", http.StatusNotFound)
		return
	}
	i.finishAction(w, nil, "the call was cancelled", "session", session, "call", id.String(), "by", by.name)
}

// kill answers a request to kill a server's process.
func (i *Inspector) kill(w http.ResponseWriter, r *http.Request, by caller) {
	pid, _ := strconv.Atoi(r.PathValue("pid"))
	kill := i.state.killFunc(pid)
	if kill == nil {
		http.Error(w, "no server has this process", http.StatusNotFound)
		return
	}
	i.finishAction(w, kill(), "the process is killed", "pid", pid, "by", by.name)
}

// setLevel answers a request to change the level of the log. The body has the level.
func (i *Inspector) setLevel(w http.ResponseWriter, r *http.Request, by caller) {
	var wanted struct{ Level string }
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&wanted)
	level := hclog.LevelFromString(wanted.Level)
	if err != nil || level == hclog.NoLevel {
		http.Error(w, `write {"level":"debug"}: trace, debug, info, warn, error or off`, http.StatusBadRequest)
		return
	}
	i.opts.SetLevel(level)
	i.finishAction(w, nil, "log level changed", "level", strings.ToLower(level.String()), "by", by.name)
}

// finishAction answers a request for an action: with 204 if the action was taken, which it logs with text and fields; with 409 and
// the text of err if err is not nil.
func (i *Inspector) finishAction(w http.ResponseWriter, err error, text string, fields ...any) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	i.opts.Logger.Info(text, fields...)
	w.WriteHeader(http.StatusNoContent)
}

// reply answers a request with v as JSON.
func reply(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "the bridge has made a mistake", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(body, '\n')) // the client may have gone
}
