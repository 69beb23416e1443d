package bridge

import "errors"

// ErrSlow ends the Conn of a Mux whose client does not read what it is sent (D.2).
var ErrSlow = errors.New("the client does not read what it is sent")
