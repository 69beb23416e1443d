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

// Server is what there is to tell about a configured server.
type Server struct {
	Name          string  `json:"name"`
	Description   string  `json:"description,omitempty"`
	Remote        bool    `json:"remote"` // reached at a URL
	Ready         bool    `json:"ready"`
	Running       int     `json:"running"` // processes, or connections
	LastError     string  `json:"lastError,omitempty"`
	Sessions      int     `json:"sessions"`
	Calls         int     `json:"calls"`            // in progress
	OldestCallAge float64 `json:"oldest,omitempty"` // age of the oldest of them, in seconds
}

// Options say what is shown. All but Addresses, Restart and Logger are needed.
type Options struct {
	Name string // of this run: "serve", "connect files"

	// Addresses are those at which clients reach the bridge; nil: its client has started it.
	Addresses []string

	Observer *observe.Observer
	Recorder *trace.Recorder
	Ring     *trace.Ring // the Inspector has the Recorder fill it while somebody looks

	// Servers returns the configured servers.
	Servers func() []Server

	// Restart replaces a server by a new one: calls in progress may finish. nil: that cannot be done.
	Restart func(server string) error

	// CancelCall cancels a call in progress of a session; false: there is no such call.
	CancelCall func(session string, id jsonrpc.ID) bool

	// WaitingCalls returns the requests that have no answer yet: see observe.Observer.WaitingCalls.
	WaitingCalls func() []observe.WaitingCall

	// Level and SetLevel are those of the log.
	Level    func() hclog.Level
	SetLevel func(hclog.Level)

	// Logger is told who has done what. nil means no logging.
	Logger hclog.Logger
}

// Inspector answers requests about a running bridge. Its methods may be called concurrently.
type Inspector struct {
	opts         Options
	began        time.Time
	epoch        string // stands before positions in the Ring: those of another Inspector mean nothing here
	state        *state
	stats        *stats
	stop         func() // ends the watching of events
	viewers      viewers
	ctx          context.Context // of all streams: done once Close is called
	closeStreams context.CancelFunc
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

// Page returns the Handler of a listener for browsers: the page, its API and profiles. With local, the
// listener is bound to this machine alone.
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

// setSecurityHeaders sets what a browser has to know about every reply.
func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; "+
		"base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// apiHandler answers a request of the API that by has sent, who may do so.
type apiHandler func(w http.ResponseWriter, r *http.Request, by caller)

// requireRight lets handle answer those who have the needed right, and refuses others.
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

// handler returns the Handler of the API.
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
	PID      int       `json:"pid"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Began    time.Time `json:"began"`
	Servers  []string  `json:"servers"` // their names
	LogLevel string    `json:"logLevel"`
	Right    string    `json:"right"`   // of who asks
	Viewers  int       `json:"viewers"` // open streams

	Addresses []string `json:"addresses,omitempty"` // at which clients reach the bridge
}

func (i *Inspector) about(right Right) About {
	a := About{PID: os.Getpid(), Name: i.opts.Name, Version: buildinfo.Version(), Began: i.began, Right: right.String(), Viewers: i.viewers.count(), Servers: []string{}, LogLevel: i.opts.Level().String(), Addresses: i.opts.Addresses}
	for _, s := range i.opts.Servers() {
		a.Servers = append(a.Servers, s.Name)
	}
	return a
}

// serverWithStats is a Server with what was counted in the last minute, while somebody looked.
type serverWithStats struct {
	Server
	lastMinute
}

func (i *Inspector) servers() []serverWithStats {
	list := []serverWithStats{}
	now := time.Now()
	for _, s := range i.opts.Servers() {
		s.LastError = i.opts.Recorder.Redact(s.LastError)
		list = append(list, serverWithStats{s, i.stats.measure(s.Name, now)})
	}
	return list
}

// sessions returns the sessions, with how many requests wait in each.
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

func (i *Inspector) restart(w http.ResponseWriter, r *http.Request, by caller) {
	if i.opts.Restart == nil {
		http.Error(w, "a server cannot be restarted here: its process serves one session, which ends with it", http.StatusConflict)
		return
	}
	name := r.PathValue("name")
	i.finishAction(w, i.opts.Restart(name), "the server is restarted", "server", name, "by", by.name)
}

func (i *Inspector) endSession(w http.ResponseWriter, r *http.Request, by caller) {
	s := i.state.session(r.PathValue("name"))
	if s == nil {
		http.Error(w, "there is no such session", http.StatusNotFound)
		return
	}
	s.Stop()
	i.finishAction(w, nil, "the session is ended", "server", s.Server, "session", s.Name, "by", by.name)
}

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

func (i *Inspector) kill(w http.ResponseWriter, r *http.Request, by caller) {
	pid, _ := strconv.Atoi(r.PathValue("pid"))
	kill := i.state.killFunc(pid)
	if kill == nil {
		http.Error(w, "no server has this process", http.StatusNotFound)
		return
	}
	i.finishAction(w, kill(), "the process is killed", "pid", pid, "by", by.name)
}

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

// finishAction answers that an action was taken, and logs it with text and fields. If err is not nil, it answers with 409 and logs nothing.
func (i *Inspector) finishAction(w http.ResponseWriter, err error, text string, fields ...any) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	i.opts.Logger.Info(text, fields...)
	w.WriteHeader(http.StatusNoContent)
}

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
