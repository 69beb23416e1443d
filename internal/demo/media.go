package demo

import (
	_ "embed" // logo.png
	"encoding/base64"
	"encoding/binary"
)

//go:embed logo.png
var logo []byte

var tone = wav()

// wav returns a tenth of a second of sound: 8-bit mono at 8 kHz, a square wave of 400 Hz.
func wav() []byte {
	const rate, samples = 8000, 800
	b := []byte("RIFF")
	b = binary.LittleEndian.AppendUint32(b, 36+samples)
	b = append(b, "WAVEfmt "...)
	b = binary.LittleEndian.AppendUint32(b, 16)   // length of the format
	b = binary.LittleEndian.AppendUint16(b, 1)    // PCM
	b = binary.LittleEndian.AppendUint16(b, 1)    // channels
	b = binary.LittleEndian.AppendUint32(b, rate) // samples per second
	b = binary.LittleEndian.AppendUint32(b, rate) // bytes per second
	b = binary.LittleEndian.AppendUint16(b, 1)    // bytes per sample
	b = binary.LittleEndian.AppendUint16(b, 8)    // bits per sample
	b = append(b, "data"...)
	b = binary.LittleEndian.AppendUint32(b, samples)
	for i := range samples {
		b = append(b, byte(128+48*(i/10%2)-24))
	}
	return b
}

var contentTool = &tool{
	Name: "content", Title: "Content",
	Description: "Returns content of the kind asked for, or (kind all) one block of every kind: text with annotations, an image, a sound, " +
		"a link to a resource, an embedded resource.",
	Input:       object(props{"kind": choice("Which kind.", "all", "all", "text", "image", "audio", "resource_link", "resource")}),
	Annotations: readOnly, run: typed(showContent),
}

func showContent(c *call, a struct{ Kind string }) (*toolResult, error) {
	r := &toolResult{}
	for _, b := range everyContent() {
		if a.Kind == "all" || a.Kind == b.Type {
			r.Content = append(r.Content, b)
		}
	}
	return r, nil
}

func everyContent() []content {
	link := itemResource(1)
	return []content{
		{Type: "text", Text: "a text with annotations", Annotations: &contentAnnotations{Audience: []string{"user", "assistant"}, Priority: 1}},
		{Type: "image", Data: base64.StdEncoding.EncodeToString(logo), MimeType: "image/png"},
		{Type: "audio", Data: base64.StdEncoding.EncodeToString(tone), MimeType: "audio/wav"},
		{Type: "resource_link", URI: link.URI, Name: link.Name, Title: link.Title, Description: link.Description, MimeType: link.MimeType},
		{Type: "resource", Resource: read("demo://hello.txt")},
	}
}
