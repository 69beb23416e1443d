package demo

import (
	"context"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// resource is a row of resources/list.
type resource struct {
	URI         string              `json:"uri"`
	Name        string              `json:"name"`
	Title       string              `json:"title"`
	Description string              `json:"description"`
	MimeType    string              `json:"mimeType"`
	Annotations *contentAnnotations `json:"annotations,omitempty"`
	Size        int                 `json:"size,omitempty"`
}

// contents is one part of what resources/read returns.
type contents struct {
	URI      string  `json:"uri"`
	MimeType string  `json:"mimeType"`
	Text     *string `json:"text,omitempty"`
	Blob     string  `json:"blob,omitempty"`
}

const (
	clockURI   = "demo://clock"
	itemURI    = "demo://item/"
	listed     = 9  // items in resources/list
	itemsTotal = 99 // items that the template finds
)

const (
	hello = "Hello from the mcp-bridge demo server.\n"
	notes = "# Notes\n\nText that is easily damaged on the way:\n\n" +
		"- \u201cquotes\u201d, a no-break\u00a0space, a line separator \u2028 inside\n" +
		"- one family in one glyph: \U0001F468\u200d\U0001F469\u200d\U0001F467\n" +
		"- <tags> & ampersands, \\ backslashes, a tab\there\n"
)

// staticResources never change, but for the clock, which is listed with them.
var staticResources = []resource{
	{URI: "demo://hello.txt", Name: "hello.txt", Title: "Hello", Description: "One line of text.", MimeType: "text/plain", Size: len(hello)},
	{URI: "demo://notes.md", Name: "notes.md", Title: "Notes", Description: "Text with characters that are easily damaged on the way.",
		MimeType: "text/markdown", Size: len(notes), Annotations: &contentAnnotations{Audience: []string{"user"}, Priority: 0.5}},
	{URI: "demo://logo.png", Name: "logo.png", Title: "Logo", Description: "A small image, as a blob.", MimeType: "image/png", Size: len(logo)},
	{URI: "demo://tone.wav", Name: "tone.wav", Title: "Tone", Description: "A short sound, as a blob.", MimeType: "audio/wav", Size: len(tone)},
	{URI: clockURI, Name: "clock", Title: "Clock", Description: "The time. Subscribe to it to be told whenever it changes.", MimeType: "text/plain"},
}

func itemResource(n int) resource {
	id := strconv.Itoa(n)
	return resource{
		URI: itemURI + id, Name: "item-" + id, Title: "Item " + id,
		Description: "Item " + id + " of many; see the resource template.", MimeType: "application/json",
	}
}

func (s *session) listResources(params []byte) (any, error) {
	all := staticResources[:len(staticResources):len(staticResources)]
	if s.srv.Conformance {
		all = append(all, conformanceResources...)
	}
	for n := 1; n <= listed; n++ {
		all = append(all, itemResource(n))
	}
	part, next, err := page(params, all, s.srv.pageSize())
	if err != nil {
		return nil, err
	}
	return struct {
		Resources  []resource `json:"resources"`
		NextCursor string     `json:"nextCursor,omitempty"`
	}{part, next}, nil
}

type template struct {
	URITemplate string `json:"uriTemplate"`
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	MimeType    string `json:"mimeType"`
}

var templates = []template{{
	URITemplate: itemURI + "{id}", Name: "item", Title: "Item",
	Description: fmt.Sprintf("Any item from 1 to %d. The id can be completed (completion/complete).", itemsTotal),
	MimeType:    "application/json",
}}

func (s *session) listTemplates(params []byte) (any, error) {
	all := templates[:len(templates):len(templates)]
	if s.srv.Conformance {
		all = append(all, conformanceTemplate)
	}
	part, next, err := page(params, all, s.srv.pageSize())
	if err != nil {
		return nil, err
	}
	return struct {
		Templates  []template `json:"resourceTemplates"`
		NextCursor string     `json:"nextCursor,omitempty"`
	}{part, next}, nil
}

func (s *session) readResource(params []byte) (any, error) {
	uri, err := uriOf(params)
	if err != nil {
		return nil, err
	}
	c := s.read(uri)
	if c == nil {
		return nil, notFound(uri)
	}
	return readResult{[]contents{*c}}, nil
}

type readResult struct {
	Contents []contents `json:"contents"`
}

func uriOf(params []byte) (string, error) {
	var p struct {
		URI string `json:"uri"`
	}
	if err := decode(params, &p); err != nil {
		return "", err
	}
	if p.URI == "" {
		return "", invalidParams("uri is missing")
	}
	return p.URI, nil
}

func notFound(uri string) error {
	return &rpcError{code: codeResourceNotFound, message: "resource not found", data: map[string]string{"uri": uri}}
}

var itemPattern = regexp.MustCompile(`^` + regexp.QuoteMeta(itemURI) + `([1-9][0-9]?)$`)

// read returns the contents of a resource of this server, nil if there is no such resource.
func (s *session) read(uri string) *contents {
	if c := read(uri); c != nil || !s.srv.Conformance {
		return c
	}
	return conformanceRead(uri)
}

// read returns the contents of a resource that is always there.
func read(uri string) *contents {
	c := &contents{URI: uri, MimeType: "text/plain"}
	switch uri {
	case "demo://hello.txt":
		c.setText(hello)
	case "demo://notes.md":
		c.MimeType = "text/markdown"
		c.setText(notes)
	case "demo://logo.png":
		c.MimeType, c.Blob = "image/png", base64.StdEncoding.EncodeToString(logo)
	case "demo://tone.wav":
		c.MimeType, c.Blob = "audio/wav", base64.StdEncoding.EncodeToString(tone)
	case clockURI:
		c.setText(time.Now().UTC().Format("15:04:05.000"))
	default:
		m := itemPattern.FindStringSubmatch(uri)
		if m == nil {
			return nil
		}
		c.MimeType = "application/json"
		c.setText(fmt.Sprintf(`{"id":%s,"name":"item %s"}`, m[1], m[1]))
	}
	return c
}

func (c *contents) setText(t string) { c.Text = &t }

// completeItem completes the id of the template and of the prompt "item".
func completeItem(prefix string) []string {
	var ids []string
	for n := 1; n <= itemsTotal; n++ {
		if id := strconv.Itoa(n); strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *session) subscribe(params []byte) (any, error) {
	uri, err := uriOf(params)
	if err != nil {
		return nil, err
	}
	if s.read(uri) == nil {
		return nil, notFound(uri)
	}
	s.mu.Lock()
	s.subs[uri] = true // bounded: there are not many resources
	s.mu.Unlock()
	if uri == clockURI && s.clock == nil {
		s.startClock()
	}
	return struct{}{}, nil
}

func (s *session) unsubscribe(params []byte) (any, error) {
	uri, err := uriOf(params)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	delete(s.subs, uri)
	s.mu.Unlock()
	if uri == clockURI {
		s.stopClock() // and with it an update on its way
		if s.subscribed(uri) {
			s.startClock()
		}
	}
	return struct{}{}, nil
}

// subscribed reports whether anybody is to be told when a resource changes.
func (s *session) subscribed(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subs[uri] || slices.ContainsFunc(s.listens, func(l *listen) bool { return slices.Contains(l.URIs, uri) })
}

// clock is the goroutine that tells the subscribers of demo://clock about every tick.
type clock struct {
	stop context.CancelFunc
	done chan struct{}
}

func (s *session) startClock() {
	ctx, stop := context.WithCancel(s.ctx)
	c := &clock{stop, make(chan struct{})}
	s.clock = c
	go func() {
		defer close(c.done)
		tick := time.NewTicker(orDefault(s.srv.Clock, defaultClock))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.updated(clockURI)
			case <-ctx.Done():
				return
			}
		}
	}()
}

// stopClock returns when the last update has been sent, so that none follows the answer to unsubscribe.
func (s *session) stopClock() {
	if s.clock == nil {
		return
	}
	s.clock.stop()
	<-s.clock.done
	s.clock = nil
}
