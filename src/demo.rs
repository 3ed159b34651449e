//! `crisweep demo`.

/// Placeholder until the simulated node lands.
///
/// # Errors
/// None.
pub async fn run(_config: crate::config::Config) -> anyhow::Result<()> {
    Ok(())
}
