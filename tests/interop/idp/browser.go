package idp

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// A Browser is a person with a browser: it keeps cookies, signs in as Login, agrees
// to everything, and types in codes. It may not be used concurrently.
type Browser struct {
	Login string // the name that the person signs in with
	// Stays keeps it on the provider's pages: what a redirect to another place names is returned and
	// not opened, as by a browser on another machine.
	Stays bool

	client *http.Client // makes the requests; keeps the cookies
}

// NewBrowser returns a Browser without cookies, of a person who signs in as login.
func NewBrowser(login string) *Browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		panic(err) // it has no options
	}
	return &Browser{Login: login, client: &http.Client{Jar: jar, Timeout: 30 * time.Second, Transport: &http.Transport{}}}
}

// maxPages is how many pages Visit opens at most: a sign-in with this provider has at most six.
const maxPages = 12

// Visit opens an address, fills in the forms that come, with userCode where one is asked for, and
// returns the address that it ended at: that of the last page, or with Stays where a redirect
// leads. It is an error if a page has a status of 400 or more, and no form with a user code in it.
func (b *Browser) Visit(ctx context.Context, addr, userCode string) (end string, err error) {
	first, err := url.Parse(addr)
	if err != nil {
		return "", err
	}
	b.client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if b.Stays && r.URL.Host != first.Host || len(via) > 10 {
			return http.ErrUseLastResponse
		}
		return nil
	}
	defer b.client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr, nil)
	if err != nil {
		return "", err
	}
	for range maxPages {
		resp, err := b.client.Do(req)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return "", err
		}
		if away := resp.Header.Get("Location"); away != "" {
			return away, nil
		}
		form := formOf(string(text))
		if resp.StatusCode >= 400 && (form == nil || form.values.Get("user_code") == "") {
			return "", fmt.Errorf("the browser got status %d:\n%s", resp.StatusCode, plain(string(text)))
		}
		if form == nil {
			return resp.Request.URL.String(), nil
		}
		b.fill(form.values, userCode)
		to, err := resp.Request.URL.Parse(form.action)
		if err != nil {
			return "", err
		}
		req, err = http.NewRequestWithContext(ctx, http.MethodPost, to.String(), strings.NewReader(form.values.Encode()))
		if err != nil {
			return "", err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return "", errors.New("the provider's forms have no end")
}

// fill does what the person does with a form: it writes login, password and code into those of values that are there and empty.
func (b *Browser) fill(values url.Values, userCode string) {
	for name, value := range map[string]string{"login": b.Login, "password": "the password of " + b.Login, "user_code": userCode} {
		if values.Has(name) && values.Get(name) == "" {
			values.Set(name, value)
		}
	}
}

// A form is one of a page.
type form struct {
	action string     // the address that the form goes to
	values url.Values // the fields by name; one has the value that the page gives it, mostly a hidden one, or is empty
}

var (
	formTag  = regexp.MustCompile(`(?s)<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>`) // matches a form with its address and its fields
	inputTag = regexp.MustCompile(`(?s)<input[^>]*>`)                                 // matches a field
	nameOf   = regexp.MustCompile(`\bname="([^"]*)"`)                                 // finds the name of a field
	valueOf  = regexp.MustCompile(`\bvalue="([^"]*)"`)                                // finds the value of a field
	tags     = regexp.MustCompile(`(?s)<(style|script).*?</(style|script)>|<[^>]*>`)  // matches what people do not see of a page
	blank    = regexp.MustCompile(`\s+`)                                              // matches space between words
)

// formOf returns the first form of a page that is sent with POST; nil: there is none.
func formOf(page string) *form {
	m := formTag.FindStringSubmatch(page)
	if m == nil {
		return nil
	}
	f := &form{action: html.UnescapeString(m[1]), values: url.Values{}}
	for _, tag := range inputTag.FindAllString(m[2], -1) {
		name := nameOf.FindStringSubmatch(tag)
		if name == nil {
			continue
		}
		f.values.Set(name[1], "")
		if value := valueOf.FindStringSubmatch(tag); value != nil {
			f.values.Set(name[1], html.UnescapeString(value[1]))
		}
	}
	return f
}

// plain returns the text of a page.
func plain(page string) string {
	return strings.TrimSpace(blank.ReplaceAllString(tags.ReplaceAllString(page, " "), " "))
}
