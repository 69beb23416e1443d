package supervisor

import (
	"slices"
	"strings"
	"testing"
)

// parseContainerLine finds the command lines that run a container, and their options.
func TestContainerLine(t *testing.T) {
	for line, want := range map[string]struct {
		globals string
		run     int
		cidFile string
		flags   string // "rm", "detach"
	}{
		"docker run -i --rm IMAGE":                                {"", 1, "", "rm"},
		"/usr/bin/docker run IMAGE":                               {"", 1, "", ""},
		"docker container run -i IMAGE":                           {"", 2, "", ""},
		"docker --context x run -i --rm IMAGE":                    {"--context x", 3, "", "rm"},
		"docker -c x -D --host=tcp://h:1 -Hunix:///s run IMAGE":   {"-c x -D --host=tcp://h:1 -Hunix:///s", 6, "", ""},
		"docker run --cidfile F IMAGE":                            {"", 1, "F", ""},
		"docker run --cidfile=F --rm=true IMAGE":                  {"", 1, "F", "rm"},
		"docker run --rm=false IMAGE --rm --cidfile F -d":         {"", 1, "", ""}, // those are the server's
		"docker run -it -eA=b -e C -p 1:2 --name n --rm IMAGE -d": {"", 1, "", "rm"},
		"docker run -e -d IMAGE":                                  {"", 1, "", ""}, // a variable of that name
		"docker run -v /a:/b -- IMAGE --rm":                       {"", 1, "", ""},
		"docker run -itd IMAGE":                                   {"", 1, "", "detach"},
		"docker run -d=false IMAGE":                               {"", 1, "", ""},
		"docker run --detach --rm IMAGE":                          {"", 1, "", "rm detach"},
		"docker run --runtime runc IMAGE":                         {"", 1, "", ""}, // docker has it for run alone
		"docker run":                                              {"", 1, "", ""},
		"podman --root DIR run -i IMAGE":                          {"--root DIR", 3, "", ""},
		"podman run --root DIR --rm IMAGE":                        {"--root=DIR", 1, "", "rm"},
		"podman --remote --url u run --read-only IMAGE":           {"--remote --url u", 4, "", ""},
		"nerdctl -n ns run --rm IMAGE":                            {"-n ns", 3, "", "rm"},
		"nerdctl --namespace=ns container run -c 5 IMAGE":         {"--namespace=ns", 3, "", ""},
		"DOCKER.EXE run IMAGE":                                    {"", 1, "", ""},
	} {
		args := strings.Fields(line)
		l, ok := parseContainerLine(args[0], args[1:])
		flags := []string{}
		if l.remove {
			flags = append(flags, "rm")
		}
		if l.detach {
			flags = append(flags, "detach")
		}
		if !ok || strings.Join(l.globals, " ") != want.globals || l.afterRun != want.run || l.cidFile != want.cidFile || strings.Join(flags, " ") != want.flags {
			t.Errorf("%s: %+v, %v, want %+v", line, l, ok, want)
		}
	}
	for _, line := range []string{
		"docker", "docker exec -i c server", "docker compose run server", "docker compose -f run up", "docker start -ai c", "docker --unknown run2 run IMAGE",
		"docker container exec c run", "docker container", "docker --context run", "docker -c run", "podman", "podman play run", "npx run", "sudo docker run IMAGE",
		"docker-compose run server", "env docker run IMAGE", "mydocker run IMAGE", "podman-remote run IMAGE",
	} {
		args := strings.Fields(line)
		if l, ok := parseContainerLine(args[0], args[1:]); ok {
			t.Errorf("%s: is taken for one that runs a container: %+v", line, l)
		}
	}
}

// The arguments that the caller has given stay as they are.
func TestContainerArgumentsAreCopied(t *testing.T) {
	args := slices.Grow([]string{"run", "IMAGE"}, 10)
	s := Spec{Path: "docker", Args: args}
	c, with := s.withContainer("/usr/bin/docker")
	defer c.forget()
	if want := []string{"run", "--cidfile", c.IDFile, "IMAGE"}; !slices.Equal(with.Args, want) {
		t.Errorf("%q, want %q", with.Args, want)
	}
	if !slices.Equal(s.Args, []string{"run", "IMAGE"}) || args[:3][2] != "" {
		t.Errorf("the caller's have become %q", s.Args)
	}
}
