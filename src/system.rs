//! Operating system services for crisweep itself: bounded threads for calls that a disk may block, small files,
//! YAML within bounds, freed memory, quick maps, the service manager, peers that stop reading, whether the service's
//! loops make progress, and the wall clock.

pub mod blocking;
pub mod file;
pub mod manager;
pub mod maps;
pub mod memory;
pub mod pulse;
pub mod stall;
pub mod yaml;

/// Implements `Debug` as the type's name alone, for what holds secrets or cannot be shown.
macro_rules! opaque_debug {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use opaque_debug;

/// Waits until then; for ever without such a time.
pub async fn wait_until(then: Option<tokio::time::Instant>) {
    match then {
        Some(then) => tokio::time::sleep_until(then).await,
        None => std::future::pending().await,
    }
}

/// Reads the wall clock. For what carries or is compared with its times; a pass plans by its look's `taken_at`.
#[expect(clippy::disallowed_methods, reason = "the only place beside the look")]
pub fn clock() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
