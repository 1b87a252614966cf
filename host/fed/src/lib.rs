//! Federated rounds, pure: who takes part, what becomes of the updates, what is kept secret and what was spent on it. No clock,
//! socket, thread or unseeded randomness: events are arguments, actions are return values.
#![forbid(unsafe_code)]
