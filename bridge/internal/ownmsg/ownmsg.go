// Package ownmsg has what the bridge itself says to clients and servers: the methods it
// knows, its errors, and how subscriptions end.
package ownmsg

import (
	"errors"
	"io"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// The methods of 2026-07-28 that the bridge itself sends, or looks for.
const (
	Listen       = "subscriptions/listen"
	Discover     = "server/discover"
	Acknowledged = "notifications/subscriptions/acknowledged"
	Cancelled    = "notifications/cancelled"
	Progress     = "notifications/progress"
	Log          = "notifications/message"
)

// FinalSendTimeout bounds what the bridge still says to a side that may take nothing any more,
// and its wait for such a side to say why it ends.
const FinalSendTimeout = time.Second

// What errors of the bridge's own carry as data, for programs (C.7).
var (
	ServerEndedData       = []byte(`{"reason":"server_ended"}`)
	ShuttingDownData      = []byte(`{"reason":"shutting_down"}`)
	CancelledData         = []byte(`{"reason":"cancelled"}`)
	TimedOutData          = []byte(`{"reason":"timeout"}`)
	ServerUnavailableData = []byte(`{"reason":"server_unavailable"}`)
	BusyData              = []byte(`{"reason":"busy"}`)
)

// The errors whose texts clients see; of the last two, servers as well.
var (
	ErrBusy            = errors.New("too many clients; try again later")
	ErrClosing         = errors.New("the bridge is shutting down or was configured anew")
	ErrReclaimed       = errors.New("the session was idle and its place is wanted by others; begin anew")
	ErrIDInUse         = errors.New("a request with this id is already in progress")
	ErrTooManyRequests = errors.New("too many requests wait for an answer")
)

// Ending is what clients are told of the end of a server, and the data that goes with it. err is
// why the server has ended: nil or io.EOF give no reason.
func Ending(err error) (text string, data []byte) {
	switch {
	case errors.Is(err, ErrClosing):
		return ErrClosing.Error(), ShuttingDownData
	case err != nil && !errors.Is(err, io.EOF):
		return err.Error(), ServerEndedData
	}
	return "the server ended before it answered", ServerEndedData
}

// Unavailable is what clients are told of a server that could not be had, and the data that goes
// with it (C.7). err is a Dialer's.
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

// Cancellation is the client's word that nobody waits for the answer to the request id any more.
// why is put into the JSON as it is.
func Cancellation(id jsonrpc.ID, why string) jsonrpc.Message {
	return jsonrpc.NewNotification(Cancelled, []byte(`{"requestId":`+id.String()+`,"reason":"`+why+`"}`))
}

// CancelledText is the message of an error with CancelledData.
const CancelledText = "the call was cancelled by whoever looks after the bridge"
