//! What measures for minutes and asserts no time: the scripts in `benches/` run it (`.config/nextest.toml` leaves it
//! out of the tests).

mod fleet;
mod network;
mod pacing;
mod polls;
