//! Whether something is old enough.

use std::time::Duration;

use jiff::SignedDuration;

/// Exactly the minimum is old enough, as for the kubelet; an age in the future never is.
pub(super) fn at_least(age: SignedDuration, minimum: Duration) -> bool {
    !age.is_negative() && SignedDuration::try_from(minimum).is_ok_and(|minimum| age >= minimum)
}
