// Package faultproxy is a TCP proxy before an HTTP/1.1 server that does to requests and
// answers what networks and overloaded servers do.
//
// Invariants:
//
//  1. A request without a fault passes as it came, its Host included, since it is signed.
//  2. Which requests meet a fault, and which fault, follows from the seed and the order of
//     the requests; at most Burst in a row do, so that a client that tries again gets through.
//  3. Kinds named ...After and those that damage an answer are applied by the server first.
//
// Entry points: [Start], [Proxy.Met].
//
// Only tests import it; it imports nothing of the product.
package faultproxy
