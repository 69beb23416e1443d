package sharing

import "github.com/mcp-bridge/mcp-bridge/bridge"

// A Member is a client's Conn to a Server that it has joined. Close leaves the Server. If the Server was shut
// down, the error of Receive says why.
type Member struct {
	bridge.Conn
}

// newMember returns the Member for conn, a Conn of the Server's Mux. single: the client has joined for a single request
// that is no subscription.
func (s *Server) newMember(conn bridge.Conn, single bool) *Member {
	return &Member{Conn: bridge.Intercept(conn, bridge.Hooks{
		Ended: s.endReason,
		Closed: func(err error) error {
			s.pool.leave(s, single)
			return err
		},
	})}
}
