// Package matrix holds one conversation through the bridge for every pair of
// transports and eras: a client of each transport that the bridge listens on,
// with a server of each that it connects to, each legacy or modern.
//
// Both ends are in this test: strict, small, and with nothing in common with
// the bridge's own code. So a step can say what one end sends, and what the
// other must get, and nothing else. What the transport itself has rules on, the
// wires check (client_*_test.go and server_*_test.go): statuses, headers, event
// ids, one message a frame, how a session ends.
//
// # Parts
//
//   - A pair is a row: transport and era of either side. In a row called "floor" client
//     and server talk without a bridge, which proves the test itself.
//   - A world is what one row needs while it runs: the server, the bridge, the clients.
//   - A script is a table: its steps are the columns, its pairs the rows. TestMatrix plays
//     each script in each of its rows (matrix_test.go).
//   - The script "bytes" (bytes_*_test.go) is for two legacy sides. Its steps hold both
//     ends, a bytesSession, and compare what is said with what is heard, byte for byte.
//   - The script "eras" (eras_*_test.go) is for the other pairs. A host plays the server in
//     its era, an eraClient is the client in its own, and a clientCall compares what both mean.
//
// # How a case is added
//
// A step: write func(t *testing.T, k *bytesSession) or, for "eras", func(t *testing.T, k *eraClient).
// It has the row's main client, and leaves it as it was: nothing may be under way when it returns,
// which the engine checks (settle). Add it to bytesSteps or erasSteps, in inBytes or inEra. Say there in
// which rows it runs, if not in all: bridged for what a floor cannot do, or another
// func(w *world) of the kind. A step that ends sessions or needs several takes the *world, opens
// clients of its own, and ends them.
//
// A transport: a clientWire or a serverWire, a name in ingresses or egresses, and a case in
// newWorld or dialTo.
//
// # Environment
//
// MATRIX_BRIDGE names another program to be tested than the one that is built
// here; MATRIX_TABLE a file for the tables; MATRIX_PATIENCE how long to wait for
// what does not come.
package matrix
