package config

import (
	"slices"
	"strconv"

	"github.com/tailscale/hujson"
)

// An authSetting is one key of "auth", which says how to sign in to a remote server.
type authSetting struct {
	key  string        // the key in "auth"
	flag string        // the flag, without "--", as whose value the key's is used; or AuthSecret or AuthIDPSecret
	kind authValueKind // how the value is spelled
	doc  string        // what the manual says of it
}

// authValueKind says how the value of an authSetting is spelled.
type authValueKind uint8

const (
	authText   authValueKind = iota // the setting's value is a string
	authPath                        // the setting's value is the path of a file; a relative one begins in the folder of the configuration file
	authList                        // the setting's value is an array of strings
	authPairs                       // the setting's value is an object of strings, each of which becomes NAME=VALUE
	authNumber                      // the setting's value is a whole number
	authBool                        // the setting's value is true or false
)

// Names in Server.Auth that are no flags: secrets are not given on a command line.
const (
	AuthSecret    = "client-secret"     // the name in Server.Auth of the OAuth client's secret
	AuthIDPSecret = "idp-client-secret" // the name in Server.Auth of the bridge's secret at the company's identity provider
)

// authSettings are all keys of "auth", in the order of the manual.
var authSettings = []authSetting{
	{"mode", "auth", authText, "`\"auto\"`: a person signs in if the server asks for it; `\"none\"`; without a person: `\"client-credentials\"`, `\"jwt-bearer\"`, `\"enterprise\"`"},
	{"profile", "profile", authText, "tells several accounts at one server apart"},
	{"clientId", "client-id", authText, "who the bridge is to the authorization server, if somebody has registered it there"},
	{"clientIssuer", "client-issuer", authText, "the authorization server at which `clientId` is registered"},
	{"clientSecret", AuthSecret, authText, "the client's secret: write a variable, `\"${NAME}\"`"},
	{"clientSecretFile", "client-secret-file", authPath, "a file with the client's secret, instead of `clientSecret`"},
	{"key", "auth-key", authPath, "a file with the client's private key (PEM), instead of a secret"},
	{"keyId", "auth-key-id", authText, "the key's name in the client's key set"},
	{"keyAlg", "auth-key-alg", authText, "the key's algorithm, such as `ES256`"},
	{"clientMetadataUrl", "client-metadata-url", authText, "the address of the client's metadata document; this address is then the client's id"},
	{"scopes", "scope", authList, "the scopes to ask for, not all that the server lists; scopes that its refusals name are asked for too"},
	{"resource", "resource", authText, "the parameter `resource` to send, instead of the one that the server publishes; `\"off\"` sends none"},
	{"authorizeParams", "authorize-param", authPairs, "more parameters of the authorization request"},
	{"issuerAliases", "issuer-alias", authPairs, "an object: each key is an issuer as the server announces it, its value the other issuer that the metadata may name"},
	{"redirectHost", "redirect-host", authText, "the host that the browser comes back to: `\"127.0.0.1\"` or `\"localhost\"`"},
	{"redirectPort", "redirect-port", authNumber, "the port that the browser comes back to"},
	{"dpop", "dpop", authText, "bind tokens to a key: `\"auto\"`, `\"require\"`, `\"off\"`"},
	{"assertionFile", "assertion-file", authPath, "for `jwt-bearer`: a file with the assertion, read at each use"},
	{"idpIssuer", "idp-issuer", authText, "for `enterprise`: the company's identity provider"},
	{"idpTokenUrl", "idp-token-url", authText, "the token endpoint of the company's identity provider"},
	{"idpClientId", "idp-client-id", authText, "the bridge's client id at the company's identity provider"},
	{"idpClientSecret", AuthIDPSecret, authText, "the bridge's secret there: write a variable, `\"${NAME}\"`"},
	{"idpClientSecretFile", "idp-client-secret-file", authPath, "a file with this secret, instead of `idpClientSecret`"},
	{"idTokenFile", "id-token-file", authPath, "the person's id token, read at each use"},
	{"allowPrivate", "allow-private-auth", authBool, "let a public server name an authorization server in a private network"},
	{"noBrowser", "no-browser", authBool, "open no browser"},
	{"wait", "auth-wait", authText, "how long a request waits for a person to sign in, such as `\"45s\"`"},
	{"prompt", "auth-prompt", authText, "`\"browser\"`, or `\"error\"`: open no browser; the request fails and says what to run"},
}

// authNames returns the sorted keys that "auth" may have.
func authNames() []string {
	var names []string
	for _, set := range authSettings {
		names = append(names, set.key)
	}
	slices.Sort(names)
	return names
}

// readAuth reads "auth", which says how to sign in to a server, and returns the values by the names of their flags, as Server.Auth has them;
// nil: it is no object. A key that is not known, or has a wrong value, is recorded as a mistake.
func (p *parser) readAuth(m member) map[string][]string {
	all, ok := p.knownMembers(m.value, m.label)
	if !ok {
		return nil
	}
	byFlag := map[string][]string{}
	for _, v := range all {
		i := slices.IndexFunc(authSettings, func(s authSetting) bool { return s.key == v.key })
		if i < 0 {
			p.errorf(v.offset, `%s is no key of "auth"%s`, v.label, p.suggestKey(v.key, authNames()))
			continue
		}
		if values := p.readAuthValues(authSettings[i].kind, v); len(values) > 0 {
			byFlag[authSettings[i].flag] = values
		}
	}
	return byFlag
}

// readAuthValues reads the value of a key of "auth", and returns the values that its flag would be given: several of a list or of pairs.
// A value that is wrong is recorded as a mistake.
func (p *parser) readAuthValues(kind authValueKind, m member) (values []string) {
	readElement := func(text string, ok bool) {
		if ok {
			values = append(values, text)
		}
	}
	switch kind {
	case authText:
		readElement(p.expandText(m, "a string in quotes"))
	case authPath:
		readElement(p.readPath(m))
	case authList:
		all, _ := p.elements(m, `an array of strings, such as ["read", "write"]`)
		for _, e := range all {
			readElement(p.expandText(e, "a string in quotes"))
		}
	case authPairs:
		all, _ := p.members(m.value, m.label)
		for _, e := range all {
			text, ok := p.expandText(e, "a string in quotes")
			readElement(e.key+"="+text, ok)
		}
	case authNumber:
		n := 0
		p.integer(m, 0, &n)
		readElement(strconv.Itoa(n), m.value.Value.Kind() == '0')
	case authBool:
		on := false
		p.boolean(m, &on)
		_, ok := m.value.Value.(hujson.Literal)
		readElement(strconv.FormatBool(on), ok)
	}
	return values
}
