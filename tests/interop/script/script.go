// Package script is what the clients of both SDKs do with a server, and what
// they saw: the language between the tests and the programs that are the
// clients (gopeer, client.mjs).
package script

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A Target is what a client is pointed at: a command that it runs as a stdio
// server, or a URL. Cut is a URL that cuts every TCP connection on the way.
type Target struct {
	Command []string `json:"command"` // the command of a stdio server; nil: URL is used
	URL     string   `json:"url"`     // ws://..., unix:PATH, or what Via says
	Via     string   `json:"via"`     // "sse" for HTTP+SSE; "" for Streamable HTTP
	N       int      `json:"n"`       // the client's number
	Cut     string   `json:"cut"`     // a URL that cuts every TCP connection on the way; "": there is none
	Drop    bool     `json:"drop"`    // do the last step, with or without Cut
}

// Name returns how the client calls itself in everything that it says: "client-N.".
func (to Target) Name() string { return fmt.Sprintf("client-%d.", to.N) }

// A Call names a tool and its arguments.
type Call struct {
	Name string         `json:"name"` // the name of the tool
	Args map[string]any `json:"args"` // its arguments
}

// A Plan says with which tools of a server each step of the script is done. A
// step that is not given is one that the server does not offer. In texts, "{n}"
// is the number of the client, and "{blob}" a megabyte: with their own names
// in what they say, clients that get something of one another do not go
// unnoticed.
type Plan struct {
	Pages     int    `json:"pages"`     // how many pages tools/list has; 0 is 1
	Echo      *Call  `json:"echo"`      // gives its "{blob}" back
	Progress  *Call  `json:"progress"`  // sends progress while it runs
	Steps     int    `json:"steps"`     // how many progress notifications Progress sends
	Log       *Call  `json:"log"`       // nil: the server logs on subscribe
	LogMatch  string `json:"logMatch"`  // only log messages with this text count; "": all do
	Logs      int    `json:"logs"`      // how many log messages count
	Elicit    *Call  `json:"elicit"`    // asks the user something
	Sample    *Call  `json:"sample"`    // asks the client's model something
	Roots     *Call  `json:"roots"`     // asks for the roots of the client
	Subscribe string `json:"subscribe"` // a resource that changes
	Touch     *Call  `json:"touch"`     // makes the resource Subscribe change; nil: it changes by itself
	Slow      *Call  `json:"slow"`      // runs long: it is cancelled, and its connection is cut (Target.Cut)
	Cancelled *Call  `json:"cancelled"` // tells how many calls of the session were cancelled
	SlowSteps int    `json:"slowSteps"` // how many progress notifications Slow sends
}

// A Job is what one client has to do.
type Job struct {
	To      Target `json:"to"`      // the server that the client is pointed at
	Plan    Plan   `json:"plan"`    // what to do, as Plan.Of returns it for this client
	Version string `json:"version"` // the protocol version that the client is pinned to; "": none
}

// An Outcome is what became of a Job. Error, if not "", says what went wrong.
type Outcome struct {
	Transcript Transcript `json:"transcript"` // what the client saw
	Error      string     `json:"error"`      // what went wrong; "": nothing
}

// A Transcript is what a client saw. The same client and the same server must
// give the same transcript with and without a bridge between them.
type Transcript struct {
	Version   string   `json:"version"`   // the protocol version that was agreed on; "": the client does not tell
	Server    string   `json:"server"`    // the name of the server
	Caps      string   `json:"caps"`      // the server's capabilities
	Pages     int      `json:"pages"`     // how many pages the list of tools had
	Tools     []string `json:"tools"`     // the tools that were listed, each whole
	Resources []string `json:"resources"` // the resources that were listed, each whole
	Templates []string `json:"templates"` // the templates of resources that were listed, each whole
	Prompts   []string `json:"prompts"`   // the prompts that were listed, each whole
	Progress  []string `json:"progress"`  // the progress that Plan.Progress sent
	Result    string   `json:"result"`    // the result of Plan.Progress
	Echo      string   `json:"echo"`      // the result of Plan.Echo
	Logs      []string `json:"logs"`      // the log messages that count (Plan.LogMatch)
	Elicit    string   `json:"elicit"`    // the result of Plan.Elicit
	Elicited  []string `json:"elicited"`  // messages that the user was shown
	Sample    string   `json:"sample"`    // the result of Plan.Sample
	Sampled   []string `json:"sampled"`   // prompts that the model was given
	Roots     string   `json:"roots"`     // the result of Plan.Roots
	Updated   []string `json:"updated"`   // the resources that were said to have changed
	Cancelled bool     `json:"cancelled"` // the client gave a call up, and the session went on
	Told      string   `json:"told"`      // what the server says about calls that were given up (Plan.Cancelled)
	Dropped   []string `json:"dropped"`   // progress of a call whose connection was cut
	Resumed   string   `json:"resumed"`   // the result of the call whose connection was cut
}

// Of returns the plan of the client with number n: n stands in place of "{n}".
func (p Plan) Of(n int) (out Plan) {
	data, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal([]byte(strings.ReplaceAll(string(data), "{n}", strconv.Itoa(n))), &out)
	}
	if err != nil {
		panic(err)
	}
	return out
}

// Anonymous returns the transcript of the client to with "{n}" in place of its number
// in what is its own: its name, and the resource p.Subscribe, to which only it has
// subscribed. p is the plan for all clients. What belongs to other clients, and must not
// be there, stays as it is.
func (t Transcript) Anonymous(to Target, p Plan) (out Transcript) {
	data, err := json.Marshal(t)
	if err == nil {
		err = json.Unmarshal([]byte(strings.ReplaceAll(string(data), to.Name(), "client-{n}.")), &out)
	}
	if err != nil {
		panic(err)
	}
	for _, list := range [][]string{out.Updated, out.Logs} {
		for i := range list {
			list[i] = strings.ReplaceAll(list[i], p.Of(to.N).Subscribe, p.Subscribe)
		}
	}
	return out
}
