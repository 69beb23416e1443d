package packaging

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The examples for containers have keys that their programs know, and what they run is a line of the bridge.
func TestExamples(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct {
			Build       struct{ Context, Target string }
			Command     []string
			Environment map[string]string
			Ports       []string
			Restart     string
			Grace       string   `yaml:"stop_grace_period"`
			ReadOnly    bool     `yaml:"read_only"`
			Tmpfs       []string `yaml:"tmpfs"`
			CapDrop     []string `yaml:"cap_drop"`
			SecurityOpt []string `yaml:"security_opt"`
			Pids        int      `yaml:"pids_limit"`
			Memory      string   `yaml:"mem_limit"`
		}
	}
	example(t, "../contrib/compose/compose.yaml", &compose)
	for name, s := range compose.Services {
		stage(t, s.Build.Target)
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) {
			t.Errorf("compose: the service %s has more rights than it needs", name)
		}
		checkLine(t, s.Command)
	}

	type container struct {
		Name, Image, RestartPolicy  string
		Command, Args               []string
		StartupProbe, LivenessProbe struct{ Exec struct{ Command []string } }
		Env, VolumeMounts           []map[string]string
		SecurityContext, Resources  map[string]any
	}
	var deployment struct {
		Kind string
		Spec struct {
			Template struct {
				Spec struct{ InitContainers, Containers []container }
			}
		}
	}
	text, err := os.ReadFile("../contrib/kubernetes/sidecar.yaml")
	must(t, err)
	must(t, yaml.Unmarshal([]byte(lowerKeys(string(text))), &deployment))
	sidecars := deployment.Spec.Template.Spec.InitContainers
	if deployment.Kind != "Deployment" || len(sidecars) != 1 || len(deployment.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("kubernetes: %+v", deployment)
	}
	checkLine(t, sidecars[0].Args)
	for _, probe := range [][]string{sidecars[0].StartupProbe.Exec.Command, sidecars[0].LivenessProbe.Exec.Command} {
		if len(probe) < 2 || probe[0] != "mcp-bridge" || probe[1] != "health" {
			t.Errorf("kubernetes: the probe is %q", probe)
		}
	}
}

// lowerKeys makes the keys of Kubernetes what package yaml looks for in a struct without tags.
func lowerKeys(text string) string {
	for _, key := range []string{"initContainers", "restartPolicy", "startupProbe", "livenessProbe", "volumeMounts", "securityContext"} {
		text = strings.ReplaceAll(text, key+":", strings.ToLower(key)+":")
	}
	return text
}

// example reads a file that has no key but those of its type.
func example(t *testing.T, file string, to any) {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(to); err != nil {
		t.Errorf("%s: %v", file, err)
	}
}

// checkLine looks for the flags of a line of serve in the help.
func checkLine(t *testing.T, line []string) {
	t.Helper()
	end := slices.Index(line, "--")
	if end < 1 || line[0] != "serve" {
		t.Fatalf("%q is no line of serve with a command", line)
	}
	cmd := exec.Command("go", "run", "./cmd/mcp-bridge", "help", "serve")
	cmd.Dir = ".."
	help := output(t, cmd)
	for _, flag := range line[1:end] {
		if strings.HasPrefix(flag, "--") && !strings.Contains(help, "  "+flag+" ") {
			t.Errorf("%q: serve has no %s", line, flag)
		}
	}
}
