package sdk

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/script"
)

type args = map[string]any

func use(tool string, with args) *script.Call { return &script.Call{Name: tool, Args: with} }

// The Go SDK's conformance server has no tool that asks for roots in a session
// with an initialize handshake, and none that takes longer than 150 ms.
var goPlan = plan{
	Progress:  use("test_tool_with_progress", args{}),
	Steps:     3,
	Log:       use("test_tool_with_logging", args{}),
	LogMatch:  "Tool ",
	Logs:      3,
	Elicit:    use("test_elicitation", args{"message": "Who are you, client-{n}.?"}),
	Sample:    use("test_sampling", args{"prompt": "Say hello to client-{n}."}),
	Subscribe: "test://watched-resource",
	Slow:      use("test_tool_with_progress", args{}),
	SlowSteps: 3,
}

var nodePlan = plan{
	Echo:      use("echo", args{"message": "client-{n}. sends {blob}"}),
	Progress:  use("trigger-long-running-operation", args{"duration": 0.3, "steps": 3}),
	Steps:     3,
	LogMatch:  "Received Subscribe Resource request",
	Logs:      1,
	Elicit:    use("trigger-elicitation-request", args{}),
	Sample:    use("trigger-sampling-request", args{"prompt": "Say hello to client-{n}."}),
	Roots:     use("get-roots-list", args{}),
	Subscribe: "demo://resource/dynamic/text/{n}",
	Touch:     use("toggle-subscriber-updates", args{}),
	Slow:      use("trigger-long-running-operation", args{"duration": 2, "steps": 20}),
	SlowSteps: 20,
}

var demoPlan = plan{
	Pages:     2,
	Echo:      use("echo", args{"message": "client-{n}. sends {blob}"}),
	Progress:  use("slow", args{"seconds": 0.3, "steps": 3}),
	Steps:     3,
	Log:       use("log", args{"level": "warning", "message": "client-{n}. has to watch out"}),
	LogMatch:  "watch out",
	Logs:      1,
	Elicit:    use("elicit", args{"message": "Who are you, client-{n}.?"}),
	Sample:    use("sample", args{"prompt": "Say hello to client-{n}."}),
	Roots:     use("roots", args{}),
	Subscribe: "demo://item/{n}",
	Touch:     use("notify", args{"kind": "resource", "uri": "demo://item/{n}"}),
	Slow:      use("slow", args{"seconds": 2, "steps": 20}),
	SlowSteps: 20,
}

// sdkPlan is for the servers of gopeer and sdkserver.mjs: all steps, and in
// gopeer's case lists of many pages.
var sdkPlan = plan{
	Pages:     3,
	Echo:      use("echo", args{"text": "client-{n}. sends {blob}"}),
	Progress:  use("count", args{}),
	Steps:     3,
	Log:       use("log", args{"text": "client-{n}. has to watch out"}),
	LogMatch:  "watch out",
	Logs:      1,
	Elicit:    use("elicit", args{"text": "Who are you, client-{n}.?"}),
	Sample:    use("sample", args{"text": "Say hello to client-{n}."}),
	Roots:     use("roots", args{}),
	Subscribe: "test://item/{n}",
	Touch:     use("touch", args{"text": "test://item/{n}"}),
	Slow:      use("hang", args{"text": "{n}"}),
	Cancelled: use("cancelled", args{"text": "{n}"}),
}

// incomplete names the steps of a plan that left nothing in the transcript: a
// baseline that proves nothing.
func incomplete(p plan, t transcript, drop bool) []string {
	var missing []string
	check := func(name string, planned, seen bool) {
		if planned && !seen {
			missing = append(missing, name)
		}
	}
	check("initialize", true, t.Server != "")
	check("list", true, len(t.Tools) > 0 && t.Pages == max(p.Pages, 1))
	check("echo", p.Echo != nil, strings.Contains(t.Echo, "{blob}"))
	check("list resources and prompts", p.Subscribe != "", len(t.Resources) > 0 && len(t.Prompts) > 0)
	check("progress", true, len(t.Progress) == p.Steps && t.Result != "")
	check("log", p.Logs > 0, len(t.Logs) == p.Logs)
	check("elicit", p.Elicit != nil, t.Elicit != "" && len(t.Elicited) > 0)
	check("sample", p.Sample != nil, t.Sample != "" && len(t.Sampled) > 0)
	check("roots", p.Roots != nil, t.Roots != "")
	check("subscribe", p.Subscribe != "", len(t.Updated) == 1 && t.Updated[0] == p.Subscribe)
	check("cancel", true, t.Cancelled)
	check("cancelled at the server", p.Cancelled != nil, t.Told != "")
	check("drop", drop, len(t.Dropped) == p.SlowSteps && t.Resumed != "")
	return missing
}

// session matches what differs between two sessions of one server.
var session = regexp.MustCompile(` *(from|for) session .*| *- SessionId .*`)

// differences lists the fields that differ.
func differences(direct, bridged transcript) (out []string) {
	a, b := reflect.ValueOf(normal(direct)), reflect.ValueOf(normal(bridged))
	for i := range a.NumField() {
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		if name := a.Type().Field(i).Name; !reflect.DeepEqual(x, y) && name != "Version" {
			out = append(out, fmt.Sprintf("%s differs:\ndirectly %v\nbridged  %v", name, x, y))
		}
	}
	// The TypeScript client tells the revision on Streamable HTTP only.
	if direct.Version != bridged.Version && direct.Version != "" && bridged.Version != "" {
		out = append(out, fmt.Sprintf("the revision is %q directly and %q through the bridge", direct.Version, bridged.Version))
	}
	return out
}

func normal(t transcript) transcript {
	t.Logs = slices.Clone(t.Logs)
	for i, l := range t.Logs {
		t.Logs[i] = session.ReplaceAllString(l, "")
	}
	return t
}
