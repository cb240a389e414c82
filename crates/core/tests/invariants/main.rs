//! Invariants that hold for every queue, tried by random programs of arrivals, polls, waits and changes.
//!
//! A failure prints the shortest program found and a seed. `SQM_SEED=<seed> cargo test -p sqm-core --test invariants
//! <name>` runs the same programs again; `SQM_PROGRAMS=<n>` sets how many (10,000 unless said).

mod cake;
mod classful;
mod packet;
mod program;
