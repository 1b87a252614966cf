//! The simulated continuum: virtual time, nodes, links, contacts, queues and faults, driving the very policies that ship.
#![forbid(unsafe_code)]
