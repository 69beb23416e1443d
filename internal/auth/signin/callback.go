package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// DeliverCallback gives the address that a browser ended at to the process that signs in under key: for a person whose
// browser is on another machine. nil: the process has taken it.
func DeliverCallback(ctx context.Context, store *tokenstore.Store, key tokenstore.Key, addr string) error {
	login, pending, err := store.PendingLogin(key)
	switch {
	case err != nil:
		return err
	case !pending || login.RedirectURI == "":
		return errors.New("no sign-in waits for an answer")
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(addr), login.RedirectURI+"?")
	if !ok {
		return fmt.Errorf("this is not an answer to the sign-in: it should begin with %s?", login.RedirectURI)
	}
	rest, _, _ = strings.Cut(rest, "#")
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, login.RedirectURI+"?"+rest, nil)
	if err != nil {
		return errors.New("the address is not valid")
	}
	direct := &http.Transport{DisableKeepAlives: true} // no proxy: it is this machine
	resp, err := direct.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("the process that signs in (%d) does not answer", login.PID)
	}
	_ = resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusBadRequest:
		return errOtherSignIn
	case http.StatusGone:
		return errors.New("the sign-in has been answered already")
	}
	return fmt.Errorf("the process that signs in (%d) does not take it: status %d", login.PID, resp.StatusCode)
}

// errOtherSignIn says that an address answers another sign-in than the one that waits.
var errOtherSignIn = errors.New("this address does not answer the sign-in that waits; " + auth.AdviceOtherSignIn)
