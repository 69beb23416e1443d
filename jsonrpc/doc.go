// Package jsonrpc reads JSON-RPC 2.0 messages without changing them. It is for programs
// that pass messages on: a proxy, a bridge, a filter. Such a program looks at the method
// and the id, changes an id or a member at most, and must not alter the rest.
//
// Parse makes a Message, which is the exact bytes of the message and an index of its
// envelope. Parse scans the bytes once. The index says where the id, the method, the params,
// the result and the progress token stand, so methods such as Message.ID and
// Message.Params cost nothing. Lookup finds what lies deeper.
//
// A Message is never decoded and encoded again. WithID, WithParams, WithMeta and the other
// With methods return a copy with one thing replaced, and every other byte stays. The
// index also knows the longest value in params or result: no method scans that value
// again, and it is copied only when somebody asks for all the bytes.
//
// Other parts of the package:
//
//   - Error says what is wrong with invalid bytes, and Error.Reply makes the answer.
//   - Decode and SplitBatch take batches apart.
//   - NewRequest, NewNotification, NewResult and NewError build messages.
//   - ID is a request id as it is spelled. It can be the key of a map; Find also finds an
//     id that the peer has spelled in another way.
//   - Members, Elements, Text, With and Without read and change raw JSON values.
//   - IDFinder finds the id of a message that is too large to be kept.
//
// Messages, IDs and Fragments are immutable and may be used by many goroutines at a time.
// The examples show how to parse, how to replace an id, and how to answer a batch.
package jsonrpc
