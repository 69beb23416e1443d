package client

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// The ports of redirect URIs, and how many others are tried where one is in use.
const (
	minRedirectPort = 33418 // the lowest port of redirect URIs
	maxRedirectPort = 49150 // the highest port of redirect URIs
	extraPortTries  = 8     // how many other ports are tried for the redirect where one is in use
)

// callbackPath is the path of all redirect URIs.
const callbackPath = "/callback"

// A redirectTarget is where browsers come back to after a sign-in: host and port on this machine. It is copied, and never changed.
type redirectTarget struct {
	host               string // the host of the redirect URI: "127.0.0.1", or Options.RedirectHost
	port               int    // the first port to try, the same at each sign-in: chosen by the user, or computed of the credential's key
	isPortChosenByUser bool   // port is Options.RedirectPort, and no other is tried
}

// newRedirectTarget returns where browsers come back to, as o says it, for the credential with this key: the port is computed of the key if o has none.
func newRedirectTarget(o Options, key tokenstore.Key) redirectTarget {
	d := redirectTarget{cmp.Or(o.RedirectHost, "127.0.0.1"), o.RedirectPort, o.RedirectPort != 0}
	if d.isPortChosenByUser {
		return d
	}
	d.port = minRedirectPort
	if b, err := hex.DecodeString(string(key[:8])); err == nil {
		n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		d.port += n % (maxRedirectPort - minRedirectPort + 1)
	}
	return d
}

// uri returns the redirect URI with port.
func (d redirectTarget) uri() string { return d.uriWithPort(d.port) }

// uriWithPort returns the redirect URI with this port in the place of its own.
func (d redirectTarget) uriWithPort(port int) string {
	return "http://" + net.JoinHostPort(d.host, strconv.Itoa(port)) + callbackPath
}

// listen opens the listeners of the redirect URI on the first free one of its ports, and returns that port. The error: none is free, or host is not this machine.
func (d redirectTarget) listen(ctx context.Context) (all []net.Listener, port int, err error) {
	switch d.host {
	case "127.0.0.1", "localhost", "::1":
	default:
		return nil, 0, fmt.Errorf("the redirect host %.60q is not this machine: use 127.0.0.1 or localhost", d.host)
	}
	for _, port = range d.ports() {
		if all, err = d.listenOnPort(ctx, port); err == nil {
			return all, port, nil
		}
	}
	return nil, 0, &PermanentError{Problem: "the browser cannot come back: end the program that has the port, or choose another one with --redirect-port", Err: err}
}

// ports returns the ports that a sign-in may have, in the order in which they are tried. It is one if the user has chosen it.
func (d redirectTarget) ports() []int {
	all := []int{d.port}
	for try := 1; try <= extraPortTries && !d.isPortChosenByUser; try++ {
		all = append(all, minRedirectPort+(d.port-minRedirectPort+try)%(maxRedirectPort-minRedirectPort+1))
	}
	return all
}

// listenOnPort opens one port; for localhost on both addresses, since a browser may take either.
func (d redirectTarget) listenOnPort(ctx context.Context, port int) ([]net.Listener, error) {
	var config net.ListenConfig
	first := d.host
	if d.host == "localhost" {
		first = "127.0.0.1"
	}
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(first, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	all := []net.Listener{l}
	if d.host == "localhost" {
		second, err := config.Listen(ctx, "tcp", net.JoinHostPort("::1", strconv.Itoa(port)))
		if err == nil {
			return append(all, second), nil
		}
		if other, none := config.Listen(ctx, "tcp", "[::1]:0"); none == nil { // there is IPv6: somebody else would get the answer
			_ = other.Close()
			_ = l.Close()
			return nil, err
		}
	}
	return all, nil
}

// An authorizationOutcome is what has come of an authorization request.
type authorizationOutcome struct {
	code string // the authorization code; "": there is none
	err  error  // why there is no code; nil: there is one
}

// A callbackReceiver takes the first response to one authorization request: from a browser, or as a URL that a person gives.
type callbackReceiver struct {
	redirectURI  string                    // what the response's URL begins with
	expectedHost string                    // the Host that a browser's request must have
	expected     auth.ExpectedCallback     // what the response must have
	outcome      chan authorizationOutcome // gets one outcome; of size 1

	mu         sync.Mutex // guards isAnswered
	isAnswered bool       // outcome was sent
}

// newCallbackReceiver returns a callbackReceiver for a redirect URI. expect says which authorization responses count.
func newCallbackReceiver(redirect string, expect auth.ExpectedCallback) *callbackReceiver {
	u, _ := url.Parse(redirect)
	return &callbackReceiver{redirectURI: redirect, expectedHost: u.Host, expected: expect, outcome: make(chan authorizationOutcome, 1)}
}

// errAlreadyAnswered is the error for a second answer to a sign-in: from a browser that loads the page again, or as a pasted URL. The first answer counts.
var errAlreadyAnswered = errors.New("the sign-in has been answered already")

// acceptQuery takes the query of a response, and sends the outcome. An error leaves the sign-in open (it is another one's response), except errAlreadyAnswered.
func (v *callbackReceiver) acceptQuery(query string) error {
	code, err := v.expected.ParseCode(query)
	if auth.Is(err, auth.UnrelatedResponse) {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isAnswered {
		return errAlreadyAnswered
	}
	v.isAnswered = true
	v.outcome <- authorizationOutcome{code, err}
	return nil
}

// acceptURL takes the URL that a browser ended at, as a person gives it. Its errors are those of acceptQuery, and one for a URL that is none of redirectURI.
func (v *callbackReceiver) acceptURL(addr string) error {
	rest, ok := strings.CutPrefix(strings.TrimSpace(addr), v.redirectURI+"?")
	if !ok {
		return fmt.Errorf("this is not an answer to the sign-in: it should begin with %s?", v.redirectURI)
	}
	rest, _, _ = strings.Cut(rest, "#")
	return v.acceptQuery(rest)
}

// ServeHTTP takes a response from the browser, and answers with a short page that has no script, and nothing that came with the request.
func (v *callbackReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Connection", "close")
	switch err := error(nil); {
	case r.Host != v.expectedHost:
		writePage(w, http.StatusMisdirectedRequest, "This address is not known here.")
	case r.URL.Path != callbackPath:
		writePage(w, http.StatusNotFound, "There is nothing here.")
	case r.Method != http.MethodGet:
		h.Set("Allow", http.MethodGet)
		writePage(w, http.StatusMethodNotAllowed, "There is nothing here.")
	default:
		if err = v.acceptQuery(r.URL.RawQuery); errors.Is(err, errAlreadyAnswered) {
			writePage(w, http.StatusGone, "The sign-in has been answered already. You can close this page.")
		} else if err != nil {
			writePage(w, http.StatusBadRequest, "This does not answer the sign-in that is under way.")
		} else {
			writePage(w, http.StatusOK, "The answer has arrived. You can close this page, and see in the program whether you are signed in.")
		}
	}
}

// writePage answers with a page that says text.
func writePage(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<!doctype html><title>Sign-in</title><p>"+text+"</p>\n")
}
