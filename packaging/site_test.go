package packaging

import (
	"html"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	siteLink   = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	siteAnchor = regexp.MustCompile(`(?:id|name)="([^"]*)"`)
)

// The pages of docs are a site: mkdocs has no warning, every page can be reached from the menu, and every link and picture
// leads to something. TEST_MKDOCS, which CI sets, says that there is mkdocs.
func TestSite(t *testing.T) {
	t.Parallel()
	mkdocs, err := exec.LookPath("mkdocs")
	switch {
	case err != nil && os.Getenv("TEST_MKDOCS") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
	dir := t.TempDir()
	out, err := exec.Command(mkdocs, "build", "--strict", "-f", "site/mkdocs.yml", "-d", dir).CombinedOutput()
	if err != nil || strings.Contains(string(out), "not included in the") {
		t.Fatalf("mkdocs: %v\n%s", err, out)
	}
	pages := map[string]string{} // by their paths in the site
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".html" {
			return err
		}
		text, err := os.ReadFile(path)
		pages[strings.TrimPrefix(path, dir)] = string(text)
		return err
	}))
	if len(pages) < 25 {
		t.Errorf("the site has %d pages:\n%s", len(pages), out)
	}
	for path, text := range pages {
		if path == "/404.html" || path == "/search.html" {
			continue
		}
		for _, link := range siteLink.FindAllStringSubmatch(text, -1) {
			u, err := url.Parse(html.UnescapeString(link[1]))
			if err != nil || u.Host != "" || u.Scheme != "" || u.String() == "" {
				continue // another site
			}
			target := (&url.URL{Path: path}).ResolveReference(u)
			if strings.HasSuffix(target.Path, "/") {
				target.Path += "index.html"
			}
			if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(target.Path))); err != nil {
				t.Errorf("%s: %s leads nowhere", path, link[1])
			} else if page := pages[target.Path]; u.Fragment != "" && page != "" && !hasAnchor(page, u.Fragment) {
				t.Errorf("%s: %s has no such heading", path, link[1])
			}
		}
	}
}

func hasAnchor(page, name string) bool {
	for _, anchor := range siteAnchor.FindAllStringSubmatch(page, -1) {
		if html.UnescapeString(anchor[1]) == name {
			return true
		}
	}
	return false
}
