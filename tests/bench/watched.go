package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// measureWatching measures what it costs to have a bridge watched: the same calls through bridges that differ
// in nothing else, in turn. Each ratio is to the bridge that nobody watches, in the same round. CPU time is that of one
// of the 32 calls over HTTP: on a busy machine it is the figure that comes out the same again. In "all" are the client,
// the bridge, its server and the viewer: where they share the CPUs, its ratio is by how much throughput falls. The last
// three columns are for calls that come at a fixed rate: how many were made, and CPU time as before.
func (b *bench) measureWatching() error {
	collector, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	spans := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })}
	go spans.Serve(collector) // ends with the listener
	defer spans.Close()
	s, err := b.begin()
	if err != nil {
		return err
	}
	defer s.close()
	ways := []*watchedBridge{
		{name: "off"},
		{name: "--inspect, nobody looks", args: []string{"--inspect=127.0.0.1:0"}},
		{name: "file (--trace)", args: []string{"--trace", filepath.Join(b.dir, "trace.jsonl")}},
		{name: "viewer (mcp-bridge trace)", hasViewer: true},
		{name: "metrics (--metrics)", args: []string{"--metrics", "127.0.0.1:0"}},
		{name: "spans of 1 % of the calls", env: []string{
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://" + collector.Addr().String() + "/v1/traces",
			"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01"}},
		{name: "off, once more"},
	}
	for _, w := range ways {
		if err := w.start(b, s); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	rounds := b.rounds * 5
	if b.quick {
		rounds = 1
	}
	for round := range rounds {
		for i := range ways { // each comes first as often: what is measured first is a little quicker
			w := ways[(round+i)%len(ways)]
			if err := w.measure(b); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
		for _, w := range ways {
			w.compare(ways[0])
		}
	}
	fmt.Printf("%-34s %12s %8s %12s %8s %12s %8s %8s %12s %8s %8s\n", "watched: calls of 100 B", "HTTP, 32", "ratio", "Unix, one", "ratio", "bridge CPU", "ratio", "all",
		fmt.Sprintf("%d/s", pacedCallsPerSecond), "bridge", "all")
	for _, w := range ways {
		fmt.Printf("%-34s %10.0f/s %8.3f %12s %8.3f", w.name, median(w.rates), median(w.rateRatios), micros(median(w.times)), median(w.timeRatios))
		if len(w.fullLoad.bridge) > 0 {
			fmt.Printf(" %9.1f µs %8.3f %8.3f", median(w.fullLoad.bridge), median(w.fullLoad.bridgeRatios), median(w.fullLoad.allRatios))
		}
		fmt.Printf(" %10.0f/s", median(w.pacedRates))
		if len(w.pacedLoad.bridge) > 0 {
			fmt.Printf(" %8.3f %8.3f", median(w.pacedLoad.bridgeRatios), median(w.pacedLoad.allRatios))
		}
		fmt.Println()
	}
	fmt.Println()
	return nil
}

// watchedBridge is a way to watch a bridge, and what was measured with it.
type watchedBridge struct {
	name      string
	args, env []string
	hasViewer bool // somebody looks at it

	manyClients []client // of one session
	oneClient   client

	rates, rateRatios []float64
	times             []time.Duration
	timeRatios        []float64
	pacedRates        []float64

	bridgePID, viewerPID int // ids of processes; 0: nobody looks
	fullLoad, pacedLoad  usage
}

// usage is the CPU time of calls.
type usage struct {
	bridge, all             []float64 // microseconds of a call: the bridge's, and that of all processes. Empty: the system does not tell
	bridgeRatios, allRatios []float64
}

// start starts the bridge, and its viewer; they end with the scene.
func (w *watchedBridge) start(b *bench, s *scene) error {
	process, at, err := startBridgeIn(w.env, b.binary, b.socket(), append(w.args, childArgs("stdio")...)...)
	if err != nil {
		return err
	}
	s.cleanups = append(s.cleanups, process.close)
	w.bridgePID = process.cmd.Process.Pid
	c, err := s.open(streamable, at)
	if err != nil {
		return err
	}
	for range 32 {
		w.manyClients = append(w.manyClients, c.(*peer).clone())
	}
	all := kinds()
	if w.oneClient, err = s.open(all[len(all)-1], at); err != nil || !w.hasViewer {
		return err
	}
	viewer := exec.Command(b.binary, "trace", "--json", strconv.Itoa(process.cmd.Process.Pid))
	out, err := viewer.StdoutPipe()
	if err != nil {
		return err
	}
	if err := viewer.Start(); err != nil {
		return err
	}
	w.viewerPID = viewer.Process.Pid
	seen := make(chan error, 1)
	go func() { // ends with the viewer, which ends with its bridge
		_, err := out.Read(make([]byte, 1))
		seen <- err
		_, _ = io.Copy(io.Discard, out)
	}()
	s.cleanups = append(s.cleanups, func() { _ = viewer.Process.Kill(); _ = viewer.Wait() })
	for {
		if err := w.oneClient.call(w.oneClient.messageForm().request(ids.Add(1), 100)); err != nil {
			return err
		}
		select {
		case err := <-seen:
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// pacedCallsPerSecond is how many calls a second there are beside as many as can be made. Each is four messages for who watches.
const pacedCallsPerSecond = 2500

// measure measures once.
func (w *watchedBridge) measure(b *bench) error {
	r, err := w.measureUsage(&w.fullLoad, 0, b.measureTime)
	if err != nil {
		return err
	}
	paced, err := w.measureUsage(&w.pacedLoad, pacedCallsPerSecond, b.measureTime)
	if err != nil {
		return err
	}
	t, err := timeCalls(w.oneClient, w.oneClient.messageForm(), b.calls, 100)
	if err != nil {
		return err
	}
	w.rates, w.pacedRates, w.times = append(w.rates, r), append(w.pacedRates, paced), append(w.times, t)
	return nil
}

// compare notes how what was measured last relates to what was measured last without a watcher.
func (w *watchedBridge) compare(off *watchedBridge) {
	last := len(w.rates) - 1
	w.rateRatios = append(w.rateRatios, w.rates[last]/off.rates[last])
	w.timeRatios = append(w.timeRatios, float64(w.times[last])/float64(off.times[last]))
	w.fullLoad.compare(&off.fullLoad)
	w.pacedLoad.compare(&off.pacedLoad)
}

func (u *usage) compare(off *usage) {
	if last := len(u.bridge) - 1; last >= 0 {
		u.bridgeRatios = append(u.bridgeRatios, u.bridge[last]/off.bridge[last])
		u.allRatios = append(u.allRatios, off.all[last]/u.all[last])
	}
}

// measureUsage makes calls, at most so many a second, and notes the CPU time that they have used. It returns how many there were a
// second.
func (w *watchedBridge) measureUsage(u *usage, perSecond float64, d time.Duration) (rate float64, err error) {
	bridge, all, untold := w.cpuTimes()
	begin := time.Now()
	if rate, err = paced(w.manyClients, perSecond, d); err != nil {
		return 0, err
	}
	calls := rate * time.Since(begin).Seconds()
	bridgeNow, allNow, err := w.cpuTimes()
	if err := errors.Join(untold, err); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			return rate, nil
		}
		return 0, err
	}
	u.bridge, u.all = append(u.bridge, float64(bridgeNow-bridge)/1e3/calls), append(u.all, float64(allNow-all)/1e3/calls)
	return rate, nil
}

// cpuTimes returns the CPU time that the bridge has used, and all that have to do with its calls.
func (w *watchedBridge) cpuTimes() (bridge, all time.Duration, err error) {
	if bridge, err = cpuTime(w.bridgePID); err != nil {
		return 0, 0, err
	}
	others := append(childrenOf(w.bridgePID), os.Getpid())
	if w.viewerPID != 0 {
		others = append(others, w.viewerPID)
	}
	all = bridge
	for _, pid := range others {
		t, err := cpuTime(pid)
		if err != nil {
			return 0, 0, err
		}
		all += t
	}
	return bridge, all, nil
}
