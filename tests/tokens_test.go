package tests

// Tokens of clients.
const (
	annToken = "0123456789abcdef-of-ann"
	bobToken = "0123456789abcdef-of-bob"
)
