//! Logs on a simulated node with a real log tree: which ones are removed with a container or as orphans, and
//! which ones stay.

mod containers;
mod dirs;
mod evidence;
mod hostile;
mod links;
mod tree;
