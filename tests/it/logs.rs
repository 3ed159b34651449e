//! Logs on a simulated node with a real log tree: what goes with its container, what goes as an
//! orphan, and what stays.

mod containers;
mod dirs;
mod links;
mod tree;
