package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

const (
	defaultHealthAddress = "http://127.0.0.1:8080" // what health asks without an argument: where serve listens by default
	healthTimeout        = 5 * time.Second         // how long health waits for the answer
)

// health is the command health: it asks a bridge whether it is ready, for those who watch over it, such as a container's HEALTHCHECK. It sends no
// secret and believes nothing but the status, so a certificate is not verified: at an address such as 127.0.0.1 no
// public one would be right.
func health(ctx context.Context, args []string, env environment) error {
	if len(args) > 1 {
		return usagef("health takes one address, or none for %s", defaultHealthAddress)
	}
	address := defaultHealthAddress
	if len(args) == 1 {
		address = args[0]
	}
	target, socket, err := healthTarget(address)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return usagef("%s is no address: %v", printable.Text(address), errors.Unwrap(err))
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no bridge answers at %s: %w", printable.Text(address), errors.Unwrap(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("the answer of %s ends too early: %w", printable.Text(address), err)
	}
	said := printable.Text(strings.TrimSpace(string(body)))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", printable.Text(address), resp.Status, said)
	}
	fmt.Fprintln(env.stdout, said)
	return nil
}

// healthTarget returns the URL to ask and, for unix:PATH, the socket to ask it over. An address without a path is that
// of a bridge, which tells at /readyz whether a server runs or can be started.
func healthTarget(address string) (target, socket string, err error) {
	path, unix := strings.CutPrefix(address, "unix:")
	if unix && path != "" {
		return "http://localhost/readyz", path, nil
	}
	if !unix && !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || unix || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", "", usagef("health takes http://HOST:PORT, https://HOST:PORT, HOST:PORT or unix:PATH, and not %s", printable.Text(address))
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/readyz"
	}
	return u.String(), "", nil
}
