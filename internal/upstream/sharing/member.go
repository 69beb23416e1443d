package sharing

import "github.com/mcp-bridge/mcp-bridge/bridge"

// Member is a client's Conn to a Server. Close leaves the Server. Receive says why a
// Server has ended that was shut down.
type Member struct {
	bridge.Conn
	server *Server
}

// newMember makes a Member of a Conn of the Server's Mux. single is what Pool.Join says.
func (s *Server) newMember(conn bridge.Conn, single bool) *Member {
	return &Member{server: s, Conn: bridge.Intercept(conn, bridge.Hooks{
		Ended: s.endReason,
		Closed: func(err error) error {
			s.pool.leave(s, single)
			return err
		},
	})}
}
