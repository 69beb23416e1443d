package main

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/inspect"
	"github.com/mcp-bridge/mcp-bridge/internal/metrics"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// metricsFlags say whether there are metrics, and where.
type metricsFlags struct {
	addr  string // --metrics: the address at which Prometheus is answered, HOST:PORT once check was called; "": there are no metrics
	tools bool   // --metrics-tools: calls have the name of the tool as a label
}

// register adds the flags of metricsFlags to fs, and gives the fields their defaults.
func (f *metricsFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "metrics", "", "")
	fs.BoolVar(&f.tools, "metrics-tools", false, "")
}

// check returns the first mistake in these flags that can be found without opening the address (nil: there is none), and completes the
// address: a port alone is one of 127.0.0.1.
func (f *metricsFlags) check() error {
	if f.addr == "" {
		if f.tools {
			return usagef("--metrics-tools needs --metrics ADDRESS")
		}
		return nil
	}
	address := f.addr
	if !strings.Contains(address, ":") {
		address = ":" + address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return usagef("--metrics %q: write HOST:PORT, or a port", f.addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	f.addr = net.JoinHostPort(host, port)
	return nil
}

// serve counts what observer tells, and answers the requests of Prometheus until stop is called. servers and namesInUse are those of
// metrics.Options. Without --metrics it does nothing.
func (f *metricsFlags) serve(observer *observe.Observer, servers func() []metrics.Server, namesInUse func() []string, log hclog.Logger) (stop func(), err error) {
	if f.addr == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		return nil, errors.Join(errors.New("--metrics cannot be served"), err)
	}
	m := metrics.New(metrics.Options{ToolLabels: f.tools, Servers: servers, NamesInUse: namesInUse})
	unwatch := m.Watch(observer)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", refuseBrowserPages(m.Handler(), l.Addr()))
	end := inspect.Serve(l, mux, scrapeTimeout)
	log.Info("metrics", "url", "http://"+l.Addr().String()+"/metrics")
	return func() {
		unwatch()
		end()
	}, nil
}

// scrapeTimeout is how long the answer to a request of Prometheus may take.
const scrapeTimeout = 30 * time.Second

// refuseBrowserPages returns h for a listener at addr, but for requests that a page in a browser sends, which are refused; also those of a
// page whose host name has come to mean this machine (DNS rebinding). The names of servers and tools are none of its business.
func refuseBrowserPages(h http.Handler, addr net.Addr) http.Handler {
	tcp, ok := addr.(*net.TCPAddr)
	local := ok && tcp.IP.IsLoopback()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		if site != "" && site != "none" || r.Header.Get("Origin") != "" || local && !access.IsLoopbackAddr(r.Host) {
			http.Error(w, "the metrics are not for pages of other origins", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
