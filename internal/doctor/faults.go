package doctor

import "time"

// A Fault is a diagnosis whose words do not depend on what was seen: a Finding without Evidence.
type Fault struct {
	Code        string   // the code of the finding: "C3", "H7"
	Severity    Severity // how much it hurts clients
	Title       string   // what is wrong, in a few words
	Consequence string   // what follows for clients
	Advice      string   // what the user can do about it
}

// WithEvidence returns f as a Finding, with what was seen as its evidence.
func (f Fault) WithEvidence(seen string) Finding {
	return Finding{Code: f.Code, Severity: f.Severity, Title: f.Title, Evidence: seen, Consequence: f.Consequence, Advice: f.Advice}
}

// mediaTypeAdvice is the Advice of WrongContentType (H10).
const mediaTypeAdvice = "Label JSON application/json, and event streams text/event-stream; a proxy must not change the Content-Type."

// Faults of a server, mostly of one that is a command. doctor finds them, and package notes finds them in live traffic.
// doctor may describe one of them in words of its own.
var (
	ServerEndsAtOnce = Fault{"C2", Error, "the server ends at once",
		"Clients report that the server has disconnected or that the connection is closed.",
		"Run the command in a terminal: it should start, print nothing on stdout and wait. The text on stderr should name the cause."}
	StdoutNoise = Fault{"C3", Warning, "text on stdout that is no message",
		"stdout is for messages alone. Some clients skip such text; others show an error for each line (\"Unexpected token ... is not valid JSON\", as Claude Desktop does) or close the connection. The bridge leaves it out of what clients get.",
		writeToStderrAdvice + " Until then, run the server through the bridge."}
	SlowStart = Fault{"C5", Warning, "the server starts slowly",
		"Clients wait with a limit for the first answer: some for 5 or 10 s, many for 60 s, and people see a server that does not appear.",
		"The server itself takes so long: see what it does before it reads its stdin. Or keep it running: \"mcp-bridge serve\" starts it once, and clients connect to that."}
	// ServerSilent is C7 as package notes finds it in live traffic; only doctor can find out why the server is silent.
	ServerSilent = Fault{"C7", Error, "the server is silent", "Clients wait until they give up, most of them after 60 s.",
		"It may still be loading its package. If it stays silent, \"mcp-bridge doctor -- COMMAND\" says why, as far as that can be found out: a buffered stdout, a missing argument, a login that it waits for."}
	IncompleteInitialize = Fault{"C8", Error, "the answer to initialize lacks something",
		"Clients refuse the answer and give up.",
		"The result needs protocolVersion, capabilities (an object) and serverInfo with name and version."}
	LargeIDsUnanswered = Fault{"C9", Note, "requests with large numbers as ids are not answered",
		"The server drops requests whose id is above 2^53, as those on the TypeScript SDK do. Clients that number their requests from 1 will never notice.",
		"Nothing, unless a client uses such ids."}
	LargeIDsRounded = Fault{"C9", Note, "large numbers as ids are rounded",
		"The server reads numbers as double-precision floats, as JavaScript and many libraries do: whole numbers above 2^53 lose their last digits. Clients that number their requests from 1 will never notice. The bridge delivers the answers all the same.",
		"Nothing, unless a client uses such ids. Text as the id is never rounded."}
	AnswersUnderOtherID = Fault{"C9", Error, "answers come under another id",
		"A client finds the request to an answer by its id, and type counts: \"1\" is not 1. It drops this answer and waits on.",
		"The server must copy the id of the request into the answer, unchanged."}
	NotUTF8 = Fault{"C10", Warning, "a message has bytes that are not UTF-8",
		"Strict clients refuse the message or end the connection; others show wrong characters.",
		"Write UTF-8 on stdout; on Windows set PYTHONUTF8=1 for Python."}
	TextInFront = Fault{"C10", Error, "text stands before an answer, on the same line",
		"A line is a message. Clients refuse this line, and so does the bridge. If the answer stands on no other line, it is lost, and its client waits.",
		writeToStderrAdvice + " Most often it is a prompt, or other text that was printed without a line break."}
	LineTooLong = Fault{"C10", Error, "a line is longer than the limit",
		"The bridge does not pass it on, and many clients have lower limits.",
		"Split large lists into pages and large results into resources, or raise --max-message-size."}
	IgnoresEndOfInput = Fault{"C11", Warning, "the server ignores the end of its input", runsOnConsequence, shouldEndAdvice}
	MustBeKilled      = Fault{"C11", Warning, "the server has to be killed", runsOnConsequence, shouldEndAdvice}
	CircularPages     = Fault{"C13", Error, "the pages of a list go round in a circle",
		"Clients that read all pages never end.", "Leave nextCursor out on the last page, and let every page have another one."}
	CapabilityWithoutMethod = Fault{"C13", Error, "a capability without its method",
		"Clients trust the capability, ask for the list, and report an error or leave the server out.",
		"Answer the method, or leave the capability out of the answer to initialize."}
)

// StdoutNoiseThroughBridge returns StdoutNoise (C3) with advice for a server that runs through the bridge already. The evidence
// in live traffic lacks the text, so the advice says how to see it.
func StdoutNoiseThroughBridge() Fault {
	f := StdoutNoise
	f.Advice = writeToStderrAdvice + " \"mcp-bridge doctor -- COMMAND\" shows the text."
	return f
}

// usualCommentInterval is how often servers write a comment to keep a quiet stream open, as mcp-bridge serve does: it decides
// what QuietStreamCut advises.
const usualCommentInterval = 15 * time.Second

// QuietStreamCut returns H12 for streams that were cut after they had been quiet for the time after. at is the name of what
// cuts them, as the advice has it.
func QuietStreamCut(after time.Duration, at string) Fault {
	f := Fault{"H12", Warning, "A quiet stream is cut off",
		"Calls that say nothing for that long lose their answer, unless their client can resume.", ""}
	f.Advice = "Raise the idle limit at " + at + " (nginx proxy_read_timeout; the idle timeout of the load balancer), which is about " + after.String()
	if after > usualCommentInterval {
		f.Advice += ", or have the server send a comment every 15 seconds, as mcp-bridge serve does."
	} else {
		f.Advice += ", to a minute or more. A comment every 15 seconds, as mcp-bridge serve sends, comes too late."
	}
	f.Advice += " If comments came before, it is the whole time of a request that is bounded."
	return f
}

// writeToStderrAdvice begins the Advice of faults of a server that writes other text than messages to stdout (C3, C10).
const writeToStderrAdvice = "Write it to stderr: console.error in place of console.log, print(..., file=sys.stderr), a logger's handler for stderr."

const (
	// runsOnConsequence is the Consequence of faults of a server that does not end with its input (C11).
	runsOnConsequence = "Clients end servers by closing their stdin. Those that do no more leave the process running, one for each time that they start; others wait, and then kill it, so that it cannot finish what it does. The bridge ends it in any case."
	// shouldEndAdvice is the Advice of faults of a server that does not end with its input (C11).
	shouldEndAdvice = "The server should exit when stdin ends: process.stdin.on(\"end\", ...) in Node, a loop that ends with the input elsewhere. It should exit at SIGTERM as well."
)

// Faults of a server that has a URL, or of what lies before it. doctor finds them, and package notes finds all but BufferedStreams in live
// traffic.
var (
	WebPageAnswers = Fault{"H5", Error, "A web page answers instead of MCP",
		"Clients find no message in it.",
		"Check the path of the URL. Some sites answer every unknown path with their start page, and some proxies with a login."}
	ReplicasLoseSessions = Fault{"H7", Error, "There are several replicas, and requests of a session reach any of them",
		"Calls fail, and clients begin new sessions again and again.",
		"Route by the Mcp-Session-Id header (or by the client's address) where the load is balanced, keep sessions in a store that all replicas share, or run the server without sessions."}
	UnknownSessionNot404 = Fault{"H8", Warning, "A session that does not exist any more is not answered with 404",
		"Clients begin a new session when they see 404, and only then: after a restart of the server they fail until they are restarted too.",
		"Have the server answer requests with an unknown Mcp-Session-Id 404."}
	RefusesMediaTypes = Fault{"H10", Error, "The media types that the protocol prescribes are refused",
		"Every client sends these headers: all are refused.",
		"Have the server admit them; if it does, see whether a proxy changes Accept or Content-Type."}
	WrongContentType  = Fault{"H10", Error, "The Content-Type of a reply is wrong", "Clients decide by the Content-Type how they read a reply: they refuse this one, or find no message in it.", mediaTypeAdvice}
	CompressedStreams = Fault{"H11", Note, "Event streams are compressed",
		"A compressor that does not flush after each event holds events back.", "Do not compress text/event-stream."}
	BufferedStreams = Fault{"H11", Error, "Event streams are held back on their way",
		"Progress, requests of the server, and answers that come as events reach clients late or never: calls seem to hang.",
		"Turn off response buffering for this path: nginx \"proxy_buffering off\" (and no proxy_ignore_headers X-Accel-Buffering), Apache \"flushpackets=on\", no gzip. The server can send X-Accel-Buffering: no, and must write something, such as a comment, as soon as a stream is open: some proxies, and HTTP/2 in some libraries, send headers with the first bytes only."}
	OddGetAnswer = Fault{"H13", Warning, "GET is answered with something else than an event stream or 405",
		"Some clients take the answer for an event stream and open it again and again, or report an error.",
		"Have the server answer GET with an event stream, or with 405 if it has nothing to say by itself. If a route or a proxy answers in its place, pass GET on."}
	GetStreamEndsAtOnce = Fault{"H13", Warning, "The GET stream ends at once",
		"Clients open it again and again.",
		"Have the server keep the stream open, or answer GET with 405; a proxy or a serverless platform may not be able to keep it open."}
	CannotResumeStreams = Fault{"H14", Warning, "Streams have event ids but cannot be resumed",
		"When the network fails for a moment, clients try to resume, and the calls in progress are lost.",
		"Keep events for clients that come back, in a store that all replicas share; or send no event ids."}
	No401Challenge = Fault{"H18", Warning, "401 comes without WWW-Authenticate",
		"Clients do not learn which credentials are wanted.",
		"Send WWW-Authenticate: Bearer with 401, with resource_metadata if the server uses OAuth. If it sends the header, a proxy drops it."}
	LargeBodiesRefused = Fault{"H19", Warning, "Large messages are refused",
		"Calls with long arguments, such as files, fail.",
		"Raise the limit of the server, or of the proxy before it (nginx client_max_body_size)."}
	TooManyRequests = Fault{"H20", Warning, "Requests are refused because there were too many (429)",
		"Clients that make as many requests get errors.",
		"Raise the limit for this path at the server, or at the proxy before it."}
	ResponseToOtherRequest = Fault{"H23", Error, "A response belongs to another request",
		"The client that asked waits until it gives up; another one may get what is not for it.",
		"A response must go out in the reply to its own request, with the id of that request."}
	AnsweredTwice = Fault{"H23", Note, "A request was answered more than once",
		"Clients take the first response; some log an error about the others.", "Have the server answer each request once."}
	DeleteFails = Fault{"H25", Warning, "The server fails when a session is ended",
		"Sessions that clients have ended take up memory, and perhaps a process, until they time out. Some clients report the error to their user.",
		"Have the server answer DELETE with 200 or 204, or with 405 if clients may not end sessions."}
	DeleteUnsupported = Fault{"H25", Note, "Clients cannot end their sessions",
		"Sessions that clients have ended take up memory, and perhaps a process, until they time out.",
		"If sessions cost something, have the server support DELETE, or let idle sessions end soon."}
)
