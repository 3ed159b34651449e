//! sandboxes
