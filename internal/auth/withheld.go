package auth

// withheldText stands in the place of a secret where somebody prints what holds it with fmt or a logger.
const withheldText = "(withheld)"

// String returns text that does not show the client's secret.
func (c Client) String() string { return "client " + c.ID }

// GoString returns what String does, so that %#v shows no secret either.
func (c Client) GoString() string { return c.String() }

// String returns text that does not show the tokens.
func (t Token) String() string { return t.Type + " token " + withheldText }

// GoString returns what String does, so that %#v shows no secret either.
func (t Token) GoString() string { return t.String() }

// String returns text that does not show the code, the assertion or the token that is given.
func (g Grant) String() string { return "grant " + g.form.Get("grant_type") }

// GoString returns what String does, so that %#v shows no secret either.
func (g Grant) GoString() string { return g.String() }

// String returns text that does not show the token that is given.
func (x TokenExchangeRequest) String() string { return "exchange of a token " + withheldText }

// GoString returns what String does, so that %#v shows no secret either.
func (x TokenExchangeRequest) GoString() string { return x.String() }

// String returns text that does not show the secret and the token for its management.
func (r Registration) String() string { return r.Client.String() + " at " + r.Issuer }

// GoString returns what String does, so that %#v shows no secret either.
func (r Registration) GoString() string { return r.String() }

// String returns text that does not show the device code.
func (d DeviceAuthorization) String() string { return "device authorization at " + d.VerificationURI }

// GoString returns what String does, so that %#v shows no secret either.
func (d DeviceAuthorization) GoString() string { return d.String() }
