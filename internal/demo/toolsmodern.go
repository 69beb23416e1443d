package demo

import (
	"encoding/json"
	"fmt"
)

// Tools that show what is new in 2026-07-28. They work in both eras.

var headersTool = &tool{
	Name: "headers", Title: "Arguments as headers",
	Description: "Returns its arguments. All but one are annotated with x-mcp-header: over Streamable HTTP a client mirrors them into headers Mcp-Param-..., " +
		"by which what lies between can route. Shows whether both arrive alike.",
	Input: object(props{
		"region":  str("Any text, also one that a header cannot hold as it is.").header("Region"),
		"shard":   schema{Type: "integer", Description: "An integer."}.between(-maxSafe, maxSafe).header("Shard"),
		"dry_run": schema{Type: "boolean", Description: "A boolean."}.header("Dry-Run"),
		"target":  target,
		"query":   str("A text that is not mirrored."),
	}),
	Output: output(props{
		"region":  str("As it came."),
		"shard":   {Type: "integer", Description: "As it came."},
		"dry_run": {Type: "boolean", Description: "As it came."},
		"target":  {Type: "object", Description: "As it came."},
		"query":   str("As it came."),
	}),
	Annotations: readOnly, run: func(_ *call, raw json.RawMessage) (*toolResult, error) { return structured(raw) },
}

var target = func() schema {
	s := *object(props{"zone": str("A text, further down.").header("Zone")})
	s.Description = "An object whose property is mirrored."
	return s
}()

// maxSafe is the largest integer that a float64 tells from its neighbours.
const maxSafe = 1<<53 - 1

var interviewTool = &tool{
	Name: "interview", Title: "Interview",
	Description: "Asks the user one question after another (elicitation/create), each in the light of the answers before. In 2026-07-28 each is a round of its own, " +
		"and between two questions lies a round that asks for nothing (requestState only). The client must have the capability elicitation.",
	Input:       object(props{"questions": integer("How many questions.", 1, 10, 2)}),
	Output:      output(props{"answers": {Type: "array", Items: &schema{Type: "string"}, Description: "In the order of the questions."}}, "answers"),
	Annotations: asks, run: typed(interview),
}

func interview(c *call, a struct{ Questions int }) (*toolResult, error) {
	if err := c.needs("elicitation", "form"); err != nil {
		return nil, err
	}
	answers := []string{}
	for n := 1; n <= a.Questions; n++ {
		if n > 1 {
			if err := c.pause(fmt.Sprintf("pause%d", n-1)); err != nil {
				return nil, err
			}
		}
		answer, err := c.ask(question{
			key: fmt.Sprintf("question%d", n), method: "elicitation/create", params: elicitation{next(answers), answerForm},
		})
		if err != nil {
			return unanswered(err)
		}
		var said struct {
			Content struct{ Answer string }
		}
		if json.Unmarshal(answer, &said) != nil || !accepted(answer) {
			return failure("question %d was not answered: %s", n, answer), nil
		}
		answers = append(answers, said.Content.Answer)
	}
	return structured(map[string]any{"answers": answers})
}

// next is the question that follows the answers.
func next(answers []string) string {
	if len(answers) == 0 {
		return "What do you like?"
	}
	return fmt.Sprintf("Question %d: you like %s. What else?", len(answers)+1, answers[len(answers)-1])
}

var answerForm = output(props{"answer": {Type: "string", Title: "Answer"}}, "answer")
