//! Reads the configuration again and publishes it. A refused configuration changes nothing.

use std::sync::Arc;

use super::{Service, clock};
use crate::access::{self, Listen};
use crate::config::{Config, Mode};
use crate::model::Cause;
use crate::telemetry;

impl Service {
    /// Reads the configuration again and publishes it; returns the keys whose new values wait for a restart.
    ///
    /// # Errors
    /// What the configuration refuses; the old one stays.
    pub async fn reload(&self) -> Result<Vec<&'static str>, String> {
        let service = self.clone();
        // In a task of its own: a client that hangs up does not stop a reload halfway.
        let reload = tokio::spawn(async move { service.reload_in_turn().await });
        reload
            .await
            .unwrap_or_else(|error| Err(format!("the reload did not end: {error}")))
    }

    async fn reload_in_turn(&self) -> Result<Vec<&'static str>, String> {
        let _one_at_a_time = self.fixed.reloading.lock().await;
        self.fixed.manager.reloading().await;
        let result = self.read_again().await;
        self.last_reload.lock().refused = result.as_ref().err().cloned();
        match &result {
            Ok(needs_restart) if needs_restart.is_empty() => {
                tracing::info!("configuration reloaded");
            }
            Ok(needs_restart) => {
                let keys = needs_restart.join(", ");
                tracing::warn!(needs_restart = keys, "configuration reloaded");
            }
            Err(error) => {
                self.metrics.reloaded_well.set(0);
                tracing::error!(
                    error,
                    "the configuration was not reloaded; the old one stays"
                );
            }
        }
        self.fixed.manager.ready().await;
        result
    }

    async fn read_again(&self) -> Result<Vec<&'static str>, String> {
        let config = (self.fixed.reload)().await?;
        let config = config.keep_fixed(&self.config());
        let config = config.map_err(|error| telemetry::chain(&error))?;
        let access = self.access.get();
        let access = access.renew(&config.web, config.pods.api_server()).await;
        let access = access.map_err(|error| telemetry::chain(&error))?;
        telemetry::set(&config.log)?;
        self.access.replace(access);
        let needs_restart = config.needs_restart.clone();
        self.worker.reload(&self.settings, Arc::new(config));
        self.show();
        Ok(needs_restart)
    }

    /// Shows the configuration in force in metrics and log.
    pub(super) fn show(&self) {
        let config = self.config();
        let (mode, hash, loaded_at) = (config.mode.label(), config.hash(), clock());
        self.last_reload.lock().loaded_at = loaded_at;
        let modes = Mode::ALL.map(|it| (it.label(), it == config.mode));
        let metrics = &self.metrics;
        metrics.configured(&modes, &hash, &config.needs_restart, loaded_at);
        metrics.expect_passes(unattended(&config));
        let source = config.pods.source.label();
        self.warn_of_open_doors(&config.web);
        tracing::info!(
            mode,
            config.hash = hash,
            pods.source = source,
            "configuration in force"
        );
    }

    /// Says in the log who may do what: at start, and when a reload changed it.
    fn warn_of_open_doors(&self, web: &access::Config) {
        let access = self.access.get();
        let of_network = |listen: &&Listen| match listen {
            Listen::Tcp(address) => !address.ip().is_loopback(),
            Listen::Unix(_) => false,
        };
        for address in web.listen.iter().filter(of_network) {
            if !access.guards_reading() && !access.demands_certificates() {
                tracing::warn!(
                    %address,
                    "any client that reaches this address may read (web.bearer_token_files.read closes it)"
                );
            }
            if access.has_credentials() && access.tls().is_none() {
                tracing::warn!(
                    %address,
                    "credentials travel unencrypted: configure TLS (web.config_file)"
                );
            }
        }
        if !access.has_credentials() {
            tracing::info!(
                "without credentials only root and the service's own user on this machine may act"
            );
        }
    }
}

/// Returns the causes of passes that start without a person.
fn unattended(config: &Config) -> impl Iterator<Item = Cause> {
    let polls = !config.alertmanager.poll.is_empty();
    let poll = polls.then_some(Cause::Poll);
    let threshold = config.thresholds.enabled.then_some(Cause::Threshold);
    [Some(Cause::Alert), poll, threshold].into_iter().flatten()
}
