package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// measureWatching measures what it costs to have a bridge watched: the same calls through bridges that differ in nothing else. Each
// figure is compared with that of the bridge that nobody watches, in the same round. In a scene all bridges are new processes: where
// the memory of a process lies makes it about 1 % quicker or slower for as long as it lives. A ratio is the mean of all scenes, and
// behind ± stands its standard error. "off, once more" shows how much two equal bridges differ.
//
// The CPU time is that of one of the calls over HTTP. "all" is the client, the bridge, its server and the viewer together: its ratio is
// that of off to it (loadRatios). The last columns are for calls that come at a fixed rate: how many were made, and CPU time as before.
func (b *bench) measureWatching() error {
	collector, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	spans := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })}
	go spans.Serve(collector) // ends with the listener
	defer spans.Close()
	ways := []*watchWay{
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
	scenes, rounds := b.scenes*3/2, 20
	if b.quick {
		scenes, rounds = 1, 1
	}
	for range scenes {
		if err := b.measureWatchScene(ways, rounds); err != nil {
			return err
		}
	}
	fmt.Printf("watched: %d times new processes, %d rounds with each; ratios to off, with their standard errors\n", scenes, rounds)
	fmt.Printf("%-27s %9s %12s %9s %12s %7s %12s %12s %7s %12s %12s\n", "calls of 100 B", "HTTP, 32", "ratio", "Unix, one", "ratio",
		"CPU", "ratio", "all", fmt.Sprintf("%d/s", pacedCallsPerSecond), "CPU, ratio", "all")
	for _, w := range ways {
		fmt.Printf("%-27s %7.0f/s %12s %9s %12s %7s %12s %12s %5.0f/s %12s %12s\n", w.name,
			median(w.fullLoad.rates), w.full.rates, micros(median(w.times)), w.timeRatios, w.fullLoad.bridgeTime(), w.full.bridge, w.full.all,
			median(w.pacedLoad.rates), w.paced.bridge, w.paced.all)
	}
	fmt.Println()
	return nil
}

const (
	watchRoundTime      = 100 * time.Millisecond // for how long a bridge has calls of many clients in a round; where there are calls at a fixed rate, again for so long
	pacedEvery          = 4                      // in one of so many rounds there are calls at a fixed rate
	watchCalls          = 50                     // how many calls of the one client are timed in a round
	pacedCallsPerSecond = 2500                   // how many calls a second there are beside as many as can be made; each is four messages for who watches
)

// watchWay is a way to watch a bridge, and what was measured with it in all scenes.
type watchWay struct {
	name      string   // what the table calls the way
	args, env []string // flags of the bridge, and variables in its environment
	hasViewer bool     // somebody looks at the bridge

	samples                // what was measured in all scenes
	full, paced loadRatios // the ratios of samples.fullLoad and samples.pacedLoad
	timeRatios  ratios     // the ratios of samples.times
}

// samples is what was measured, in the order of the rounds.
type samples struct {
	fullLoad  loadSamples     // 32 clients, as many calls as can be made
	pacedLoad loadSamples     // the same clients, pacedCallsPerSecond
	times     []time.Duration // how long a call of one client takes over the Unix socket
}

// loadSamples is what was measured with calls over HTTP.
type loadSamples struct {
	rates       []float64 // calls a second
	bridge, all []float64 // microseconds of CPU time of a call: the bridge's, and that of all processes. Empty: the system does not tell
}

// loadRatios are the ratios of loadSamples to those of the bridge that nobody watches; of all it is the other way round: where all
// processes share the CPUs, that is the ratio of the throughput.
type loadRatios struct{ rates, bridge, all ratios }

// ratios has one ratio for each scene.
type ratios []float64

// add adds the geometric mean of the ratios of the values to those of the same round in off, unless there are none. The arithmetic
// mean of the ratios of what varies much is above 1 even if both are equal.
func add[T ~float64 | ~int64](r *ratios, values, off []T) {
	if len(values) == 0 {
		return
	}
	sum := 0.0
	for i := range values {
		sum += math.Log(float64(values[i]) / float64(off[i]))
	}
	*r = append(*r, math.Exp(sum/float64(len(values))))
}

// String returns the mean and its standard error; "": there are no ratios.
func (r ratios) String() string {
	if len(r) == 0 {
		return ""
	}
	n, mean, squares := float64(len(r)), 0.0, 0.0
	for _, x := range r {
		mean += x / n
	}
	for _, x := range r {
		squares += (x - mean) * (x - mean)
	}
	return fmt.Sprintf("%.3f ±%.3f", mean, math.Sqrt(squares/max(1, n-1)/n))
}

// measureWatchScene measures each way in as many rounds as rounds says, after one that does not count. In each round the ways come in another
// order at random: what comes behind a busy one may be slower.
func (b *bench) measureWatchScene(ways []*watchWay, rounds int) error {
	s := &scene{}
	defer s.close()
	bridges := make([]*watchedBridge, len(ways))
	for i, w := range ways {
		var err error
		if bridges[i], err = b.startWatched(s, w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	for round := range rounds + 1 {
		for _, i := range rand.Perm(len(ways)) {
			if err := bridges[i].measure(round%pacedEvery == 1); err != nil {
				return fmt.Errorf("%s: %w", ways[i].name, err)
			}
			if round == 0 {
				bridges[i].samples = samples{}
			}
		}
	}
	for i, w := range ways {
		w.addScene(&bridges[i].samples, &bridges[0].samples)
	}
	return nil
}

// addScene adds what was measured in a scene, and how it relates to what was measured of the bridge that nobody watches.
func (w *watchWay) addScene(x, off *samples) {
	w.full.add(&x.fullLoad, &off.fullLoad)
	w.paced.add(&x.pacedLoad, &off.pacedLoad)
	add(&w.timeRatios, x.times, off.times)
	w.fullLoad.addAll(&x.fullLoad)
	w.pacedLoad.addAll(&x.pacedLoad)
	w.times = append(w.times, x.times...)
}

// add adds the ratios of x to off, samples of the same scene without a watcher.
func (r *loadRatios) add(x, off *loadSamples) {
	add(&r.rates, x.rates, off.rates)
	add(&r.bridge, x.bridge, off.bridge)
	add(&r.all, off.all, x.all)
}

// addAll adds the samples of x.
func (l *loadSamples) addAll(x *loadSamples) {
	l.rates, l.bridge, l.all = append(l.rates, x.rates...), append(l.bridge, x.bridge...), append(l.all, x.all...)
}

// bridgeTime is the bridge's CPU time of a call; "": the system does not tell.
func (l *loadSamples) bridgeTime() string {
	if len(l.bridge) == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f µs", median(l.bridge))
}

// watchedBridge is a bridge of one scene, with its clients and what was measured with them.
type watchedBridge struct {
	manyClients          []client // share a session over HTTP
	oneClient            client   // has a session over the Unix socket, where there is one
	bridgePID, viewerPID int      // the process ids of the bridge and the viewer; viewerPID is 0 if nobody looks
	samples                       // what was measured in this scene
}

// startWatched starts a bridge, and its viewer; they end with the scene.
func (b *bench) startWatched(s *scene, way *watchWay) (*watchedBridge, error) {
	w := &watchedBridge{}
	process, at, err := startBridgeIn(way.env, b.binary, b.socket(), append(way.args, childArgs("stdio")...)...)
	if err != nil {
		return nil, err
	}
	s.cleanups = append(s.cleanups, process.close)
	w.bridgePID = process.cmd.Process.Pid
	c, err := s.open(streamable, at)
	if err != nil {
		return nil, err
	}
	for range 32 {
		w.manyClients = append(w.manyClients, c.(*peer).clone())
	}
	all := kinds()
	if w.oneClient, err = s.open(all[len(all)-1], at); err != nil {
		return nil, err
	}
	if way.hasViewer {
		err = w.startViewer(b, s)
	}
	return w, err
}

// startViewer starts a viewer that ends with the scene, and returns when it has shown something.
func (w *watchedBridge) startViewer(b *bench, s *scene) error {
	viewer := exec.Command(b.binary, "trace", "--json", strconv.Itoa(w.bridgePID))
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

// measure measures one round; paced: calls at a fixed rate, too.
func (w *watchedBridge) measure(paced bool) error {
	if err := w.measureLoad(&w.fullLoad, 0); err != nil {
		return err
	}
	if paced {
		if err := w.measureLoad(&w.pacedLoad, pacedCallsPerSecond); err != nil {
			return err
		}
	}
	t, err := timeCalls(w.oneClient, w.oneClient.messageForm(), watchCalls, 100)
	w.times = append(w.times, t)
	return err
}

// measureLoad has manyClients make calls for watchRoundTime, at most perSecond a second (0: as many as can be made), and adds what was
// measured to l.
func (w *watchedBridge) measureLoad(l *loadSamples, perSecond float64) error {
	bridge, all, untold := w.cpuTimes()
	begin := time.Now()
	rate, err := paced(w.manyClients, perSecond, watchRoundTime)
	if err != nil {
		return err
	}
	calls := rate * time.Since(begin).Seconds()
	bridgeNow, allNow, err := w.cpuTimes()
	l.rates = append(l.rates, rate)
	if err := errors.Join(untold, err); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		return err
	}
	l.bridge, l.all = append(l.bridge, float64(bridgeNow-bridge)/1e3/calls), append(l.all, float64(allNow-all)/1e3/calls)
	return nil
}

// cpuTimes returns the CPU time that the bridge has used so far, and that of all processes that have to do with its calls: this one, the
// bridge, its server and the viewer.
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
