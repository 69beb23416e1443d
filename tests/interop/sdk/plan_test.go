package sdk

// A call names a tool and its arguments.
type call struct {
	Name string         `json:"name"`
	Args map[string]any `json:"args"`
}

// A plan says with which tools of a server each step of the script is done. A
// step that is not given is one that the server does not offer.
type plan struct {
	Progress  *call  `json:"progress"`
	Steps     int    `json:"steps"`    // progress notifications of Progress
	Log       *call  `json:"log"`      // nil: the server logs on subscribe
	LogMatch  string `json:"logMatch"` // only log messages with this text count
	Logs      int    `json:"logs"`     // how many of these there are
	Elicit    *call  `json:"elicit"`
	Sample    *call  `json:"sample"`
	Roots     *call  `json:"roots"`
	Subscribe string `json:"subscribe"` // a resource that changes
	Touch     *call  `json:"touch"`     // makes it change; nil: it does so by itself
	Slow      *call  `json:"slow"`      // for cancel, and for drop and resume
	SlowSteps int    `json:"slowSteps"`
}

// A transcript is what a client saw. The same client and the same server must
// give the same transcript with and without a bridge between them.
type transcript struct {
	Version   string   `json:"version"`
	Server    string   `json:"server"`
	Caps      string   `json:"caps"`
	Tools     []string `json:"tools"`
	Resources []string `json:"resources"`
	Templates []string `json:"templates"`
	Prompts   []string `json:"prompts"`
	Progress  []string `json:"progress"`
	Result    string   `json:"result"`
	Logs      []string `json:"logs"`
	Elicit    string   `json:"elicit"`
	Elicited  []string `json:"elicited"` // messages that the user was shown
	Sample    string   `json:"sample"`
	Sampled   []string `json:"sampled"` // prompts that the model was given
	Roots     string   `json:"roots"`
	Updated   string   `json:"updated"`
	Cancelled bool     `json:"cancelled"` // the client gave a call up, and the session went on
	Dropped   []string `json:"dropped"`   // progress of a call whose connection was cut
	Resumed   string   `json:"resumed"`   // the result of that call
}

// The Go SDK's conformance server has no tool that asks for roots in a session
// with an initialize handshake, and none that takes longer than 150 ms.
var goPlan = plan{
	Progress:  &call{"test_tool_with_progress", map[string]any{}},
	Steps:     3,
	Log:       &call{"test_tool_with_logging", map[string]any{}},
	LogMatch:  "Tool ",
	Logs:      3,
	Elicit:    &call{"test_elicitation", map[string]any{"message": "Who are you?"}},
	Sample:    &call{"test_sampling", map[string]any{"prompt": "Say hello"}},
	Subscribe: "test://watched-resource",
	Slow:      &call{"test_tool_with_progress", map[string]any{}},
	SlowSteps: 3,
}

var nodePlan = plan{
	Progress:  &call{"trigger-long-running-operation", map[string]any{"duration": 0.3, "steps": 3}},
	Steps:     3,
	LogMatch:  "Received Subscribe Resource request",
	Logs:      1,
	Elicit:    &call{"trigger-elicitation-request", map[string]any{}},
	Sample:    &call{"trigger-sampling-request", map[string]any{"prompt": "Say hello"}},
	Roots:     &call{"get-roots-list", map[string]any{}},
	Subscribe: "demo://resource/dynamic/text/1",
	Touch:     &call{"toggle-subscriber-updates", map[string]any{}},
	Slow:      &call{"trigger-long-running-operation", map[string]any{"duration": 2, "steps": 20}},
	SlowSteps: 20,
}

var demoPlan = plan{
	Progress:  &call{"slow", map[string]any{"seconds": 0.3, "steps": 3}},
	Steps:     3,
	Log:       &call{"log", map[string]any{"level": "warning", "message": "watch out"}},
	LogMatch:  "watch out",
	Logs:      1,
	Elicit:    &call{"elicit", map[string]any{"message": "Who are you?"}},
	Sample:    &call{"sample", map[string]any{"prompt": "Say hello"}},
	Roots:     &call{"roots", map[string]any{}},
	Subscribe: "demo://item/1",
	Touch:     &call{"notify", map[string]any{"kind": "resource", "uri": "demo://item/1"}},
	Slow:      &call{"slow", map[string]any{"seconds": 2, "steps": 20}},
	SlowSteps: 20,
}

// incomplete names the steps of a plan that left nothing in the transcript: a
// baseline that proves nothing.
func (p plan) incomplete(t transcript, drop bool) []string {
	var missing []string
	check := func(name string, planned, seen bool) {
		if planned && !seen {
			missing = append(missing, name)
		}
	}
	check("initialize", true, t.Server != "")
	check("list", true, len(t.Tools) > 0)
	check("list resources and prompts", p.Subscribe != "", len(t.Resources) > 0 && len(t.Prompts) > 0)
	check("progress", true, len(t.Progress) == p.Steps && t.Result != "")
	check("log", p.Logs > 0, len(t.Logs) == p.Logs)
	check("elicit", p.Elicit != nil, t.Elicit != "" && len(t.Elicited) > 0)
	check("sample", p.Sample != nil, t.Sample != "" && len(t.Sampled) > 0)
	check("roots", p.Roots != nil, t.Roots != "")
	check("subscribe", p.Subscribe != "", t.Updated == p.Subscribe)
	check("cancel", true, t.Cancelled)
	check("drop", drop, len(t.Dropped) == p.SlowSteps && t.Resumed != "")
	return missing
}
