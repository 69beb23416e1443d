// Package ownmsg has what the bridge itself says to clients and servers: the methods it
// knows, its errors, and how subscriptions end.
package ownmsg

import (
	"errors"
	"io"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// The methods that the bridge itself sends, or looks for; the first three are of 2026-07-28 only.
const (
	Listen       = "subscriptions/listen"                     // a client's request: open a subscription
	Discover     = "server/discover"                          // a client's request: what the server can do
	Acknowledged = "notifications/subscriptions/acknowledged" // a server's notification: the subscription is open
	Cancelled    = "notifications/cancelled"                  // a notification of either side: nobody waits for the answer to a request, or a subscription is over
	Progress     = "notifications/progress"                   // a notification: a request makes progress
	Log          = "notifications/message"                    // a server's notification: a log message
)

// FinalSendTimeout bounds what the bridge still sends to a side that may take nothing any more, and its wait for such
// a side to say why it ends.
const FinalSendTimeout = time.Second

// What errors of the bridge's own carry as data, for programs (C.7).
var (
	ServerEndedData       = []byte(`{"reason":"server_ended"}`)       // the server has ended before it has answered, or has not taken the request
	ShuttingDownData      = []byte(`{"reason":"shutting_down"}`)      // the bridge shuts down, or was configured anew
	CancelledData         = []byte(`{"reason":"cancelled"}`)          // whoever looks after the bridge has cancelled the call; with CancelledText
	TimedOutData          = []byte(`{"reason":"timeout"}`)            // the server has not answered or acknowledged, or not taken, what it was sent in time
	ServerUnavailableData = []byte(`{"reason":"server_unavailable"}`) // there is no server to be had
	BusyData              = []byte(`{"reason":"busy"}`)               // there are too many clients or requests, too little memory, or the session's place went to another party
)

// The errors whose texts clients see; of the last two, servers as well.
var (
	ErrBusy = errors.New("too many clients; try again later") // there is no place for one more client, or for its server process
	// the bridge shuts down, or the server's configuration has changed
	ErrClosing = errors.New("the bridge is shutting down or was configured anew")
	// the client's place goes to another party
	ErrReclaimed       = errors.New("the session was idle and its place is wanted by others; begin anew")
	ErrIDInUse         = errors.New("a request with this id is already in progress") // a request has the id of one that is still in progress
	ErrTooManyRequests = errors.New("too many requests wait for an answer")          // one side has too many requests in progress
)

// Ending returns the text and the data of the errors with which requests are answered because their server has ended
// with err. data is JSON that says so to programs: ServerEndedData or ShuttingDownData. If err is nil or io.EOF, text
// names no cause.
func Ending(err error) (text string, data []byte) {
	switch {
	case errors.Is(err, ErrClosing):
		return ErrClosing.Error(), ShuttingDownData
	case err != nil && !errors.Is(err, io.EOF):
		return err.Error(), ServerEndedData
	}
	return "the server ended before it answered", ServerEndedData
}

// Unavailable returns the text and the data of the errors with which requests are answered because a Dialer has
// returned err (C.7). The text has of err only what clients may see.
func Unavailable(err error) (text string, data []byte) {
	var public interface{ PublicError() string }
	var more interface{ PublicData() []byte }
	switch {
	case errors.As(err, &public):
		if errors.As(err, &more) && more.PublicData() != nil {
			return public.PublicError(), more.PublicData()
		}
		return public.PublicError(), ServerUnavailableData
	case errors.Is(err, ErrBusy):
		return ErrBusy.Error(), BusyData
	case errors.Is(err, ErrClosing):
		return ErrClosing.Error(), ShuttingDownData
	case errors.Is(err, ErrReclaimed):
		return ErrReclaimed.Error(), BusyData
	}
	return "the server could not be started; the bridge's log says why", ServerUnavailableData
}

// Cancellation returns the notification with which a client says that it does not wait any more for the answer to the
// request id. why is put into the JSON as it is.
func Cancellation(id jsonrpc.ID, why string) jsonrpc.Message {
	return jsonrpc.NewNotification(Cancelled, []byte(`{"requestId":`+id.String()+`,"reason":"`+why+`"}`))
}

// CancelledText is the text of the error with CancelledData.
const CancelledText = "the call was cancelled by whoever looks after the bridge"
