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
	{"pages", inTalk(stepPages), nil},
	{"progress", inTalk(stepProgress), nil},
	{"stray", inTalk(stepStray), bridged},
	{"log", inTalk(stepLog), nil},
	{"elicit", inTalk(stepElicit), nil},
	{"sample", inTalk(stepSample), nil},
	{"roots", inTalk(stepRoots), nil},
	{"subscribe", inTalk(stepSubscribe), nil},
	{"changed", inTalk(stepChanged), nil},
	{"cancel", inTalk(stepCancel), bridged},
	{"late", inTalk(stepLate), bridged},
	{"ids", inTalk(stepIDs), nil},
	{"bytes", inTalk(stepBytes), nil},
	{"unknown", inTalk(stepUnknown), nil},
	{"ping", inTalk(stepPing), nil},
	{"1MiB", inTalk(stepBig), nil},
	{"errors", inTalk(stepErrors), nil},
	{"50calls", inTalk(stepConcurrent), nil},
	{"2clients", stepTwoClients, nil},
	{"batch", stepBatch, bridged},
	{"hangup", stepHangUp, nil},
	{"hangup+call", stepHangUpInCall, bridged},
	{"vanish", stepVanish, bridged},
	{"restart", stepRestart, bridged},
	{"sigterm", stepTerminate, bridged},
	{"leftovers", stepLeftovers, bridged},
}
