package matrix

// bytesScript is for two legacy sides, where every byte crosses as it is: the test says what one
// side says, and hears it at the other.
var bytesScript = script{
	name:   "bytes",
	steps:  bytesSteps,
	pairs:  pairs(false, false),
	legend: "Milliseconds; \"-\" is what needs a bridge; \"renews\" and \"ends\" is what a session did after its server had restarted.\n",
}

var bytesSteps = []step{
	{"initialize", stepInitialize, nil},
	{"pages", inBytes(stepPages), nil},
	{"progress", inBytes(stepProgress), nil},
	{"stray", inBytes(stepStray), bridged},
	{"log", inBytes(stepLog), nil},
	{"elicit", inBytes(stepElicit), nil},
	{"sample", inBytes(stepSample), nil},
	{"roots", inBytes(stepRoots), nil},
	{"subscribe", inBytes(stepSubscribe), nil},
	{"changed", inBytes(stepChanged), nil},
	{"cancel", inBytes(stepCancel), bridged},
	{"late", inBytes(stepLate), bridged},
	{"ids", inBytes(stepIDs), nil},
	{"bytes", inBytes(stepBytes), nil},
	{"unknown", inBytes(stepUnknown), nil},
	{"ping", inBytes(stepPing), nil},
	{"1MiB", inBytes(stepBig), nil},
	{"errors", inBytes(stepErrors), nil},
	{"50calls", inBytes(stepConcurrent), nil},
	{"2clients", stepTwoClients, nil},
	{"batch", stepBatch, bridged},
	{"hangup", stepHangUp, nil},
	{"hangup+call", stepHangUpInCall, bridged},
	{"vanish", stepVanish, bridged},
	{"restart", stepRestart, bridged},
	{"sigterm", stepTerminate, bridged},
	{"leftovers", stepLeftovers, bridged},
}
