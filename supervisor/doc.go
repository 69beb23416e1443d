// Package supervisor starts, watches and stops child processes. It does not read what
// they write to stdout, and knows nothing of MCP. Package stdio uses it for servers that
// are commands; it suits any program that must leave no process behind.
//
// [Start] starts what a [Spec] describes and returns a [Process], whose Stdin and Stdout
// belong to the caller. [Process.Done] is closed when the child has exited, and
// [Process.ExitError] and [Process.StderrTail] say how it ended. [Process.Stop] ends it;
// see the examples. [Environ] makes the environment for Spec.Env. [Subreap] and
// [StartWatchdog] are for main: they find the descendants that a process group does not
// hold together.
//
// The methods of a Process, and Start, may be called concurrently.
//
// # What it promises
//
// A child is started without a shell, in a process group of its own. [Process.Stop]
// closes the child's stdin and waits, sends SIGTERM to the group and waits, and sends
// SIGKILL to the group. It returns when the group is empty and the child is reaped.
// Every Process must be stopped, also one that has exited by itself. Until Stop, the
// process id of the child is not free, so no signal can reach another process that got
// the same id.
//
// If the child is docker, podman or nerdctl and runs a container, it is only the client of
// a container engine. When such a client ends without saying how the container ended,
// for instance by SIGKILL, Stop kills the container too (see Spec.OnContainer). To learn
// the id of the container, Start adds --cidfile to the child's arguments, with a file of
// its own in the directory for temporary files. A container in the background (--detach)
// is left alone.
//
// The rest depends on the system:
//
//   - Linux: a child also dies when this process is killed (parent-death signal). After
//     [Subreap], Stop also ends descendants that left the group, and orphans are reaped.
//     After [StartWatchdog], grandchildren and containers die with this process as well.
//   - macOS and the BSDs: there are the group and the watchdog, but no parent-death
//     signal. Descendants that make a session of their own are not found. A child is
//     reaped when it exits; child.wait in process_bsd.go says what follows from that.
//   - Windows: a job object ends with this process. There is no SIGTERM; Stop sends
//     CTRL_BREAK in its place, which reaches only children that share our console. When
//     the child exits, its descendants are ended at once.
//
// # Goroutines
//
// Each Process has two goroutines: one waits for the exit, one reads stderr. Stop has a
// third, which closes stdin. They end before Stop returns, unless Stop returns an error because a process survived SIGKILL.
// On Linux one goroutine, locked to its thread, starts all children; it lives while there
// is any Process. Subreap has one goroutine until its stop function is called.
package supervisor
