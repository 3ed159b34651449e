//! What must be true before an image goes.

use std::collections::BTreeSet;

use super::Node;
use crate::gc::{Policy, Removal};

/// Returns the rule that the removal would break.
pub(super) fn rule(
    _node: &Node<'_>,
    _policy: &Policy,
    _removal: &Removal,
    _going: &BTreeSet<&str>,
) -> Option<&'static str> {
    Some("is not checked")
}
